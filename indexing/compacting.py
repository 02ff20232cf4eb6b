"""Several segments -> one without deleted rows, so that there are few of them: arrays are copied and renumbered.

Nothing is parsed or embedded. Every row number of a segment refers inside one file's rows or to a small table, so a
file's rows move together: what refers to a chunk or a definition is shifted by how far its file moved. Tables are
copied some thousand rows at a time and mapped pages are given back, so that memory holds a few numbers a file only.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from indexing.index_format import (
    CHUNK_DTYPE,
    DEFINITION_DTYPE,
    FILE_DTYPE,
    SEGMENTS,
    TERM_LISTS,
    VECTOR_LISTS,
    Segment,
    SegmentInfo,
)
from indexing.index_writing import PartWriter, VectorListWriter, starts_of
from indexing.postings import GONE, MovedPostings, hash_slices, merge_postings

MAX_SEGMENTS = 8
GROWTH = 2  # a segment joins a merge while it is at most so many times as large as those before it together
DEAD_SHARE = 1 / 3  # a segment with more deleted rows is written anew
BLOCK_ROWS = 4_096  # chunks that are copied at once

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

    Either every segment has its vector lists or none has.
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

    def part(self, files: slice) -> _Moved:
        """Of a range of files."""
        return _Moved(self.old_first[files], self.new_first[files], self.counts[files])

    @property
    def shift(self) -> Rows:
        """(files,) what to add to a row number that points into the file's rows."""
        return self.new_first - self.old_first

    @property
    def rows(self) -> Rows:
        """(rows,) where each was."""
        return _ranges(self.old_first, self.counts)


