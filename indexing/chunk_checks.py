"""Chunks of one file -> what is wrong with them, found without a model: what a reviewer would send back.

    for problem in check_file(source, chunk_file(source), max_chars=1500):
        print(problem.check, problem.line, problem.detail)

`check_rows` looks at what is embedded for the chunks: nothing may be cut off at the model's window, nothing left out.
The file is parsed once more and read with other eyes than the chunker's: comments and attributes directly above a
declaration, tokens that close something, constructs that a cut goes through. Details name node types and sizes,
never source text. Nothing is repaired here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tree_sitter import Node

from indexing.context import embedded_texts, normalise
from indexing.masking import mask_secrets
from indexing.offsets import LineIndex
from indexing.parsing import CONTAINER_KINDS, FUNCTION_KINDS, Definition, Syntax, parse, starts_line
from indexing.walking import decode

if TYPE_CHECKING:
    from indexing.chunking import Chunk, ChunkedFile
    from indexing.walking import SourceFile

CHECKS = {
    "uncovered": "text that no chunk holds",
    "overlap": "text that two chunks hold",
    "edges": "a chunk that is empty, or begins or ends with blanks",
    "lines": "line numbers that do not belong to the bytes",
    "ceiling": "a chunk above the largest size",
    "orphaned_doc": "documentation, a decorator or an attribute in another chunk than its declaration",
    "detached_closer": "a chunk that begins with what closes something else",
    "dangling_opener": "a chunk that ends with what opens a construct of the next one, although both fit together",
    "cut_through": "a construct that was cut although it fits",
    "unsteady": "other chunks when the file is read again",
    "window": "an embedded text above the model's window",
    "lost_words": "words of a chunk that no text embedded for it has",
}
_WORD = re.compile(r"\w{2,30}(?!\w)")  # longer ones may be cut between two rows
_EXEMPT_KINDS = frozenset({"endpoint"})  # whole whatever its size
_CLOSER = re.compile(r"[)}\]]|\*/|-->|</\w|[;,]\s|(?:end|endif|endforeach|endwhile|esac|fi|done)\b(?!\s*[(:=.\w])")
_CLOSERS = re.compile(rb"(?:\s*[)}\];,])*")
_LITERAL = re.compile(r"string|comment|heredoc|text|template|content|regex|raw|jsx_text|char|block_scalar|data")
_OPENER = re.compile(rb"(?:[{(\[:]|[-=]>|\b(?:do|then|begin))\Z")
_OPENER_BYTES = 100
_DOCSTRING = re.compile(rb"\s*[rRuU]{0,2}(\"\"\"|''').*?\1", re.S)
_LOOKS_LIKE_C_DOC = re.compile(
    rb"[ \t]*(?:///|/\*\*|\*/|\*[ \t]|\*\r?$|//|@\w[\w.]*(?:\([^()]*\))?\s*$|#\[.*\]\s*$|\[[A-Z]\w*.*\]\s*$)"
)
_LOOKS_LIKE_HASH_DOC = re.compile(rb"[ \t]*(?:#(?!!)|@\w[\w.]*(?:\(.*\))?\s*$)")
_LOOKS_LIKE_DASH_DOC = re.compile(rb"[ \t]*--")
_LOOKS_LIKE_DOC = {
    **dict.fromkeys(("python", "ruby", "bash", "elixir", "perl", "r", "julia", "fish"), _LOOKS_LIKE_HASH_DOC),
    **dict.fromkeys(("haskell", "lua", "sql", "elm"), _LOOKS_LIKE_DASH_DOC),
}
_BLOCK = re.compile(
    r"block|body|compound|concatenated|raw_text|_list$|^list|program|source|module|suite|document|clause|stream|declarations|statements|template|"
    r"fragment|section|element|array|object|mapping|table|pair|definition|namespace|export|wrapper|_item$|preproc|"
    r"chunk|decl|ERROR|arguments|hash|dictionary|tuple|record|struct|enum|initializer|stylesheet|rule_set|translation",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Problem:
    """Bytes and line of the original file."""

    check: str  # a key of CHECKS
    start_byte: int
    line: int
    detail: str


def check_file(source: SourceFile, chunked: ChunkedFile, *, max_chars: int) -> list[Problem]:
    """By place in the file; empty when nothing is wrong."""
    return sorted(_Checker(source, chunked, max_chars).problems(), key=lambda problem: problem.start_byte)


def check_rows(
    source: SourceFile, chunked: ChunkedFile, *, count_tokens: Callable[[str], int], max_tokens: int
) -> Iterator[Problem]:
    """What the model is given for each chunk of a file, in the order of the chunks."""
    lines = LineIndex(source.raw, source.encoding)
    texts = embedded_texts(source, chunked, count_tokens=count_tokens, max_tokens=max_tokens)
    masked = mask_secrets(decode(source.raw, source.encoding))
    end_byte = end = 0  # of the primary chunk before, in bytes and in characters
    for chunk, text in zip(chunked.chunks, texts, strict=True):
        line = lines.line_of(chunk.start_byte)
        if (most := max(map(count_tokens, text.rows), default=0)) > max_tokens:
            yield Problem("window", chunk.start_byte, line, f"{most} of {max_tokens} tokens")
        if chunk.role == "primary":
            start = end + len(decode(source.raw[end_byte : chunk.start_byte], source.encoding))
            end = start + len(decode(source.raw[chunk.start_byte : chunk.end_byte], source.encoding))
            end_byte = chunk.end_byte
            words = set(_WORD.findall(normalise(masked[start:end], source.language)))
            # The cells of a notebook are embedded without their JSON.
            if source.route != "notebook" and (lost := words.difference(*map(_WORD.findall, text.rows))):
                yield Problem("lost_words", chunk.start_byte, line, f"{len(lost)} words")


class _Checker:
    def __init__(self, source: SourceFile, chunked: ChunkedFile, max_chars: int) -> None:
        self._source, self._chunked, self._max_chars = source, chunked, max_chars
        self._primary = [chunk for chunk in chunked.chunks if chunk.role == "primary"]
        self._starts = [chunk.start_byte for chunk in self._primary]
        self._lines = LineIndex(source.raw, source.encoding)
        self._headers: list[tuple[int, int]] = []  # of declarations, in the parsed text
        self._prefixes: tuple[tuple[int, int], ...] = ()

    def problems(self) -> Iterator[Problem]:
        yield from self._tiling()
        for chunk in self._chunked.chunks:
            yield from self._coordinates(chunk)
        if self._chunked.parsed.fallback or self._source.route in ("markdown", "text"):
            return
        syntax = parse(self._source.text, self._source.language)
        if syntax.tree is not None:
            self._prefixes = syntax.prefixes
            self._headers = [(d.start_byte, d.body_byte) for d in syntax.parsed.definitions]
            yield from self._documentation(syntax)
            yield from self._cuts(syntax)

    def _problem(self, check: str, start_byte: int, detail: str) -> Problem:
        return Problem(check, start_byte, self._lines.line_of(start_byte), detail)

    def _text(self, start: int, end: int) -> str:
        return decode(self._source.raw[start:end], self._source.encoding)

    def _tiling(self) -> Iterator[Problem]:
        size = len(self._source.raw)
        first = self._source.offsets.to_raw(0)  # behind a byte order mark
        bounds = [(first, first), *((c.start_byte, c.end_byte) for c in self._primary), (size, size)]
        for (_, end), (start, _) in pairwise(bounds):
            if start < end:
                yield self._problem("overlap", start, f"{end - start} bytes")
            elif gap := self._text(end, start).strip():
                yield self._problem("uncovered", end, f"{len(gap)} characters")

    def _coordinates(self, chunk: Chunk) -> Iterator[Problem]:
        text = self._text(chunk.start_byte, chunk.end_byte)
        if not text.strip() or (chunk.role == "primary" and len(text) != len(text.strip("\t\n\v\f\r "))):
            yield self._problem("edges", chunk.start_byte, chunk.kind)
        if (chunk.start_line, chunk.end_line) != self._lines.lines_of(chunk.start_byte, chunk.end_byte):
            yield self._problem("lines", chunk.start_byte, f"lines {chunk.start_line}-{chunk.end_line}")
        if len(text) > self._max_chars and chunk.role != "outline" and chunk.kind not in _EXEMPT_KINDS:
            yield self._problem("ceiling", chunk.start_byte, f"{len(text)} characters")

    def _documentation(self, syntax: Syntax) -> Iterator[Problem]:
        """What stands directly above a declaration, or as a docstring begins its body, is in the chunk of its name.

        Seen twice: by the comments and attributes of the tree, and by how the lines above look. Not asked for where
        documentation and header are too large together.
        """
        to_raw, text = self._source.offsets.to_raw, self._source.text
        for definition in syntax.parsed.definitions:
            begin = _prefix_start(definition.head_byte, syntax.prefixes, text)
            begin = min(begin, _documented_from(begin, text, self._source.language))
            end = _docstring_end(definition, text, self._source.language)
            name = to_raw(definition.name_byte)
            if len(text[begin : max(end, definition.body_byte)].decode("utf-8", "replace")) > self._max_chars:
                continue
            if any(self._chunk_at(to_raw(place)) != self._chunk_at(name) for place in (begin, end - 1)):
                yield self._problem("orphaned_doc", to_raw(begin), f"{definition.kind} {definition.qualified_name}")

    def _chunk_at(self, offset: int) -> int:
        return bisect_right(self._starts, offset) - 1

    def _cuts(self, syntax: Syntax) -> Iterator[Problem]:
        assert syntax.tree is not None
        starts = {self._source.offsets.to_raw(start): start for start in self._text_starts(syntax)}
        for chunk in self._primary:
            start = starts.get(chunk.start_byte)
            if start is None:
                continue
            node = _token_at(syntax.tree.root_node, start)
            is_literal = node.start_byte < start and _LITERAL.search(node.type) is not None
            is_comment = "comment" in node.type  # `; like this`
            if not (is_literal or is_comment) and _CLOSER.match(self._text(chunk.start_byte, chunk.end_byte)):
                yield self._problem("detached_closer", chunk.start_byte, f"{chunk.kind}, at a {node.type}")
            yield from self._constructs(node, start, chunk, syntax)
            if self._source.route == "code":
                yield from self._opener_before(node, start, chunk)

    def _text_starts(self, syntax: Syntax) -> list[int]:
        """Offsets in the parsed text of where chunks begin."""
        if self._source.offsets.is_identity:
            return self._starts
        wanted = set(self._starts)
        return [at for at in range(len(self._source.text)) if self._source.offsets.to_raw(at) in wanted]

    def _constructs(self, node: Node, start: int, chunk: Chunk, syntax: Syntax) -> Iterator[Problem]:
        """The largest node around the cut that would have fit and is no mere list of others."""
        worst, worst_size = "", 0
        ancestor: Node | None = node
        while ancestor is not None and ancestor.parent is not None:
            size = self._size(ancestor, syntax)
            if size > self._max_chars:
                if _LITERAL.search(ancestor.type):
                    return  # parts of one text that is too large
                break
            is_cut = ancestor.start_byte < start < _end_before_comments(ancestor, syntax.prefixes, self._source.text)
            # What begins in the middle of a line cannot be a chunk without tearing that line.
            if is_cut and starts_line(self._source.text, ancestor.start_byte) and self._is_construct(ancestor, syntax):
                worst, worst_size = ancestor.type, size
            ancestor = ancestor.parent
        if worst:
            yield self._problem("cut_through", chunk.start_byte, f"{worst} of {worst_size} characters")

    def _opener_before(self, node: Node, start: int, chunk: Chunk) -> Iterator[Problem]:
        """`} finally {` at the end of the chunk before, for what begins this one."""
        text, before = self._source.text, self._primary[self._primary.index(chunk) - 1]
        is_definition = any(first == start for first, _ in self._headers)  # a chunk of its own
        if before is chunk or is_definition or not _OPENER.search(text[max(0, start - _OPENER_BYTES) : start].rstrip()):
            return
        unit = node
        while unit.parent is not None and (
            unit.start_byte >= start or text.startswith(b"{", unit.start_byte) or not starts_line(text, unit.start_byte)
        ):
            unit = unit.parent
        begin, to_raw = _prefix_start(unit.start_byte, self._prefixes, text), self._source.offsets.to_raw
        is_whole = unit.parent is None or to_raw(begin) <= before.start_byte
        if is_whole or _LITERAL.search(unit.type) or any(first <= begin <= head for first, head in self._headers):
            return
        size = len(self._text(to_raw(begin), chunk.end_byte))
        if size <= self._max_chars:
            yield self._problem("dangling_opener", before.end_byte - 1, f"{unit.type}, {size} characters together")

    def _size(self, node: Node, syntax: Syntax) -> int:
        """With comments above it and closers below; for what is above a declaration, up to where its body begins."""
        start, end, definitions = node.start_byte, node.end_byte, syntax.parsed.definitions
        if (own := syntax.node_definitions.get(node.id, -1)) >= 0:
            start, end = min(start, definitions[own].start_byte), max(end, definitions[own].end_byte)
        end = max([end, *(d.body_byte for d in definitions if d.start_byte <= start < d.head_byte)])
        if closers := _CLOSERS.match(self._source.text, end):
            end = closers.end()
        start = _prefix_start(start, syntax.prefixes, self._source.text)
        return len(self._source.text[start:end].decode("utf-8", "replace"))

    def _is_construct(self, node: Node, syntax: Syntax) -> bool:
        """Not a mere list of others, a container, or what is left of a definition that is too large."""
        definitions = syntax.parsed.definitions
        own = syntax.node_definitions.get(node.id, -1)
        if own >= 0 and definitions[own].kind in FUNCTION_KINDS:
            return True
        is_link = node.parent is not None and node.type == node.parent.type  # a :: b :: c
        if _BLOCK.search(node.type) or is_link:
            return False
        return not any(
            d.kind in FUNCTION_KINDS | CONTAINER_KINDS
            and (node.start_byte <= d.name_byte < node.end_byte or self._is_rest_of(node, d))
            for d in definitions
        )

    def _is_rest_of(self, node: Node, definition: Definition) -> bool:
        size = definition.end_byte - definition.start_byte
        return (
            size > self._max_chars
            and node.start_byte <= definition.body_byte < definition.end_byte <= node.end_byte + 2
        )


def _prefix_start(head: int, prefixes: tuple[tuple[int, int], ...], text: bytes) -> int:
    """Where what stands directly above a line begins; where the line itself does when nothing stands there."""
    begin = text.rfind(b"\n", 0, head) + 1
    begin += len(text[begin:head]) - len(text[begin:head].lstrip())
    position = bisect_right(prefixes, (begin, -1)) - 1
    while position >= 0:
        start, end = prefixes[position]
        between = text[end:begin]
        line = text[text.rfind(b"\n", 0, start) + 1 : start]
        newlines = between.count(b"\n") + text[start:end].endswith(b"\n")
        if end > begin or between.strip() or newlines > 1 or line.strip() or text.startswith(b"#!", start):
            break
        begin = start
        position -= 1
    return begin


def _documented_from(begin: int, text: bytes, language: str) -> int:
    """Where the lines above that look like documentation begin: what the grammar may have taken for something else."""
    line_start = text.rfind(b"\n", 0, begin) + 1
    if text[line_start:begin].strip():
        return begin
    above = _LOOKS_LIKE_DOC.get(language, _LOOKS_LIKE_C_DOC)
    while line_start:
        previous = text.rfind(b"\n", 0, line_start - 1) + 1
        line = text[previous : line_start - 1]
        if not above.match(line):
            break
        begin, line_start = previous + len(line) - len(line.lstrip()), previous
    return begin


def _docstring_end(definition: Definition, text: bytes, language: str) -> int:
    """Where the docstring ends, where the name does without one."""
    end = definition.name_byte + 1
    if language in ("python", "starlark") and definition.kind in FUNCTION_KINDS | CONTAINER_KINDS:
        match = _DOCSTRING.match(text, definition.body_byte, definition.end_byte)
        end = match.end() if match else end
    return end


def _end_before_comments(node: Node, prefixes: tuple[tuple[int, int], ...], text: bytes) -> int:
    """Some grammars count comments that follow to a node."""
    end = node.end_byte
    position = bisect_right(prefixes, (end, -1)) - 1
    while position >= 0 and prefixes[position][0] > node.start_byte:
        if text[prefixes[position][1] : end].strip():
            break
        end = prefixes[position][0]
        position -= 1
    return node.start_byte + len(text[node.start_byte : end].rstrip())


def _token_at(root: Node, offset: int) -> Node:
    return root.descendant_for_byte_range(offset, offset + 1) or root
