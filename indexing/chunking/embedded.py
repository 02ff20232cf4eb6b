"""Pages by part: the scripts and styles in HTML, Vue and Svelte files as what they are, the template around them.

Each part is parsed by its own grammar, in a copy of the text where everything else is blank, so that all offsets stay
those of the file. A part keeps its tags. Small parts, and scripts in languages that are not known, stay template.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tree_sitter import Node

from indexing.chunking import code
from indexing.chunking.spans import Sizes, Span, Text
from indexing.parsing import Definition, ParsedFile, Syntax, parse

LANGUAGES = frozenset({"html", "svelte", "vue"})
MIN_CHARS = 100  # less is not worth a grammar of its own
MAX_PARTS = 20  # each one costs a pass over the file
_ELEMENTS = {"script_element": "javascript", "style_element": "css"}
_LANGUAGE = re.compile(rb"\b(?:lang|type)\s*=\s*[\"']?([\w/+.-]+)")
_WRITTEN = {
    "ts": "typescript", "typescript": "typescript", "text/typescript": "typescript", "tsx": "tsx",
    "js": "javascript", "jsx": "javascript", "javascript": "javascript", "text/javascript": "javascript",
    "module": "javascript", "application/javascript": "javascript", "text/babel": "javascript",
    "css": "css", "text/css": "css", "postcss": "css", "scss": "scss",
}  # fmt: skip
_CLOSING_TAGS = re.compile(rb"(?:\s*</[\w:-]+\s*>)*")
_NOT_BLANK = re.compile(rb"[^\s]")


@dataclass(frozen=True, slots=True)
class _Part:
    """An element with its tags and closing tags behind it, and the script or style between them."""

    start: int
    end: int
    inner_start: int
    inner_end: int
    language: str


def chunk(text: Text, syntax: Syntax, sizes: Sizes) -> tuple[list[Span], ParsedFile]:
    """Spans of all parts, and what the scripts define and import."""
    assert syntax.tree is not None
    spans: list[Span] = []
    parsed = syntax.parsed
    begin = 0
    for part in _parts(syntax.tree.root_node, text.data):
        spans += _template(text, syntax, begin, part.start, sizes)
        inner = parse(_only(text.data, part.inner_start, part.inner_end), part.language)
        if inner.tree is None:
            spans += _template(text, syntax, part.start, part.end, sizes)
        else:
            spans += code.chunk(Text(_only(text.data, part.start, part.end)), inner, sizes)
            parsed = _joined(parsed, inner.parsed)
        begin = part.end
    return [*spans, *_template(text, syntax, begin, len(text.data), sizes)], parsed


def _template(text: Text, syntax: Syntax, start: int, end: int, sizes: Sizes) -> list[Span]:
    if not text.data[start:end].strip():
        return []
    if (start, end) == (0, len(text.data)):
        return code.chunk(text, syntax, sizes)
    return code.chunk(Text(_only(text.data, start, end)), syntax, sizes)


def _only(data: bytes, start: int, end: int) -> bytes:
    """The same text with all but one range blank; lines stay lines."""
    return _NOT_BLANK.sub(b" ", data[:start]) + data[start:end] + _NOT_BLANK.sub(b" ", data[end:])


def _parts(root: Node, data: bytes) -> Iterator[_Part]:
    """In order of the file, not inside one another."""
    found: list[_Part] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if node.type in _ELEMENTS:
            found += _part(node, data)
        elif node.type not in ("raw_text", "text", "start_tag", "attribute"):
            stack += node.children
    return iter(sorted(found, key=lambda part: part.start)[:MAX_PARTS])


def _part(element: Node, data: bytes) -> list[_Part]:
    inner = next((child for child in element.children if child.type == "raw_text"), None)
    if inner is None or inner.end_byte - inner.start_byte < MIN_CHARS:
        return []
    written = _LANGUAGE.search(data, element.start_byte, inner.start_byte)
    name = written[1].decode("ascii", "replace").lower() if written else ""
    language = _WRITTEN.get(name, "") if name else _ELEMENTS[element.type]
    if not language:
        return []
    closed = _CLOSING_TAGS.match(data, element.end_byte)
    end = closed.end() if closed else element.end_byte
    return [_Part(element.start_byte, end, inner.start_byte, inner.end_byte, language)]


def _joined(parsed: ParsedFile, part: ParsedFile) -> ParsedFile:
    """Parents are positions, so those of the part move."""
    shift = len(parsed.definitions)
    moved = [_moved(definition, shift) for definition in part.definitions]
    return replace(
        parsed,
        definitions=(*parsed.definitions, *moved),
        imports=tuple(dict.fromkeys((*parsed.imports, *part.imports))),
        import_ranges=(*parsed.import_ranges, *part.import_ranges),
    )


def _moved(definition: Definition, shift: int) -> Definition:
    return replace(definition, parent=definition.parent + shift) if definition.parent >= 0 else definition