class _Merge:
    def __init__(self, directory: Path, segments: Sequence[Segment], segment_id: str) -> None:
        self.segments = segments
        self.id = segment_id
        self.parts = PartWriter(directory, folder=segment_id)
        self.owner, self.row = self._write_paths()  # (files,) segment of each file, and its row there
        self.chunks = self._moved(lambda segment: segment.file_chunks.astype(np.int64))
        self.definitions = self._moved(_definition_starts)
        self.imports = self._moved(lambda segment: segment.array("imports.starts").astype(np.int64))
        self.languages = _Table(segments, lambda segment: segment.info.languages)
        self.encodings = _Table(segments, lambda segment: segment.info.encodings)
        self.kinds = _Table(segments, lambda segment: segment.info.kinds)
        self.strings = _Strings(segments, self._release)
        self._release()

    def run(self) -> SegmentInfo:
        self._write_files()
        self._write_chunks()
        self._write_definitions()
        self._write_names()
        for name in TERM_LISTS:
            self._write_terms(name)
        if all(segment.vectors(VECTOR_LISTS[0]) is not None for segment in self.segments):
            for name in VECTOR_LISTS:
                self._write_vectors(name)
        self._write_descriptions()
        self.strings.write(self.parts)
        self.parts.sync()
        return SegmentInfo(
            id=self.id,
            files=len(self.owner),
            chunks=int(self.chunks.counts.sum()),
            languages=self.languages.values,
            encodings=self.encodings.values,
            kinds=self.kinds.values,
            parts=dict(self.parts.parts),
            embedded=sum(segment.info.embedded for segment in self.segments),
            described=sum(segment.info.described for segment in self.segments),
            cut_by_lines=self._cut_by_lines(),
        )

    def _cut_by_lines(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, list[int]] = {}
        for number, segment in enumerate(self.segments):
            mine = np.flatnonzero(self.owner == number)
            for why, rows in segment.info.cut_by_lines.items():
                found.setdefault(why, []).extend(mine[np.isin(self.row[mine], rows)].tolist())
        return {why: tuple(sorted(rows)) for why, rows in found.items() if rows}

    def _write_paths(self) -> tuple[Rows, Rows]:
        owners, rows = array("q"), array("q")

        def in_order() -> Iterator[bytes]:
            for path, number, row in heapq.merge(*(_paths(number, one) for number, one in enumerate(self.segments))):
                owners.append(number)
                rows.append(row)
                yield path

        paths = self.parts.open_strings("paths")
        remaining = in_order()
        while block := list(islice(remaining, BLOCK_ROWS)):
            paths.append(block)
        return np.array(owners, dtype=np.int64), np.array(rows, dtype=np.int64)

    def _moved(self, starts_in: Callable[[Segment], Rows]) -> _Moved:
        old_first, counts = np.zeros(len(self.owner), np.int64), np.zeros(len(self.owner), np.int64)
        for number, segment in enumerate(self.segments):
            mine, starts = self.owner == number, starts_in(segment)
            old_first[mine] = starts[self.row[mine]]
            counts[mine] = starts[self.row[mine] + 1] - starts[self.row[mine]]
        return _Moved.of(old_first, counts)

    def _release(self) -> None:
        for segment in self.segments:
            segment.release()

    def _blocks(self) -> Iterator[slice]:
        """Ranges of files with about BLOCK_ROWS chunks; the pages that a block needed are given back after it."""
        ends = np.cumsum(self.chunks.counts + 1)
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, before + BLOCK_ROWS, side="right")))
            yield slice(first, last)
            self._release()
            first = last

    def _gather(self, name: str, files: slice, moved: _Moved | None = None) -> NDArray[Any]:
        """Rows of a table in their new order: those of these files, or the rows that `moved` describes."""
        if moved is None:
            return self._picked(name, self.owner[files], self.row[files])
        part = moved.part(files)
        return self._picked(name, np.repeat(self.owner[files], part.counts), part.rows)

    def _picked(self, name: str, owners: Rows, rows: Rows) -> NDArray[Any]:
        first = self.segments[0].array(name)
        result = np.empty((len(rows), *first.shape[1:]), dtype=first.dtype)
        for number in np.unique(owners).tolist():
            mine = owners == number
            result[mine] = self.segments[number].array(name)[rows[mine]]
        return result

    def _write_files(self) -> None:
        self.parts.add("file_chunks", starts_of(self.chunks.counts, np.uint32))
        self.parts.add("imports.starts", starts_of(self.imports.counts, np.uint32))
        width = self.segments[0].array("blobs").shape[1]
        blobs = self.parts.open("blobs", np.uint8, row_shape=(width,))
        files, imports = self.parts.open("files", FILE_DTYPE), self.parts.open("imports.rows", np.uint32)
        for block in self._blocks():
            table = self._gather("files", block)
            table["language"] = self.languages.renumbered(table["language"], self.owner[block])
            table["encoding"] = self.encodings.renumbered(table["encoding"], self.owner[block])
            files.append(table)
            blobs.append(self._gather("blobs", block))
            names = self._gather("imports.rows", block, self.imports)
            owner = np.repeat(self.owner[block], self.imports.counts[block])
            imports.append(self.strings.renumbered(names, owner))

    def _write_chunks(self) -> None:
        file = self.parts.open("chunks", CHUNK_DTYPE)
        for block in self._blocks():
            chunks, counts = self._gather("chunks", block, self.chunks), self.chunks.counts[block]
            owner = np.repeat(self.owner[block], counts)
            chunks["file"] = np.repeat(np.arange(block.start, block.stop), counts)
            chunks["symbol"] = self.strings.renumbered(chunks["symbol"], owner)
            chunks["kind"] = self.kinds.renumbered(chunks["kind"], owner)
            chunks["first_definition"] += np.repeat(self.definitions.shift[block], counts).astype(np.uint32)
            file.append(chunks)

    def _write_definitions(self) -> None:
        file = self.parts.open("definitions", DEFINITION_DTYPE)
        for block in self._blocks():
            definitions, counts = self._gather("definitions", block, self.definitions), self.definitions.counts[block]
            owner = np.repeat(self.owner[block], counts)
            parents = definitions["parent"].astype(np.int64)
            definitions["name"] = self.strings.renumbered(definitions["name"], owner)
            definitions["qualified_name"] = self.strings.renumbered(definitions["qualified_name"], owner)
            definitions["kind"] = self.kinds.renumbered(definitions["kind"], owner)
            definitions["chunk"] += np.repeat(self.chunks.shift[block], counts).astype(np.uint32)
            shifted = parents + np.repeat(self.definitions.shift[block], counts)
            definitions["parent"] = np.where(parents < 0, -1, shifted)
            file.append(definitions)

    def _write_names(self) -> None:
        hash_file, row_file = self.parts.open("names.hashes", np.uint64), self.parts.open("names.rows", np.uint32)
        places = [
            self._new_rows(number, len(one.definitions), self.definitions) for number, one in enumerate(self.segments)
        ]
        tables = [segment.array("names.hashes") for segment in self.segments]
        for windows in hash_slices(tables, sum(map(len, tables))):
            hashes = np.concatenate([table[window] for table, window in zip(tables, windows, strict=True)])
            rows = np.concatenate(
                [
                    places[number][segment.array("names.rows")[windows[number]]]
                    for number, segment in enumerate(self.segments)
                ]
            )
            hashes, rows = hashes[rows != GONE], rows[rows != GONE]
            order = np.lexsort((rows, hashes))
            hash_file.append(hashes[order])
            row_file.append(rows[order])
            self._release()

    def _owners(self, name: str) -> _Moved | None:
        """Rows of the lists over files are files, of the others chunks."""
        return None if name == "files" else self.chunks

    def _write_terms(self, name: str) -> None:
        moved = self._owners(name)
        sources = []
        for number, segment in enumerate(self.segments):
            postings = segment.postings(name)
            assert postings is not None
            sources.append(MovedPostings(postings, self._new_rows(number, len(postings.lengths), moved)))
        lengths = (self._gather(f"terms.{name}.lengths", block, moved) for block in self._blocks())
        merge_postings(self.parts, name, sources, lengths, self._release)

    def _new_rows(self, number: int, rows: int, moved: _Moved | None) -> Rows:
        """(rows,) where each row of one segment is now, GONE when it is left out."""
        places = np.full(rows, GONE, dtype=np.int64)
        mine = self.owner == number
        if moved is None:
            places[self.row[mine]] = np.flatnonzero(mine)
        else:
            counts = moved.counts[mine]
            places[_ranges(moved.old_first[mine], counts)] = _ranges(moved.new_first[mine], counts)
        return places

    def _write_vectors(self, name: str) -> None:
        dimensions = self.segments[0].array(f"vectors.{name}.floats").shape[1]
        writer = VectorListWriter(self.parts, name, dimensions=dimensions)
        for block in self._blocks():
            owners, rows = self.owner[block], self.row[block]
            if name != "files":
                part = self.chunks.part(block)
                owners, rows = np.repeat(owners, part.counts), part.rows
            starts = self._picked(f"vectors.{name}.starts", owners, rows).astype(np.int64)
            counts = self._picked(f"vectors.{name}.starts", owners, rows + 1).astype(np.int64) - starts
            owners, rows = np.repeat(owners, counts), _ranges(starts, counts)
            hashes = self._picked(f"vectors.{name}.hashes", owners, rows)
            writer.append(counts, hashes.tobytes(), [self._picked(f"vectors.{name}.floats", owners, rows)])

    def _write_descriptions(self) -> None:
        if all(segment.descriptions is None for segment in self.segments):
            return
        file = self.parts.open_strings("descriptions")
        tables = [segment.descriptions for segment in self.segments]
        for block in self._blocks():
            part = self.chunks.part(block)
            owners = np.repeat(self.owner[block], part.counts)
            file.append(
                b"" if (table := tables[number]) is None else table.raw(int(row))
                for number, row in zip(owners.tolist(), part.rows.tolist(), strict=True)
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
    """The string tables of every segment, one after the other, without strings of deleted files.

    A string that two segments have is kept twice: knowing that would take all of them in memory.
    """

    def __init__(self, segments: Sequence[Segment], release: Callable[[], None]) -> None:
        self._segments = segments
        self._release = release
        self._used = [_used_strings(segment) for segment in segments]
        self._maps: list[NDArray[np.uint32]] = []
        first = 0
        for used in self._used:
            self._maps.append((np.cumsum(used) + (first - 1)).astype(np.uint32))
            first += int(np.count_nonzero(used))

    def renumbered(self, rows: NDArray[Any], owners: Rows) -> NDArray[Any]:
        return _through(self._maps, rows, owners, np.uint32)

    def write(self, parts: PartWriter) -> None:
        file = parts.open_strings("strings")
        for segment, used in zip(self._segments, self._used, strict=True):
            table = segment.strings
            for first in range(0, len(table), BLOCK_ROWS):
                kept = used[first : first + BLOCK_ROWS]
                starts = table.starts[first : first + len(kept) + 1].astype(np.int64)
                lengths = np.diff(starts)
                blob = table.blob[starts[0] : starts[-1]][np.repeat(kept, lengths)]
                file.append_joined(blob, lengths[kept])
                self._release()


def _used_strings(segment: Segment) -> NDArray[np.bool_]:
    """(strings,) whether a live file refers to it."""
    live_files, live_chunks = segment.live_files, segment.live_chunks
    used = np.ones(len(segment.strings), dtype=np.bool_)
    if live_files is None or live_chunks is None:
        return used
    used[:] = False
    imports = np.repeat(live_files, np.diff(segment.array("imports.starts")))
    used[segment.array("imports.rows")[imports]] = True
    used[segment.chunks["symbol"][live_chunks]] = True
    definitions = segment.definitions[live_chunks[segment.definitions["chunk"]]]
    used[definitions["name"]] = True
    used[definitions["qualified_name"]] = True
    return used


def _through(maps: Sequence[NDArray[Any]], rows: NDArray[Any], owners: Rows, dtype: DTypeLike) -> NDArray[Any]:
    result = np.zeros(len(rows), dtype=dtype)
    for number in np.unique(owners).tolist():
        mine = owners == number
        result[mine] = maps[number][rows[mine]]
    return result


def _ranges(starts: Rows, counts: Rows) -> Rows:
    """starts, counts: (n,) -> the rows starts[i] to starts[i] + counts[i] of every i, one after the other."""
    first = starts_of(counts, np.int64)
    return np.repeat(starts - first[:-1], counts) + np.arange(int(first[-1]), dtype=np.int64)


def _paths(number: int, segment: Segment) -> Iterator[tuple[bytes, int, int]]:
    return ((segment.paths.raw(row), number, row) for row in segment.live_file_rows())


def _definition_starts(segment: Segment) -> Rows:
    """(files + 1,) first definition of each file: definitions are in the order of their files."""
    counts = np.zeros(segment.info.files, dtype=np.int64)
    for first in range(0, len(segment.definitions), BLOCK_ROWS):
        files = segment.chunks["file"][segment.definitions["chunk"][first : first + BLOCK_ROWS]]
        counts += np.bincount(files, minlength=segment.info.files)
    return starts_of(counts, np.int64)
