"""Several segments -> one without deleted rows, so that there are few of them: arrays are copied and renumbered.

Nothing is parsed or embedded. Every row number of a segment refers inside one file's rows or to a small table, so a
file's rows move together: what refers to a chunk or a definition is shifted by how far its file moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexing.index_format import SEGMENTS, TERM_LISTS, VECTOR_LISTS, Segment, SegmentInfo
from indexing.index_writing import PartWriter, starts_of, write_postings

MAX_SEGMENTS = 8
GROWTH = 2  # a segment joins a merge while it is at most so many times as large as those before it together
DEAD_SHARE = 1 / 3  # a segment with more deleted rows is written anew
BLOCK_ROWS = 8_192

Rows = NDArray[np.int64]


def compact(directory: Path, segments: Sequence[SegmentInfo], *, segment_id: str) -> list[SegmentInfo]:
    """The segments, or fewer that hold the same live rows. Raises DamagedIndex: damage must not be copied."""
    chosen = to_merge(segments)
    if not chosen:
        return list(segments)
    readers = [Segment(directory / SEGMENTS / info.id, info) for info in chosen]
    for reader in readers:
        reader.check_hashes()
    return [*(info for info in segments if info not in chosen), merge(directory, readers, segment_id=segment_id)]


def to_merge(segments: Sequence[SegmentInfo]) -> list[SegmentInfo]:
    """Which segments to replace by one, none when there are few enough and none has many deleted rows.

    The smallest ones, and larger ones only while they are not much larger: a row is copied about as often as the
    logarithm of the number of rows.
    """
    decayed = [segment for segment in segments if segment.dead_chunks > DEAD_SHARE * segment.chunks]
    if len(segments) <= MAX_SEGMENTS:
        return decayed
    by_size = sorted(segments, key=lambda segment: (segment.live_chunks, segment.id))
    chosen = by_size[: 2 + len(segments) - 1 - MAX_SEGMENTS]
    for segment in by_size[len(chosen) :]:
        if segment.live_chunks > GROWTH * sum(smaller.live_chunks for smaller in chosen):
            break
        chosen.append(segment)
    return chosen + [segment for segment in decayed if segment not in chosen]


def merge(directory: Path, segments: Sequence[Segment], *, segment_id: str) -> SegmentInfo:
    """Writes one segment with the live rows of all of them, whose live paths differ. Raises DamagedIndex.

    Every segment has all its vector lists.
    """
    return _Merge(directory, segments, segment_id).run()


@dataclass(frozen=True, slots=True)
class _Moved:
    """Rows of one kind, grouped by file: where each file's rows were (in its segment) and are now.

    All arrays have one entry per file of the merged segment.
    """

    old_first: Rows
    new_first: Rows
    counts: Rows

    @classmethod
    def of(cls, old_first: Rows, counts: Rows) -> _Moved:
        return cls(old_first, starts_of(counts, np.int64)[:-1], counts)

    @property
    def shift(self) -> Rows:
        """(rows,) what to add to an old row number found in each row."""
        return np.repeat(self.new_first - self.old_first, self.counts)


class _Merge:
    def __init__(self, directory: Path, segments: Sequence[Segment], segment_id: str) -> None:
        self.segments = segments
        self.id = segment_id
        self.parts = PartWriter(directory, folder=segment_id)
        found = [
            (segment.paths.raw(row), number, row)
            for number, segment in enumerate(segments)
            for row in segment.live_file_rows()
        ]
        found.sort()
        self.paths = [path for path, _, _ in found]
        self.owner: Rows = np.array([number for _, number, _ in found], dtype=np.int64)  # (files,) segment of each
        self.row: Rows = np.array([row for _, _, row in found], dtype=np.int64)  # (files,) its file row there
        self.chunks = self._moved(lambda segment: segment.file_chunks.astype(np.int64))
        self.definitions = self._moved(_definition_starts)
        self.languages = _Table(segments, lambda segment: segment.info.languages)
        self.encodings = _Table(segments, lambda segment: segment.info.encodings)
        self.kinds = _Table(segments, lambda segment: segment.info.kinds)
        self.strings = _Strings(segments)

    def run(self) -> SegmentInfo:
        self._write_files()
        self._write_chunks()
        self._write_definitions()
        for name in TERM_LISTS:
            self._write_terms(name)
        for name in VECTOR_LISTS:
            self._write_vectors(name)
        self._write_descriptions()
        self.parts.add_strings("strings", self.strings.raws)
        self.parts.sync()
        return SegmentInfo(
            id=self.id,
            files=len(self.paths),
            chunks=int(self.chunks.counts.sum()),
            languages=self.languages.values,
            encodings=self.encodings.values,
            kinds=self.kinds.values,
            parts=dict(self.parts.parts),
            embedded=sum(segment.info.embedded for segment in self.segments),
            described=sum(segment.info.described for segment in self.segments),
        )

    def _moved(self, starts_in: Callable[[Segment], Rows]) -> _Moved:
        old_first, counts = np.zeros(len(self.paths), np.int64), np.zeros(len(self.paths), np.int64)
        for number, segment in enumerate(self.segments):
            mine, starts = self.owner == number, starts_in(segment)
            old_first[mine] = starts[self.row[mine]]
            counts[mine] = starts[self.row[mine] + 1] - starts[self.row[mine]]
        return _Moved.of(old_first, counts)

    def _gather(self, read: Callable[[Segment], NDArray[Any]], moved: _Moved | None = None) -> NDArray[Any]:
        """Rows of a table in their new order: file rows, or the rows that `moved` describes."""
        owner, rows = self.owner, self.row
        if moved is not None:
            owner, rows = np.repeat(owner, moved.counts), _ranges(moved.old_first, moved.counts)
        tables = [read(segment) for segment in self.segments]
        result = np.empty((len(rows), *tables[0].shape[1:]), dtype=tables[0].dtype)
        for number, table in enumerate(tables):
            mine = owner == number
            result[mine] = table[rows[mine]]
        return result

    def _write_files(self) -> None:
        files = self._gather(lambda segment: segment.files)
        files["language"] = self.languages.renumbered(files["language"], self.owner)
        files["encoding"] = self.encodings.renumbered(files["encoding"], self.owner)
        imports = self._moved(lambda segment: segment.array("imports.starts").astype(np.int64))
        names = self._gather(lambda segment: segment.array("imports.rows"), imports)
        self.parts.add_strings("paths", self.paths)
        self.parts.add("blobs", self._gather(lambda segment: segment.array("blobs")))
        self.parts.add("files", files)
        self.parts.add("file_chunks", starts_of(self.chunks.counts, np.uint32))
        self.parts.add("imports.rows", self.strings.renumbered(names, np.repeat(self.owner, imports.counts)))
        self.parts.add("imports.starts", starts_of(imports.counts, np.uint32))

    def _write_chunks(self) -> None:
        chunks = self._gather(lambda segment: segment.chunks, self.chunks)
        owner = np.repeat(self.owner, self.chunks.counts)
        shift = np.repeat(self.definitions.new_first - self.definitions.old_first, self.chunks.counts)
        chunks["file"] = np.repeat(np.arange(len(self.paths)), self.chunks.counts)
        chunks["symbol"] = self.strings.renumbered(chunks["symbol"], owner)
        chunks["kind"] = self.kinds.renumbered(chunks["kind"], owner)
        chunks["first_definition"] = chunks["first_definition"] + shift
        self.parts.add("chunks", chunks)

    def _write_definitions(self) -> None:
        definitions = self._gather(lambda segment: segment.definitions, self.definitions)
        owner = np.repeat(self.owner, self.definitions.counts)
        chunk_shift = np.repeat(self.chunks.new_first - self.chunks.old_first, self.definitions.counts)
        parents = definitions["parent"].astype(np.int64)
        definitions["name"] = self.strings.renumbered(definitions["name"], owner)
        definitions["qualified_name"] = self.strings.renumbered(definitions["qualified_name"], owner)
        definitions["kind"] = self.kinds.renumbered(definitions["kind"], owner)
        definitions["chunk"] = definitions["chunk"] + chunk_shift
        definitions["parent"] = np.where(parents < 0, -1, parents + self.definitions.shift)
        hashes = self._gather(_name_hashes, self.definitions)
        order = np.argsort(hashes, kind="stable")
        self.parts.add("definitions", definitions)
        self.parts.add("names.hashes", hashes[order])
        self.parts.add("names.rows", order.astype(np.uint32))

    def _owners(self, name: str) -> _Moved | None:
        """Rows of the lists over files are files, of the others chunks."""
        return None if name == "files" else self.chunks

    def _write_terms(self, name: str) -> None:
        hashes, rows, freqs = [], [], []
        for number, segment in enumerate(self.segments):
            postings = segment.postings(name)
            assert postings is not None
            places = self._new_rows(number, len(postings.lengths), self._owners(name))[postings.rows]
            live = places >= 0
            hashes.append(np.repeat(postings.hashes, np.diff(postings.starts))[live])
            rows.append(places[live].astype(np.uint32))
            freqs.append(postings.freqs[live])
        write_postings(
            self.parts,
            name,
            hashes=np.concatenate(hashes),
            rows=np.concatenate(rows),
            freqs=np.concatenate(freqs),
            lengths=self._gather(lambda segment: segment.array(f"terms.{name}.lengths"), self._owners(name)),
        )

    def _new_rows(self, number: int, rows: int, moved: _Moved | None) -> Rows:
        """(rows,) where each row of one segment is now, -1 when it is left out."""
        places = np.full(rows, -1, dtype=np.int64)
        mine = self.owner == number
        if moved is None:
            places[self.row[mine]] = np.flatnonzero(mine)
        else:
            counts = moved.counts[mine]
            places[_ranges(moved.old_first[mine], counts)] = _ranges(moved.new_first[mine], counts)
        return places

    def _write_vectors(self, name: str) -> None:
        owners, rows = self.owner, self.row
        if name != "files":
            owners = np.repeat(self.owner, self.chunks.counts)
            rows = _ranges(self.chunks.old_first, self.chunks.counts)
        starts, counts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for number, segment in enumerate(self.segments):
            mine, old = owners == number, segment.array(f"vectors.{name}.starts").astype(np.int64)
            starts[mine], counts[mine] = old[rows[mine]], old[rows[mine] + 1] - old[rows[mine]]
        segment_of_vector, vector_rows = np.repeat(owners, counts), _ranges(starts, counts)
        hashes = self._picked(f"vectors.{name}.hashes", segment_of_vector, vector_rows)
        first = self.segments[0].array(f"vectors.{name}.floats")
        self.parts.add_vectors(
            name,
            self._blocks(f"vectors.{name}.floats", segment_of_vector, vector_rows),
            counts=counts.tolist(),
            hashes=hashes.tobytes(),
            dimensions=first.shape[1],
        )

    def _blocks(self, part: str, owners: Rows, rows: Rows) -> Iterator[NDArray[Any]]:
        """A few thousand rows at a time: the vectors of a large segment need not fit in memory."""
        for start in range(0, len(rows), BLOCK_ROWS):
            window = slice(start, start + BLOCK_ROWS)
            yield self._picked(part, owners[window], rows[window])

    def _picked(self, part: str, owners: Rows, rows: Rows) -> NDArray[Any]:
        tables = [segment.array(part) for segment in self.segments]
        result = np.empty((len(rows), *tables[0].shape[1:]), dtype=tables[0].dtype)
        for number, table in enumerate(tables):
            mine = owners == number
            result[mine] = table[rows[mine]]
        return result

    def _write_descriptions(self) -> None:
        if all(segment.descriptions is None for segment in self.segments):
            return
        owners = np.repeat(self.owner, self.chunks.counts)
        rows = _ranges(self.chunks.old_first, self.chunks.counts)
        tables = [segment.descriptions for segment in self.segments]
        self.parts.add_strings(
            "descriptions",
            (
                b"" if (table := tables[number]) is None else table.raw(int(row))
                for number, row in zip(owners, rows, strict=True)
            ),
        )


class _Table:
    """A small table of every segment (languages, encodings, kinds) as one."""

    def __init__(self, segments: Sequence[Segment], read: Callable[[Segment], tuple[str, ...]]) -> None:
        positions: dict[str, int] = {}
        self._maps = [
            np.array([positions.setdefault(value, len(positions)) for value in read(segment)] or [0], dtype=np.int64)
            for segment in segments
        ]
        self.values = tuple(positions)

    def renumbered(self, positions: NDArray[Any], owners: Rows) -> Rows:
        """positions: (n,) in the table of the segments `owners` (n,)."""
        return _through(self._maps, positions, owners, np.int64)


class _Strings:
    """The string tables of every segment as one; strings that nothing refers to any more are left out."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._tables = [segment.strings for segment in segments]
        self._positions: dict[bytes, int] = {}

    @property
    def raws(self) -> list[bytes]:
        return list(self._positions)

    def renumbered(self, rows: NDArray[Any], owners: Rows) -> NDArray[Any]:
        maps = []
        for number, table in enumerate(self._tables):
            known = np.zeros(max(len(table), 1), dtype=np.int64)
            for row in np.unique(rows[owners == number]):
                known[row] = self._positions.setdefault(table.raw(int(row)), len(self._positions))
            maps.append(known)
        return _through(maps, rows, owners, np.uint32)


def _through(maps: Sequence[Rows], rows: NDArray[Any], owners: Rows, dtype: DTypeLike) -> NDArray[Any]:
    result = np.zeros(len(rows), dtype=dtype)
    for number, new in enumerate(maps):
        mine = owners == number
        result[mine] = new[rows[mine]]
    return result


def _ranges(starts: Rows, counts: Rows) -> Rows:
    """starts, counts: (n,) -> the rows starts[i] to starts[i] + counts[i] of every i, one after the other."""
    first = starts_of(counts, np.int64)
    return np.repeat(starts - first[:-1], counts) + np.arange(int(first[-1]), dtype=np.int64)


def _definition_starts(segment: Segment) -> Rows:
    """(files + 1,) first definition of each file: definitions are in the order of their files."""
    files = segment.chunks["file"][segment.definitions["chunk"]] if len(segment.definitions) else np.zeros(0, np.int64)
    return starts_of(np.bincount(files, minlength=segment.info.files), np.int64)


def _name_hashes(segment: Segment) -> NDArray[np.uint64]:
    """(definitions,)"""
    hashes = np.zeros(len(segment.definitions), dtype=np.uint64)
    hashes[segment.array("names.rows")] = segment.array("names.hashes")
    return hashes
