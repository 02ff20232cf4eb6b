"""Writer of the on-disk index that `index_format` defines: segments part by part, then one manifest by rename.

A part is written once, synced and hashed; nothing that a manifest names is ever changed. A later generation adds
parts to a segment under new file names and publishes a manifest that points at them.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from indexing.errors import DamagedIndex, UnsupportedFormat
from indexing.index_format import (
    CHUNK_DTYPE,
    DEFINITION_DTYPE,
    FILE_DTYPE,
    MANIFEST,
    ROLES,
    SEGMENTS,
    FileRecord,
    Manifest,
    PartInfo,
    Postings,
    SegmentInfo,
    file_hash,
    read_manifest,
)
from indexing.quantizing import sign_bits
from indexing.tokenizing import term_hash

if TYPE_CHECKING:
    from indexing.chunking import ChunkedFile
    from indexing.parsing import Definition

RETIRED = "manifest.retired"
RETIRED_SECONDS = 120.0  # how long a search may go on with a generation after the next one is published
MAX_FREQUENCY = 255
MAX_DEFINITIONS_PER_CHUNK = 65_535


class PartWriter:
    """Writes the parts of one folder below `segments/`. `suffix` sets a later generation's files apart."""

    def __init__(self, directory: Path, *, folder: str, suffix: str = "") -> None:
        self.path = directory / SEGMENTS / folder
        self.path.mkdir(parents=True, exist_ok=True)
        self.parts: dict[str, PartInfo] = {}
        self._suffix = suffix

    def add(self, name: str, values: NDArray[Any]) -> None:  # Any: each part has its own dtype
        with self._file(name).open("xb") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(values), allow_pickle=False)
            _sync(file.fileno())
        self._register(name)

    def add_strings(self, name: str, texts: Iterable[str | bytes]) -> None:
        raws = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape") for text in texts]
        self.add(f"{name}.blob", np.frombuffer(b"".join(raws), dtype=np.uint8))
        self.add(f"{name}.starts", starts_of([len(raw) for raw in raws], np.uint64))

    def add_vectors(
        self, name: str, blocks: Iterable[NDArray[np.float16]], *, counts: Sequence[int], hashes: bytes, dimensions: int
    ) -> None:
        """One vector list: `blocks` give its rows in order, `counts` the rows of each owner, `hashes` 16 bytes a row.

        Raises ValueError when the blocks do not add up to as many rows as there are hashes.
        """
        prefix, rows = f"vectors.{name}", len(hashes) // 16
        floats = self._open(f"{prefix}.floats", np.float16, (rows, dimensions))
        bits = self._open(f"{prefix}.bits", np.uint64, (rows, -(-dimensions // 64)))
        done = 0
        for block in blocks:
            floats[done : done + len(block)] = block
            bits[done : done + len(block)] = sign_bits(block)
            done += len(block)
        if done != rows:
            raise ValueError(f"list {name} got {done} vectors for {rows} texts")
        self._close(f"{prefix}.floats", floats)
        self._close(f"{prefix}.bits", bits)
        self.add(f"{prefix}.starts", starts_of(counts, np.uint32))
        self.add(f"{prefix}.hashes", np.frombuffer(hashes, dtype=np.uint8).reshape(rows, 16))

    def _open(self, name: str, dtype: DTypeLike, shape: tuple[int, int]) -> NDArray[Any]:
        """Mapped, because a list may be larger than memory; the operating system maps no empty one."""
        if shape[0] == 0:
            return np.zeros(shape, dtype=dtype)
        return np.lib.format.open_memmap(self._file(name), mode="w+", dtype=dtype, shape=shape)

    def _close(self, name: str, values: NDArray[Any]) -> None:
        if isinstance(values, np.memmap):
            values.flush()
            self._register(name)
        else:
            self.add(name, values)

    def _register(self, name: str) -> None:
        path = self._file(name)
        self.parts[name] = PartInfo(file=path.name, bytes=path.stat().st_size, hash=file_hash(path))

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{self._suffix}.npy"

    def sync(self) -> None:
        sync_folder(self.path)


def starts_of(counts: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """(n,) counts -> (n + 1,) starts: owner i has rows starts[i] to starts[i + 1]."""
    starts = np.zeros(np.size(counts) + 1, dtype=dtype)
    np.cumsum(counts, out=starts[1:], dtype=dtype)
    return starts


class PostingsWriter:
    """Collects one term list row by row: about 13 bytes a posting until it is written."""

    def __init__(self) -> None:
        self._hashes = array("Q")
        self._freqs = array("B")
        self._per_row = array("I")
        self._lengths = array("I")

    def add(self, frequencies: Mapping[str, int]) -> None:
        """The next row's terms, each with how often it occurs."""
        self._hashes.extend(map(term_hash, frequencies))
        self._freqs.extend(min(count, MAX_FREQUENCY) for count in frequencies.values())
        self._per_row.append(len(frequencies))
        self._lengths.append(sum(frequencies.values()))

    def write(self, parts: PartWriter, name: str) -> None:
        per_row = np.frombuffer(self._per_row, dtype=np.uint32)
        write_postings(
            parts,
            name,
            hashes=np.frombuffer(self._hashes, dtype=np.uint64),
            rows=np.repeat(np.arange(len(per_row), dtype=np.uint32), per_row),
            freqs=np.frombuffer(self._freqs, dtype=np.uint8),
            lengths=np.frombuffer(self._lengths, dtype=np.uint32),
        )


def write_replaced_postings(
    parts: PartWriter, name: str, old: Postings, replaced: Mapping[int, Mapping[str, int]]
) -> None:
    """Term list `name` again, with other terms (each with how often it occurs) for the rows in `replaced`."""
    kept = ~np.isin(old.rows, np.fromiter(replaced, dtype=np.uint32))
    new = [(term_hash(term), row, count) for row, terms in replaced.items() for term, count in terms.items()]
    lengths = np.array(old.lengths)
    for row, terms in replaced.items():
        lengths[row] = sum(terms.values())
    write_postings(
        parts,
        name,
        hashes=np.concatenate([np.repeat(old.hashes, np.diff(old.starts))[kept], _column(new, 0, np.uint64)]),
        rows=np.concatenate([old.rows[kept], _column(new, 1, np.uint32)]),
        freqs=np.concatenate([old.freqs[kept], np.minimum(_column(new, 2, np.uint32), MAX_FREQUENCY)]),
        lengths=lengths,
    )


def _column(records: Sequence[tuple[int, int, int]], position: int, dtype: DTypeLike) -> NDArray[Any]:
    return np.array([record[position] for record in records], dtype=dtype)


def write_postings(
    parts: PartWriter,
    name: str,
    *,
    hashes: NDArray[np.uint64],
    rows: NDArray[np.uint32],
    freqs: NDArray[np.integer[Any]],
    lengths: NDArray[np.uint32],
) -> None:
    """hashes, rows, freqs: (postings,), in any order."""
    order = np.lexsort((rows, hashes))
    unique, counts = np.unique(hashes[order], return_counts=True)
    parts.add(f"terms.{name}.hashes", unique)
    parts.add(f"terms.{name}.starts", starts_of(counts, np.uint32))
    parts.add(f"terms.{name}.rows", rows[order])
    parts.add(f"terms.{name}.freqs", freqs[order].astype(np.uint8))
    parts.add(f"terms.{name}.lengths", lengths)


class _Names:
    """Text -> position in a table that grows as texts are met."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}

    def position(self, text: str) -> int:
        return self.positions.setdefault(text, len(self.positions))


class SegmentWriter:
    """Collects files in path order and writes the lexical parts of one segment."""

    def __init__(self, directory: Path, *, segment_id: str) -> None:
        self.id = segment_id
        self.parts = PartWriter(directory, folder=segment_id)
        self.terms = {name: PostingsWriter() for name in ("code_stems", "code_terms", "descriptions", "files")}
        self._paths: list[bytes] = []
        self._blobs: list[bytes] = []
        self._files: list[tuple[int, ...]] = []
        self._chunks: list[tuple[int, ...]] = []
        self._chunks_per_file: list[int] = []
        self._definitions: list[tuple[int, ...]] = []
        self._name_hashes: list[int] = []
        self._imports: list[int] = []
        self._imports_per_file: list[int] = []
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
            (
                file.lines,
                self._languages.position(file.language),
                self._encodings.position(file.encoding),
                file.flags,
            )
        )
        self._imports.extend(self._strings.position(name) for name in file.imports)
        self._imports_per_file.append(len(file.imports))
        first_chunk, first_definition = len(self._chunks), len(self._definitions)
        for chunk, content_hash in zip(chunked.chunks, content_hashes, strict=True):
            self._chunks.append(
                (
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
            )
        self._chunks_per_file.append(len(chunked.chunks))
        shown_by = _chunks_of_definitions(chunked)
        for position, definition in enumerate(chunked.parsed.definitions):
            self._add_definition(definition, first_chunk + shown_by[position], first_definition)

    def _add_definition(self, definition: Definition, chunk: int, first_definition: int) -> None:
        self._definitions.append(
            (
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
        )
        self._name_hashes.append(term_hash(definition.name.lower()))

    def finish(self) -> SegmentInfo:
        parts = self.parts
        width = len(self._blobs[0]) if self._blobs else 20  # bytes of a blob id: 20, or 32 with SHA-256
        parts.add_strings("paths", self._paths)
        parts.add("blobs", np.frombuffer(b"".join(self._blobs), dtype=np.uint8).reshape(self.files, width))
        parts.add("files", np.array(self._files, dtype=FILE_DTYPE))
        parts.add("file_chunks", starts_of(self._chunks_per_file, np.uint32))
        parts.add("imports.rows", np.array(self._imports, dtype=np.uint32))
        parts.add("imports.starts", starts_of(self._imports_per_file, np.uint32))
        parts.add("chunks", np.array(self._chunks, dtype=CHUNK_DTYPE))
        parts.add("definitions", np.array(self._definitions, dtype=DEFINITION_DTYPE))
        self._write_names()
        parts.add_strings("strings", self._strings.positions)
        for name, postings in self.terms.items():
            postings.write(parts, name)
        parts.sync()
        return SegmentInfo(
            id=self.id,
            files=self.files,
            chunks=self.chunks,
            languages=tuple(self._languages.positions),
            encodings=tuple(self._encodings.positions),
            kinds=tuple(self._kinds.positions),
            parts=dict(parts.parts),
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


def with_parts(segment: SegmentInfo, parts: Mapping[str, PartInfo]) -> SegmentInfo:
    """The segment as a later generation names it."""
    return replace(segment, parts={**segment.parts, **parts})


def new_folder_id(index_id: int) -> str:
    """Unlike any other attempt's, so that a second attempt never meets the files of a first."""
    return f"{index_id}-{uuid.uuid4().hex[:8]}"


def publish(directory: Path, manifest: Manifest) -> None:
    """Everything a search sees changes with one rename. The manifest before it is kept aside for `remove_unnamed`."""
    target = directory / MANIFEST
    name = uuid.uuid4().hex[:8]
    temporary, retired = directory / f"{MANIFEST}.{name}.tmp", directory / f"{RETIRED}.{name}.json"
    try:
        with temporary.open("x") as file:
            file.write(manifest.to_json())
            file.flush()
            _sync(file.fileno())
        if target.exists():
            os.link(target, retired)
        temporary.replace(target)
        if retired.exists():
            os.utime(retired)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(directory)


def remove_unnamed(directory: Path) -> None:
    """Delete files of segments that neither the manifest names nor one that was replaced a short while ago.

    The one before is kept in any case. Readers that mapped a file keep it. Does nothing while there is a manifest
    that cannot be read: what it names is not known.
    """
    manifest = usable_manifest(directory)
    if manifest is None and (directory / MANIFEST).exists():
        return
    named = manifest.file_names if manifest else set()
    for retired in retired_manifests(directory):
        named |= retired.file_names
    folders = {folder for folder, _ in named}
    for folder in (directory / SEGMENTS).glob("*"):
        if folder.name not in folders:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for file in folder.iterdir():
            if (folder.name, file.name) not in named:
                file.unlink(missing_ok=True)


def retired_manifests(directory: Path) -> Iterator[Manifest]:
    """Manifests that searches may still read from; older ones are forgotten."""
    files = sorted(directory.glob(f"{RETIRED}.*.json"), key=lambda file: file.stat().st_mtime)
    for position, file in enumerate(files, start=1):
        if position < len(files) and time.time() - file.stat().st_mtime > RETIRED_SECONDS:
            file.unlink(missing_ok=True)
            continue
        with suppress(FileNotFoundError, DamagedIndex, UnsupportedFormat):
            yield Manifest.from_json(file.read_text(), where=file)


def usable_manifest(directory: Path) -> Manifest | None:
    """The published manifest, or None when there is none or it cannot be used: a build replaces it then."""
    try:
        return read_manifest(directory)
    except (DamagedIndex, UnsupportedFormat):
        return None


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
