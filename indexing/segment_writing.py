"""Chunked files in path order -> one segment that can be searched by words.

Tables grow as packed as they are on disk, so that a segment takes little more memory than its files. Refuses paths
out of order.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from indexing.index_format import CHUNK_DTYPE, DEFINITION_DTYPE, FILE_DTYPE, ROLES, FileRecord, SegmentInfo
from indexing.index_writing import PartWriter, starts_of
from indexing.postings import SegmentTerms
from indexing.tokenizing import term_hash

if TYPE_CHECKING:
    from indexing.chunking import ChunkedFile
    from indexing.parsing import Definition

MAX_DEFINITIONS_PER_CHUNK = 65_535


class _Names:
    """Text -> position in a table that grows as texts are met."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}

    def position(self, text: str) -> int:
        return self.positions.setdefault(text, len(self.positions))


class _Records:
    """A table that grows row by row, packed as it is on disk."""

    def __init__(self, dtype: np.dtype[Any], layout: str) -> None:
        self._dtype = dtype
        self._packed = struct.Struct(layout)
        self._bytes = bytearray()
        assert self._packed.size == dtype.itemsize

    def __len__(self) -> int:
        return len(self._bytes) // self._packed.size

    def append(self, *values: int) -> None:
        self._bytes += self._packed.pack(*values)

    @property
    def array(self) -> NDArray[Any]:
        return np.frombuffer(self._bytes, dtype=self._dtype)


class SegmentWriter:
    """Collects files in path order, with their terms in `terms`, and writes the lexical parts of one segment."""

    def __init__(self, directory: Path, *, segment_id: str) -> None:
        self.id = segment_id
        self.parts = PartWriter(directory, folder=segment_id)
        self.terms = SegmentTerms()
        self._paths: list[bytes] = []
        self._blobs: list[bytes] = []
        self._files = _Records(FILE_DTYPE, "<IHBB")
        self._chunks = _Records(CHUNK_DTYPE, "<Q7IHBB")
        self._chunks_per_file = array("I")
        self._definitions = _Records(DEFINITION_DTYPE, "<8IiB")
        self._name_hashes = array("Q")
        self._imports = array("I")
        self._imports_per_file = array("I")
        self._cut_by_lines: dict[str, list[int]] = {}
        self._languages, self._encodings, self._kinds, self._strings = _Names(), _Names(), _Names(), _Names()

    @property
    def files(self) -> int:
        return len(self._files)

    @property
    def chunks(self) -> int:
        return len(self._chunks)

    def add_file(self, file: FileRecord, chunked: ChunkedFile, content_hashes: Sequence[int]) -> None:
        """Raises ValueError when the path does not come after the one before it. Terms are added beside this."""
        if self._paths and file.path <= self._paths[-1]:
            raise ValueError(f"path {file.path!r} does not come after {self._paths[-1]!r}")
        self._paths.append(file.path)
        self._blobs.append(bytes.fromhex(file.blob_id))
        self._files.append(
            file.lines,
            self._languages.position(file.language),
            self._encodings.position(file.encoding),
            file.flags,
        )
        if chunked.parsed.fallback:
            self._cut_by_lines.setdefault(chunked.parsed.fallback, []).append(len(self._files) - 1)
        self._imports.extend(self._strings.position(name) for name in file.imports)
        self._imports_per_file.append(len(file.imports))
        first_chunk, first_definition = len(self._chunks), len(self._definitions)
        for chunk, content_hash in zip(chunked.chunks, content_hashes, strict=True):
            self._chunks.append(
                content_hash,
                len(self._files) - 1,
                chunk.start_byte,
                chunk.end_byte,
                chunk.start_line,
                chunk.end_line,
                self._strings.position(chunk.symbol),
                first_definition + min(chunk.defines, default=0),
                min(_span(chunk.defines), MAX_DEFINITIONS_PER_CHUNK),
                ROLES.index(chunk.role),
                self._kinds.position(chunk.kind),
            )
        self._chunks_per_file.append(len(chunked.chunks))
        shown_by = _chunks_of_definitions(chunked)
        for position, definition in enumerate(chunked.parsed.definitions):
            self._add_definition(definition, first_chunk + shown_by[position], first_definition)

    def _add_definition(self, definition: Definition, chunk: int, first_definition: int) -> None:
        self._definitions.append(
            self._strings.position(definition.name),
            self._strings.position(definition.qualified_name),
            chunk,
            definition.start_byte,
            definition.end_byte,
            definition.name_byte,
            definition.start_line,
            definition.end_line,
            first_definition + definition.parent if definition.parent >= 0 else -1,
            self._kinds.position(definition.kind),
        )
        self._name_hashes.append(term_hash(definition.name.lower()))

    def finish(self) -> SegmentInfo:
        parts = self.parts
        width = len(self._blobs[0]) if self._blobs else 20  # bytes of a blob id: 20, or 32 with SHA-256
        parts.add_strings("paths", self._paths)
        parts.add("blobs", np.frombuffer(b"".join(self._blobs), dtype=np.uint8).reshape(self.files, width))
        parts.add("files", self._files.array)
        parts.add("file_chunks", starts_of(self._chunks_per_file, np.uint32))
        parts.add("imports.rows", np.array(self._imports, dtype=np.uint32))
        parts.add("imports.starts", starts_of(self._imports_per_file, np.uint32))
        parts.add("chunks", self._chunks.array)
        parts.add("definitions", self._definitions.array)
        self._write_names()
        parts.add_strings("strings", self._strings.positions)
        self.terms.write(parts)
        parts.sync()
        return SegmentInfo(
            id=self.id,
            files=self.files,
            chunks=self.chunks,
            languages=tuple(self._languages.positions),
            encodings=tuple(self._encodings.positions),
            kinds=tuple(self._kinds.positions),
            parts=dict(parts.parts),
            cut_by_lines={why: tuple(rows) for why, rows in self._cut_by_lines.items()},
        )

    def _write_names(self) -> None:
        hashes = np.array(self._name_hashes, dtype=np.uint64)
        order = np.argsort(hashes, kind="stable")
        self.parts.add("names.hashes", hashes[order])
        self.parts.add("names.rows", order.astype(np.uint32))


def _span(positions: Sequence[int]) -> int:
    return max(positions) - min(positions) + 1 if positions else 0


def _chunks_of_definitions(chunked: ChunkedFile) -> list[int]:
    """For each definition the chunk that shows it best: named after it, else the first that has its start."""
    shown_by = [-1] * len(chunked.parsed.definitions)
    for row, chunk in enumerate(chunked.chunks):
        for position in chunk.defines:
            if shown_by[position] < 0:
                shown_by[position] = row
    by_symbol = {chunk.symbol: row for row, chunk in reversed(list(enumerate(chunked.chunks)))}
    fallback = max(len(chunked.chunks) - 1, 0)
    for position, definition in enumerate(chunked.parsed.definitions):
        named = by_symbol.get(definition.qualified_name)
        if (
            named is not None
            and chunked.chunks[named].start_byte <= definition.name_byte < chunked.chunks[named].end_byte
        ):
            shown_by[position] = named
        elif shown_by[position] < 0:
            shown_by[position] = _holding(chunked, definition.name_byte, fallback)
    return shown_by


def _holding(chunked: ChunkedFile, byte: int, fallback: int) -> int:
    for row, chunk in enumerate(chunked.chunks):
        if chunk.start_byte <= byte < chunk.end_byte:
            return row
    return fallback
