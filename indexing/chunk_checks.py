"""Chunks of one file -> what is wrong with them, found without a model: what a reviewer would send back.

    for problem in check_file(source, chunk_file(source), max_chars=1500):
        print(problem.check, problem.line, problem.detail)

The file is parsed once more and read with other eyes than the chunker's: comments and attributes directly above a
declaration, tokens that close something, constructs that a cut goes through. Details name node types and sizes,
never source text. Nothing is repaired here.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tree_sitter import Node

from indexing.offsets import LineIndex
from indexing.parsing import CONTAINER_KINDS, FUNCTION_KINDS, Definition, Syntax, parse
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
    "orphaned_doc": "documentation or an attribute in another chunk than its declaration",
    "detached_closer": "a chunk that begins with what closes something else",
    "cut_through": "a construct that was cut although it fits",
}
_EXEMPT_KINDS = frozenset({"endpoint"})  # whole whatever its size
_CLOSER = re.compile(r"[)}\]]|\*/|-->|</\w|[;,]\s|(?:end|endif|endforeach|endwhile|esac|fi|done)\b(?!\s*[(:=.\w])")
_CLOSERS = re.compile(rb"(?:\s*[)}\];,])*")
_LITERAL = re.compile(r"string|comment|heredoc|text|template|content|regex|raw|jsx_text|char|block_scalar|data")
_BLOCK = re.compile(
    r"block|body|raw_text|_list$|^list|program|source|module|suite|document|clause|stream|declarations|statements|template|"
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


class _Checker:
    def __init__(self, source: SourceFile, chunked: ChunkedFile, max_chars: int) -> None:
        self._source, self._chunked, self._max_chars = source, chunked, max_chars
        self._primary = [chunk for chunk in chunked.chunks if chunk.role == "primary"]
        self._starts = [chunk.start_byte for chunk in self._primary]
        self._lines = LineIndex(source.raw, source.encoding)

    def problems(self) -> Iterator[Problem]:
        yield from self._tiling()
        for chunk in self._chunked.chunks:
            yield from self._coordinates(chunk)
        if self._chunked.parsed.fallback or self._source.route in ("markdown", "text"):
            return
        syntax = parse(self._source.text, self._source.language)
        if syntax.tree is not None:
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
        """A run of comments and attributes directly above a declaration, without a blank line between."""
        to_raw, text = self._source.offsets.to_raw, self._source.text
        for definition in syntax.parsed.definitions:
            begin = _prefix_start(definition.head_byte, syntax.prefixes, text)
            size = len(text[begin : definition.name_byte].decode("utf-8", "replace"))
            is_parted = self._chunk_at(to_raw(begin)) != self._chunk_at(to_raw(definition.name_byte))
            if is_parted and size <= self._max_chars // 2:
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
            if not is_literal and _CLOSER.match(self._text(chunk.start_byte, chunk.end_byte)):
                yield self._problem("detached_closer", chunk.start_byte, f"{chunk.kind}, at a {node.type}")
            yield from self._constructs(node, start, chunk, syntax)

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
                break
            is_cut = ancestor.start_byte < start < _end_before_comments(ancestor, syntax.prefixes, self._source.text)
            if is_cut and self._is_construct(ancestor, syntax):
                worst, worst_size = ancestor.type, size
            ancestor = ancestor.parent
        if worst:
            yield self._problem("cut_through", chunk.start_byte, f"{worst} of {worst_size} characters")

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
        if _BLOCK.search(node.type):
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
