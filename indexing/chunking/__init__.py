"""Cut one source file into chunks: route it to the chunker made for it, then turn text offsets into raw coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexing.parsing import ParsedFile

if TYPE_CHECKING:
    from indexing.walking import SourceFile


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
    raise NotImplementedError
