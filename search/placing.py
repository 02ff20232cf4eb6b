"""Paths and lines that somebody named -> the indexed chunks that are there.

Only files of the index are found: what was left out of it, such as a file of secrets, stays out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from indexing.index_format import ChunkRecord, Segment
from search.corpus import Source
from search.results import Hit
from search.stack_traces import Frame

MAX_PLACED = 5

# File names that say nothing without their folder.
_COMMON_NAMES = frozenset(b"__init__.py index.js index.ts main.go main.rs mod.rs lib.rs main.py Program.cs".split())


@dataclass(frozen=True, slots=True)
class FoundFile:
    source: Source
    segment: Segment
    row: int  # of the file, in the segment

    def chunk_at(self, line: int, symbol: str = "") -> ChunkRecord | None:
        """The smallest chunk that has the line; one of that symbol wins, because lines move between commits."""
        edges = self.segment.file_chunks
        chunks = [self.segment.chunk(row) for row in range(int(edges[self.row]), int(edges[self.row + 1]))]
        named = [chunk for chunk in chunks if symbol and chunk.symbol.rsplit(".", 1)[-1] == symbol]
        here = [chunk for chunk in chunks if chunk.start_line <= line <= chunk.end_line]
        both = [chunk for chunk in named if chunk in here]
        return min(both or named or here, key=_length, default=None)

    def chunks_at(self, lines: Sequence[int]) -> list[ChunkRecord | None]:
        """`chunk_at` for many lines, ascending: looked up one by one, those of a long file take minutes."""
        edges = self.segment.file_chunks
        chunks = [self.segment.chunk(row) for row in range(int(edges[self.row]), int(edges[self.row + 1]))]
        smallest: list[ChunkRecord | None] = [None] * len(lines)
        chunks.reverse()  # of equals the first one in the file stays, as in `chunk_at`
        for chunk in sorted(chunks, key=_length, reverse=True):
            first, last = bisect_left(lines, chunk.start_line), bisect_right(lines, chunk.end_line)
            smallest[first:last] = [chunk] * (last - first)
        return smallest


def _length(chunk: ChunkRecord) -> int:
    return chunk.end_line - chunk.start_line


def file_at(source: Source, path: bytes) -> FoundFile | None:
    for segment in source.index.segments:
        for row in segment.live_file_rows(segment.files_under(path)):
            if segment.paths.raw(row) == path:
                return FoundFile(source, segment, row)
    return None


def place_frames(sources: Sequence[Source], frames: Sequence[Frame]) -> list[Hit]:
    """The code that the frames are in, in their order, at most MAX_PLACED; frames of other code are left out."""
    names = {frame.path.rsplit("/", 1)[-1].encode() for frame in frames}
    files = list(_files_named(sources, names))
    hits: dict[tuple[int, bytes, int], Hit] = {}
    for frame in frames:
        if (found := _best_match(files, frame.path.encode())) is None:
            continue
        if (chunk := found.chunk_at(frame.line, frame.symbol)) is not None:
            hit = hit_of(found.source, chunk, score=1.0, leg="frames")
            hits.setdefault((hit.repository_id, hit.path, hit.start_byte), hit)
    return list(hits.values())[:MAX_PLACED]


def _files_named(sources: Sequence[Source], names: set[bytes]) -> Iterator[tuple[bytes, FoundFile]]:
    for source in sources:
        for segment in source.index.segments:
            for row in segment.live_file_rows():
                path = segment.paths.raw(row)
                if path.rpartition(b"/")[2] in names:
                    yield path, FoundFile(source, segment, row)


def _best_match(files: Sequence[tuple[bytes, FoundFile]], wanted: bytes) -> FoundFile | None:
    """The file that shares the longest end of the path; a mere file name must be telling and there once only."""
    shared = [(_shared_segments(path, wanted), found) for path, found in files]
    most = max((count for count, _ in shared), default=0)
    best = [found for count, found in shared if count == most]
    if most == 0 or (most == 1 and (len(best) > 1 or wanted.rpartition(b"/")[2] in _COMMON_NAMES)):
        return None
    return best[0]


def _shared_segments(path: bytes, wanted: bytes) -> int:
    count = 0
    for own, other in zip(reversed(path.split(b"/")), reversed(wanted.split(b"/")), strict=False):
        if own != other:
            break
        count += 1
    return count


def hit_of(source: Source, chunk: ChunkRecord, *, score: float, leg: str) -> Hit:
    return Hit(
        repository_id=source.repository_id,
        repository=source.name,
        commit=source.index.manifest.commit,
        path=chunk.path,
        blob_id=chunk.blob_id,
        encoding=chunk.encoding,
        language=chunk.language,
        kind=chunk.kind,
        symbol=chunk.symbol,
        start_byte=chunk.start_byte,
        end_byte=chunk.end_byte,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        score=score,
        legs={leg: 1.0},
        description=chunk.description,
    )
