"""Opened indexes, kept between questions and reopened when a newer generation is published.

A published index is one file that appears by rename: its inode and time tell whether what is open is current.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from indexing import counters, segment_cache
from indexing.index_format import MANIFEST, OpenIndex, open_index

# A segment that was searched holds about 40 mapped files; the system's usual limit is 65,530 maps in a process.
MOST_SEGMENTS = 1_200

# Counted for each repository of each search: looking their labels up takes longer than counting.
_FOUND_OPEN, _OPENED = (counters.index_cache.labels(outcome) for outcome in ("open", "opened"))

_Stamp = tuple[int, int, int]
_cache: OrderedDict[Path, tuple[_Stamp, OpenIndex]] = OrderedDict()
_lock = threading.Lock()


def opened(directory: Path) -> OpenIndex:
    """The newest published generation. Raises DamagedIndex, UnsupportedFormat."""
    stamp = _stamp(directory)
    with _lock:
        held = _cache.get(directory)
        if held is not None and held[0] == stamp:
            _cache.move_to_end(directory)
            _FOUND_OPEN.inc()
            return held[1]
    index = segment_cache.open_index(directory) if segment_cache.enabled() else open_index(directory)
    _OPENED.inc()
    with _lock:
        _cache[directory] = (stamp, index)
        _cache.move_to_end(directory)
        while len(_cache) > 1 and sum(len(held.segments) for _, held in _cache.values()) > MOST_SEGMENTS:
            _cache.popitem(last=False)
    return index


def size() -> int:
    return len(_cache)


def _stamp(directory: Path) -> _Stamp:
    try:
        status = os.stat(f"{directory}/{MANIFEST}")
    except OSError:  # nothing there, or a volume that is away: said when it is opened
        return (0, 0, 0)
    return (status.st_ino, status.st_mtime_ns, status.st_size)
