"""Cut one source file into chunks: route it to the chunker made for it, then turn text offsets into raw coordinates.

The chunkers work on the UTF-8 text and know nothing of encodings or line numbers; both are added here and only here.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from django.conf import settings

from indexing.chunking import code, config, embedded, lines, markdown, notebook, openapi
from indexing.chunking.spans import Sizes, Span, Text
from indexing.offsets import LineIndex
from indexing.parsing import ParsedFile, Syntax, located, parse

if TYPE_CHECKING:
    from indexing.walking import SourceFile

_ROLE_ORDER = {"primary": 0, "outline": 1, "window": 2}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Coordinates in the original blob: bytes 0-based and end-exclusive, lines 1-based and inclusive.

    Primary chunks tile the non-blank bytes of the file; an outline cites a class header and stands for the whole
    class; a window overlaps primary chunks.
    """

    role: str  # primary, outline, window
    kind: str  # function, method, class, outline, block, section, endpoint, statement, lines, imports ...
    symbol: str  # canonical: package.Class.method, "Install > From source", "GET /users/{id}"; "" when nothing fits
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int
    defines: tuple[int, ...] = ()  # definitions that start inside this chunk


@dataclass(frozen=True, slots=True)
class ChunkedFile:
    chunks: tuple[Chunk, ...]  # by start, primary first
    parsed: ParsedFile


def chunk_file(source: SourceFile) -> ChunkedFile:
    """Never raises for bad input: what cannot be parsed is cut by lines and `parsed.fallback` says why."""
    text, sizes = Text(source.text), _sizes()
    spans, parsed = _route(text, source.route, source.language, sizes)
    line_index = LineIndex(source.raw, source.encoding)
    parsed = located(parsed, source.offsets, line_index)
    starts = [definition.start_byte for definition in parsed.definitions]
    spans.sort(key=lambda span: (span.start, _ROLE_ORDER[span.role], span.end))
    return ChunkedFile(tuple(_locate(span, source, line_index, starts) for span in spans), parsed)


def _sizes() -> Sizes:
    return Sizes(
        target_chars=settings.CHUNK_TARGET_CHARS,
        max_chars=settings.CHUNK_MAX_CHARS,
        lines=settings.LINE_CHUNK_LINES,
        overlap_lines=settings.LINE_CHUNK_OVERLAP,
    )


def _route(text: Text, route: str, language: str, sizes: Sizes) -> tuple[list[Span], ParsedFile]:
    if route == "markdown" or language in markdown.LANGUAGES:
        return markdown.chunk(text, language, sizes), ParsedFile()
    if route == "text":
        return lines.chunk(text, sizes), ParsedFile()
    syntax = parse(text.data, language)
    if syntax.tree is None:
        return lines.chunk(text, sizes), syntax.parsed
    if route == "openapi" and (spans := openapi.chunk(text, syntax, language, sizes)):
        return spans, _without_definitions(syntax)
    if route == "notebook" and (spans := notebook.chunk(text, syntax, sizes)):
        return spans, _without_definitions(syntax)
    if route in ("config", "notebook", "openapi"):
        return config.chunk(text, syntax, language, sizes), syntax.parsed
    if language in embedded.LANGUAGES:
        return embedded.chunk(text, syntax, sizes)
    return code.chunk(text, syntax, sizes), syntax.parsed


def _without_definitions(syntax: Syntax) -> ParsedFile:
    return replace(syntax.parsed, definitions=())


def _locate(span: Span, source: SourceFile, line_index: LineIndex, definition_starts: list[int]) -> Chunk:
    start, end = source.offsets.to_raw(span.start), source.offsets.to_raw(span.end)
    first_line, last_line = line_index.lines_of(start, end)
    defines = range(bisect_left(definition_starts, start), bisect_left(definition_starts, end))
    return Chunk(span.role, span.kind, span.symbol, start, end, first_line, last_line, tuple(defines))
