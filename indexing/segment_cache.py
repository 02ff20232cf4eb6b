"""Copies of published index files on the local disk, for machines that read them from a shared volume.

In: a repository's folder on the volume. Out: an `OpenIndex` whose arrays are mapped from copies below
SEGMENT_CACHE_DIR. A copy is named by the SHA-256 that the manifest states, which is compared while it is copied, so it
is never taken for another file; it appears by rename, and what is mapped stays readable when it is removed. Beyond
SEGMENT_CACHE_MAX_MB those used longest ago go. While the volume is away, what was copied is opened as it was last seen.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from django.conf import settings

from indexing import counters
from indexing.errors import DamagedIndex
from indexing.index_format import MANIFEST, Manifest, OpenIndex, PartFolder, PartInfo, read_manifest

UNFINISHED = ".new"
UNFINISHED_SECONDS = 3600.0  # whatever is older was left by a process that died
KEPT_SHARE = 0.9  # of the limit, once it was reached
LOOK_SHARE = 0.02  # of the limit that a process copies between two looks at the whole folder
COPY_BYTES = 1 << 20

log = logging.getLogger(__name__)
_locks = [threading.Lock() for _ in range(64)]  # one thread of a process copies a file, the others wait for it
_copied_bytes = float("inf")  # since this process looked; the first copy looks


def enabled() -> bool:
    return bool(settings.SEGMENT_CACHE_DIR)


def folder() -> Path:
    return Path(settings.SEGMENT_CACHE_DIR)


def volume_is_away() -> bool:
    """Whether the folder of all indexes is missing, unreadable, or empty as a mount point without its volume is."""
    try:
        with os.scandir(Path(settings.DATA_DIR) / "indexes") as entries:
            return next(entries, None) is None
    except OSError:
        return True


def open_index(directory: Path) -> OpenIndex:
    """Everything it has is copied first. Raises DamagedIndex (also when nothing is there), UnsupportedFormat."""
    index = OpenIndex(directory, _manifest(directory))
    for part_folder in index.folders():
        for name in part_folder.parts:
            _map(part_folder, name)
    return index


def _manifest(directory: Path) -> Manifest:
    copy = folder() / "manifests" / hashlib.sha256(os.fsencode(directory)).hexdigest()
    away = volume_is_away()
    manifest = read_manifest(copy if away else directory)
    if manifest is None:
        raise DamagedIndex(f"there is no index in {directory}; index the repository first")
    if not away:
        with suppress(OSError):  # said when the files are copied
            copy.mkdir(parents=True, exist_ok=True)
            unfinished = copy / f"{uuid.uuid4().hex}{UNFINISHED}"
            unfinished.write_text(manifest.to_json())
            unfinished.replace(copy / MANIFEST)
    return manifest


def _map(part_folder: PartFolder, name: str) -> None:
    """From the copy; from the volume when the local disk takes none. Raises DamagedIndex."""
    part = part_folder.parts[name]
    source = part_folder.path / part.file
    for _ in range(2):
        try:
            part_folder.map(name, _copy(source, part))
        except FileNotFoundError:  # another process made room in between
            continue
        return
    part_folder.map(name, source)


def _copy(source: Path, part: PartInfo) -> Path:
    """Where the copy is, made when it is missing; `source` when the local disk is full. Raises DamagedIndex."""
    place = folder() / "parts" / part.hash[:2] / part.hash
    with _locks[hash(part.hash) % len(_locks)]:
        if _is_there(place, part):
            counters.segment_cache.labels("found").inc()
            return place
        unfinished = place.with_name(f"{part.hash}.{uuid.uuid4().hex}{UNFINISHED}")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            digest = _write(unfinished, source)
            if digest == part.hash:
                unfinished.replace(place)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            if not _readable(source):
                raise DamagedIndex(f"{source} cannot be read; index the repository again") from error
            log.warning("index files are read from the volume, because the local disk took none: %s", error)
            counters.segment_cache.labels("failed").inc()
            return source
        if digest != part.hash:
            unfinished.unlink(missing_ok=True)
            raise DamagedIndex(f"{source} has a wrong checksum; index the repository again")
    counters.segment_cache.labels("copied").inc()
    _make_room(part.bytes)
    return place


def _is_there(place: Path, part: PartInfo) -> bool:
    try:
        if place.stat().st_size != part.bytes:
            return False
        os.utime(place)  # used just now
    except OSError:
        return False
    return True


def _readable(source: Path) -> bool:
    try:
        with source.open("rb") as file:
            file.read(1)
    except OSError:
        return False
    return True


def _write(target: Path, source: Path) -> str:
    """The SHA-256 of what was written, which is on disk when this returns."""
    digest = hashlib.sha256()
    with source.open("rb") as read, target.open("xb") as write:
        while block := read.read(COPY_BYTES):
            digest.update(block)
            write.write(block)
        write.flush()
        os.fsync(write.fileno())
    return digest.hexdigest()


def _make_room(added_bytes: int) -> None:
    """Several processes may do this at once: a file that is gone already is nobody's loss."""
    global _copied_bytes
    limit = settings.SEGMENT_CACHE_MAX_MB * 1_000_000
    _copied_bytes += added_bytes
    if _copied_bytes < LOOK_SHARE * limit:
        return
    _copied_bytes = 0.0
    copies = sorted(_copies())
    total = sum(size for _, size, _ in copies)
    if total <= limit:
        return
    for _, size, path in copies:
        if total <= KEPT_SHARE * limit:
            return
        Path(path).unlink(missing_ok=True)
        total -= size


def _copies() -> Iterator[tuple[float, int, str]]:
    """(used at, bytes, path) of each; removes what dead processes left."""
    for group in (folder() / "parts").iterdir():
        for entry in os.scandir(group):
            with suppress(FileNotFoundError):
                status = entry.stat()
                if not entry.name.endswith(UNFINISHED):
                    yield status.st_mtime, status.st_size, entry.path
                elif status.st_mtime < time.time() - UNFINISHED_SECONDS:
                    Path(entry.path).unlink(missing_ok=True)
