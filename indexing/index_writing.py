"""Writer of the on-disk index that `index_format` defines: segments part by part, then one manifest by rename.

A part is written once, synced and hashed; nothing that a manifest names is ever changed. A later generation adds
parts to a segment under new file names and publishes a manifest that points at them.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from indexing.array_files import ArrayFile, StartsFile, StringsFile
from indexing.errors import DamagedIndex, UnsupportedFormat
from indexing.index_format import (
    MANIFEST,
    SEGMENTS,
    Manifest,
    PartInfo,
    SegmentInfo,
    file_hash,
    read_manifest,
)
from indexing.quantizing import sign_bits

if TYPE_CHECKING:
    pass

RETIRED = "manifest.retired"
RETIRED_SECONDS = 120.0  # how long a search may go on with a generation after the next one is published


class PartWriter:
    """Writes the parts of one folder below `segments/`. `suffix` sets a later generation's files apart.

    What `open`, `open_starts` and `open_strings` return is filled piece by piece; `sync` closes it.
    """

    def __init__(self, directory: Path, *, folder: str, suffix: str = "") -> None:
        self.path = directory / SEGMENTS / folder
        self.path.mkdir(parents=True, exist_ok=True)
        self.parts: dict[str, PartInfo] = {}
        self._suffix = suffix
        self._open: dict[str, ArrayFile | StartsFile] = {}

    def add(self, name: str, values: NDArray[Any]) -> None:  # Any: each part has its own dtype
        with self._file(name).open("xb") as file:
            np.lib.format.write_array(file, np.ascontiguousarray(values), allow_pickle=False)
            _sync(file.fileno())
        self._register(name)

    def add_strings(self, name: str, texts: Iterable[str | bytes]) -> None:
        raws = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape") for text in texts]
        self.add(f"{name}.blob", np.frombuffer(b"".join(raws), dtype=np.uint8))
        self.add(f"{name}.starts", starts_of([len(raw) for raw in raws], np.uint64))

    def open(self, name: str, dtype: DTypeLike, *, row_shape: tuple[int, ...] = ()) -> ArrayFile:
        self._open[name] = file = ArrayFile(self._file(name), dtype, row_shape=row_shape)
        return file

    def open_starts(self, name: str, dtype: DTypeLike = np.uint32) -> StartsFile:
        self._open[name] = file = StartsFile(self._file(name), dtype)
        return file

    def open_strings(self, name: str) -> StringsFile:
        return StringsFile(self.open(f"{name}.blob", np.uint8), self.open_starts(f"{name}.starts", np.uint64))

    def _register(self, name: str) -> None:
        path = self._file(name)
        self.parts[name] = PartInfo(file=path.name, bytes=path.stat().st_size, hash=file_hash(path))

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{self._suffix}.npy"

    def sync(self) -> None:
        for name, file in self._open.items():
            file.close()
            self._register(name)
        self._open = {}
        sync_folder(self.path)


class VectorListWriter:
    """One vector list, owner by owner; complete when its `PartWriter` is synced."""

    def __init__(self, parts: PartWriter, name: str, *, dimensions: int) -> None:
        self._dimensions = dimensions
        self._floats = parts.open(f"vectors.{name}.floats", np.float16, row_shape=(dimensions,))
        self._bits = parts.open(f"vectors.{name}.bits", np.uint64, row_shape=(-(-dimensions // 64),))
        self._starts = parts.open_starts(f"vectors.{name}.starts")
        self._hashes = parts.open(f"vectors.{name}.hashes", np.uint8, row_shape=(16,))

    def append(self, counts: ArrayLike, hashes: bytes, floats: Iterable[NDArray[np.float16]]) -> None:
        """The next owners: rows of each, 16 bytes a row, and the vectors of those rows in blocks.

        Raises ValueError when the blocks do not add up to as many rows as there are hashes.
        """
        before = self._floats.rows
        for block in floats:
            self._floats.append(block)
            self._bits.append(sign_bits(block))
        if (self._floats.rows - before) * 16 != len(hashes):
            raise ValueError(f"{self._floats.rows - before} vectors for {len(hashes) // 16} texts")
        self._starts.append(counts)
        self._hashes.append(np.frombuffer(hashes, dtype=np.uint8))


def starts_of(counts: ArrayLike, dtype: DTypeLike) -> NDArray[Any]:
    """(n,) counts -> (n + 1,) starts: owner i has rows starts[i] to starts[i + 1]."""
    starts = np.zeros(np.size(counts) + 1, dtype=dtype)
    np.cumsum(counts, out=starts[1:], dtype=dtype)
    return starts


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
