"""Ranges of a large tree -> segments, by this process and by one beside it, because parsing keeps one core busy.

In: the files of a commit in Git's order. Out: what `collect` gives, as ranges are finished. Both processes read and
write for themselves; only what was found goes through a pipe. When the one beside ends early, whatever the reason, this
one does its range and the rest, and knows which file was being parsed.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Self

from django.conf import settings

from indexing.collecting import Collected, OnEntry, collect
from indexing.errors import IndexingError
from indexing.git import TreeEntry
from indexing.suspects import NOTE, Suspects
from indexing.vector_cache import PARTIAL
from indexing.walking import SkippedEntry, walk

RANGE_BYTES = 4_000_000  # about 7,000 chunks
FIRST_RANGE_BYTES = 1_500_000  # so that a large repository can be searched after seconds
LARGEST_COUNTED_BYTES = 100_000  # of a file: larger ones are often pictures, which are not read
FILE_BYTES = 500  # what a file costs beside its bytes
WORKER = (sys.executable, "-m", "indexing.segmenting")
POLL_SECONDS = 0.5

_PIPE_ERRORS = (OSError, EOFError, pickle.UnpicklingError)

log = logging.getLogger(__name__)

_Range = list[TreeEntry]


@dataclass(frozen=True, slots=True)
class Tree:
    """What has to be known to read files of a commit and to write their segments."""

    mirror_path: Path
    commit: str
    max_file_bytes: int
    chosen: str
    directory: Path
    index_id: int


@dataclass(slots=True)
class Done:
    """What one range gave: its files that are not indexed, and how many files it has."""

    collected: Collected
    skipped: list[SkippedEntry] = field(default_factory=list)
    files: int = 0


def ranges(entries: Iterable[TreeEntry]) -> Iterator[_Range]:
    held: _Range = []
    size, limit = 0, FIRST_RANGE_BYTES
    for entry in entries:
        held.append(entry)
        size += min(entry.size, LARGEST_COUNTED_BYTES) + FILE_BYTES
        if size >= limit:
            yield held
            held, size, limit = [], 0, RANGE_BYTES
    if held:
        yield held


def collect_range(
    tree: Tree, entries: _Range, *, position: int, suspects: Suspects, on_entry: OnEntry
) -> Iterator[Collected]:
    """As `collect`. `position`: of the range in its tree; later ones give larger segments."""
    found = walk(tree.mirror_path, tree.commit, max_file_bytes=tree.max_file_bytes, only=entries, chosen=tree.chosen)
    return collect(
        found,
        directory=tree.directory,
        index_id=tree.index_id,
        suspects=suspects,
        on_entry=on_entry,
        segments_before=position,
    )


def collect_beside(
    tree: Tree,
    entries: Iterable[TreeEntry],
    *,
    suspects: Suspects,
    on_entry: OnEntry,
    on_done: Callable[[Done, int], None],
    check: Callable[[], None],
) -> Iterator[Collected]:
    """Yields the same growing `Collected` after each range; the last time when all are done.

    `on_entry(file, chunks so far)` hears of files that are read in this process, `on_done(range, chunks so far)` of
    ranges that the other one has read. `check` is called while this one waits; what it raises ends both.
    """
    total = Collected()

    def here(position: int, some: _Range) -> None:
        own, before = Collected(), total.chunks
        found = collect_range(
            tree,
            some,
            position=position,
            suspects=suspects,
            on_entry=lambda entry, more: on_entry(entry, before + more),
        )
        for own in found:  # noqa: B007 (the last one is whole)
            pass
        total.add(own, position=position)

    def take(finished: Iterable[tuple[int, Done]]) -> None:
        for position, done in finished:
            total.add(done.collected, position=position)
            on_done(done, total.chunks)

    with _Beside(tree, ranges(entries)) as beside:
        while (mine := beside.next_range()) is not None:
            here(*mine)
            take(beside.finished())
            yield total
        while beside.is_busy:
            check()
            take(beside.finished(wait_seconds=POLL_SECONDS))
        take(beside.finished())
        if beside.error is not None:
            raise beside.error
        if beside.unfinished is not None:
            suspects.blame(beside.note)
            here(*beside.unfinished)
    yield total


class _Beside:
    """The other process, and the ranges that both take from. Use as a context manager."""

    def __init__(self, tree: Tree, some: Iterator[_Range]) -> None:
        folder = tree.directory / PARTIAL / "beside"
        self.note = folder / NOTE
        self.unfinished: tuple[int, _Range] | None = None  # at which it died
        self._ranges = enumerate(some)
        self._lock = threading.Lock()
        self._finished: Queue[tuple[int, Done]] = Queue()
        self.error: Exception | None = None  # of the list of files, which both read
        self._process = subprocess.Popen(
            WORKER, cwd=settings.BASE_DIR, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._thread = threading.Thread(target=self._feed, args=(tree, folder), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._thread.join()
        with self._process:
            pass  # closes the pipes and waits

    @property
    def is_busy(self) -> bool:
        return self._thread.is_alive()

    def next_range(self) -> tuple[int, _Range] | None:
        """None at the end. What goes wrong in the list of files is raised here and kept for the other caller."""
        with self._lock:
            try:
                return next(self._ranges, None)
            except Exception as error:
                self.error = error
                raise

    def finished(self, *, wait_seconds: float = 0.0) -> Iterator[tuple[int, Done]]:
        """What it has finished since the last call."""
        with suppress(Empty):
            while True:
                yield self._finished.get(block=wait_seconds > 0, timeout=wait_seconds or None)

    def _feed(self, tree: Tree, folder: Path) -> None:
        try:
            self._send((tree, folder))
            for position, entries in iter(self.next_range, None):
                self.unfinished = position, entries
                self._send((position, entries))
                self._finished.put((position, self._receive()))
                self.unfinished = None
        except (*_PIPE_ERRORS, IndexingError) as error:
            log.warning("no more files are parsed beside this process (%s)", type(error).__name__)

    def _send(self, what: object) -> None:
        assert self._process.stdin is not None
        pickle.dump(what, self._process.stdin)
        self._process.stdin.flush()

    def _receive(self) -> Done:
        assert self._process.stdout is not None
        done: Done = pickle.load(self._process.stdout)  # noqa: S301 (from our own process)
        return done
