"""The indexes opened for one question, seen as one space of rows.

Chunk row = the segment's first row + the row inside the segment; file rows likewise. Everything after
this module works on such rows and NumPy arrays, always ascending; records are made only for what is shown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from indexing.index_format import ChunkRecord, DefinitionRecord, OpenIndex, Postings, Segment, VectorList
from indexing.tokenizing import term_hash
from search.wording import Name

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Source:
    """A repository that the asking person may read, with its opened index."""

    repository_id: int
    name: str
    golden: bool
    index: OpenIndex
    comparable: bool = True  # False: its vectors are not compared, such as those of another model


@dataclass(frozen=True, slots=True)
class Part:
    """One segment and where its rows begin."""

    source: Source
    segment: Segment
    first_chunk: int
    first_file: int


class Corpus:
    """Read-only view over the segments of some sources."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)
        parts: list[Part] = []
        chunks = files = 0
        for source in sources:
            for segment in source.index.segments:
                parts.append(Part(source, segment, chunks, files))
                chunks += segment.info.chunks
                files += segment.info.files
        self.parts = tuple(parts)
        self.chunk_count = chunks
        self.file_count = files
        self._vectors: dict[str, list[tuple[Part, VectorList]]] = {}
        self._chunk_edges = [part.first_chunk for part in parts]
        self._file_edges = [part.first_file for part in parts]

    def postings(self, name: str) -> list[Postings]:
        """One term list of every segment, in row order. Every published segment has all term lists."""
        return [postings for part in self.parts if (postings := part.segment.postings(name)) is not None]

    def vectors(self, name: str) -> list[tuple[Part, VectorList]]:
        """Segments without vectors yet, or with those of another model, are left out."""
        if name not in self._vectors:
            found = ((part, part.segment.vectors(name)) for part in self.parts if part.source.comparable)
            self._vectors[name] = [(part, vectors) for part, vectors in found if vectors is not None]
        return self._vectors[name]

    @cached_property
    def live_files(self) -> npt.NDArray[np.bool_] | None:
        """(files,) False for files that were deleted or replaced; None when all are live."""
        if all(part.segment.live_files is None for part in self.parts):
            return None
        live = np.ones(self.file_count, bool)
        for part in self.parts:
            if part.segment.live_files is not None:
                live[part.first_file : part.first_file + part.segment.info.files] = part.segment.live_files
        return live

    def allowed(self, path_filter: bytes, languages: Collection[str] = ()) -> npt.NDArray[np.bool_] | None:
        """(chunks,) False for deleted chunks and those outside the folder or the languages; None: all are allowed."""
        if not path_filter and not languages and all(part.segment.live_chunks is None for part in self.parts):
            return None
        allowed = np.zeros(self.chunk_count, bool)
        for part in self.parts:
            inside = part.segment.chunks_in(path_filter) if path_filter else range(part.segment.info.chunks)
            window = slice(part.first_chunk + inside.start, part.first_chunk + inside.stop)
            live = part.segment.live_chunks
            allowed[window] = True if live is None else live[inside.start : inside.stop]
            if languages:
                written = part.segment.chunks_written_in(languages)
                allowed[window] &= written[inside.start : inside.stop]
        return allowed

    def part_of_chunk(self, row: int) -> Part:
        return self.parts[bisect_right(self._chunk_edges, row) - 1]

    def part_of_file(self, row: int) -> Part:
        return self.parts[bisect_right(self._file_edges, row) - 1]

    def files_of(self, chunk_rows: Rows) -> Rows:
        """The file row of each chunk row."""
        return self._gather(
            chunk_rows, lambda part, local: part.segment.chunks["file"][local] + np.int64(part.first_file)
        )

    def chunk_sources(self, chunk_rows: Rows) -> Rows:
        """The position in `sources` of each chunk row's repository."""
        places = {source.repository_id: place for place, source in enumerate(self.sources)}
        return self._gather(chunk_rows, lambda part, _: np.int64(places[part.source.repository_id]))

    def chunk_field(self, chunk_rows: Rows, field: str) -> Rows:
        """A field of CHUNK_DTYPE for each chunk row, as int64. Kinds and strings are per segment: not for those."""
        return self._gather(chunk_rows, lambda part, local: part.segment.chunks[field][local])

    def chunk_ranges(self, file_rows: Rows) -> tuple[Rows, Rows]:
        """(first chunk row, number of chunks) of each file."""
        starts, counts = np.zeros(len(file_rows), np.int64), np.zeros(len(file_rows), np.int64)
        for part, mine in self._by_part(file_rows, self._file_edges):
            local = file_rows[mine] - part.first_file
            edges = part.segment.file_chunks
            starts[mine] = edges[local]
            counts[mine] = edges[local + 1]
            counts[mine] -= starts[mine]
            starts[mine] += part.first_chunk
        return starts, counts

    def path(self, file_row: int) -> bytes:
        part = self.part_of_file(file_row)
        return part.segment.paths.raw(file_row - part.first_file)

    def paths(self, file_rows: Rows) -> list[bytes]:
        found: list[bytes] = []
        for part, mine in self._by_part(file_rows, self._file_edges):
            found += part.segment.paths.raws(file_rows[mine] - part.first_file)
        return found

    def symbols(self, chunk_rows: Rows) -> list[bytes]:
        """The canonical name of each chunk row, empty for those without."""
        found: list[bytes] = []
        for part, mine in self._by_part(chunk_rows, self._chunk_edges):
            rows = part.segment.chunks["symbol"][chunk_rows[mine] - part.first_chunk]
            found += part.segment.strings.raws(rows.astype(np.int64))
        return found

    def file_flags(self, file_rows: Rows) -> Rows:
        """The flags of each file row: FileFlag values, added."""
        flags = np.zeros(len(file_rows), np.int64)
        for part, mine in self._by_part(file_rows, self._file_edges):
            flags[mine] = part.segment.files["flags"][file_rows[mine] - part.first_file]
        return flags

    def definitions(self, name: Name) -> Iterator[tuple[int, DefinitionRecord]]:
        """What is called so, in any case of letters, with its chunk row; deleted ones too."""
        for part in self.parts:
            for spelling in name.spellings:
                for row in part.segment.definitions_named(term_hash(spelling.lower())):
                    definition = part.segment.definition(int(row))
                    yield part.first_chunk + definition.chunk, definition

    def record(self, chunk_row: int) -> tuple[Source, ChunkRecord]:
        part = self.part_of_chunk(chunk_row)
        return part.source, part.segment.chunk(chunk_row - part.first_chunk)

    def _gather(self, rows: Rows, read: Callable[[Part, Rows], npt.NDArray[np.integer] | np.integer]) -> Rows:
        result = np.zeros(len(rows), np.int64)
        for part, mine in self._by_part(rows, self._chunk_edges):
            result[mine] = read(part, rows[mine] - part.first_chunk)
        return result

    def _by_part(self, rows: Rows, edges: Sequence[int]) -> Iterator[tuple[Part, slice]]:
        """Each part that has some of the rows, with their positions."""
        ends = [*rows.searchsorted(edges[1:]).tolist(), len(rows)]
        first = 0
        for part, end in zip(self.parts, ends, strict=False):
            if first < end:
                yield part, slice(first, end)
            first = end


def ranges(starts: Rows, counts: Rows) -> Rows:
    """starts[0], starts[0] + 1, ... `counts[0]` of them, then those of starts[1], and so on."""
    before = counts.cumsum() - counts
    return (starts - before).repeat(counts) + np.arange(int(counts.sum()))
