"""Which files of a large build other workers may embed: one row per range of files, held for a minute at a time.

The worker that holds the build goes through its files from the front and takes the row of each range away when it gets
there. Helpers take free rows from the back and remove them when the vectors are in their file. So a range has at most
one row that anybody may work on, and the worker of the build embeds whatever did not arrive.
See docs/decisions/0016-several-workers-embed-one-build.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from django.db.models import F, Q, QuerySet
from django.utils import timezone

from indexing import leases, queueing
from indexing.errors import IndexFormatError
from indexing.index_format import Manifest, Segment
from indexing.models import EmbeddingRange, Index, Job
from indexing.vector_cache import PARTIAL

OFFER = "offer.json"
OFFERED_FROM_CHUNKS = 4_000  # some minutes of embedding on one core
RANGE_CHUNKS = 500
MAX_ATTEMPTS = 2  # helpers that die of a range; then it is left to the worker of the build
CALL_SECONDS = 30.0  # between two messages to workers that might help
CHECK_SECONDS = 1.0
TRIED = 5  # free ranges, when other helpers are quicker


class HelpOver(Exception):
    """The range is no longer this helper's, or a build waits for it."""


# The worker that holds the build.


@contextmanager
def offered(
    directory: Path, manifest: Manifest, segments: Sequence[Segment], *, call: Callable[[], None]
) -> Iterator[Callable[[str, int], None]]:
    """Ranges of these segments can be taken within the block. Yields `reached(segment id, file row)`.

    `call` wakes a worker; it is called now and then while there are ranges. `manifest` names segments and model.
    """
    withdraw(manifest.repository_id)
    rows = list(_ranges(manifest.index_id, segments))
    (directory / PARTIAL / OFFER).write_text(manifest.to_json())
    EmbeddingRange.objects.bulk_create(rows)
    offer = _Offer(rows, call)
    try:
        yield offer.reached
    finally:
        withdraw(manifest.repository_id)


def withdraw(repository_id: int) -> None:
    """Also what a build left that was killed."""
    EmbeddingRange.objects.filter(index__repository=repository_id).delete()


def _ranges(index_id: int, segments: Sequence[Segment]) -> Iterator[EmbeddingRange]:
    position = 0
    for segment in segments:
        first = 0
        for row in range(1, segment.info.files + 1):
            if row == segment.info.files or segment.file_chunks[row] - segment.file_chunks[first] >= RANGE_CHUNKS:
                yield EmbeddingRange(
                    index_id=index_id, position=position, segment=segment.info.id, first_file=first, last_file=row
                )
                first, position = row, position + 1


class _Offer:
    def __init__(self, rows: Sequence[EmbeddingRange], call: Callable[[], None]) -> None:
        self._pks = {(row.segment, row.first_file): row.pk for row in rows}
        self._call = call
        self._called_at = float("-inf")

    def reached(self, segment: str, file_row: int) -> None:
        if pk := self._pks.pop((segment, file_row), None):
            EmbeddingRange.objects.filter(pk=pk).delete()
        now = time.monotonic()
        if self._pks and now >= self._called_at + CALL_SECONDS:
            self._called_at = now
            self._call()


# Workers that help.


def builds_with_ranges() -> list[Index]:
    """Running builds of which a range is free, the one that was asked for first before others."""
    ids = _free().order_by("index__job__due_at").values_list("index_id", flat=True)
    return [Index.objects.select_related("repository__mirror").get(pk=pk) for pk in dict.fromkeys(ids)]


def read_offer(index: Index) -> Manifest | None:
    """What the build says about its segments and its model; None when that is over."""
    file = index.repository.index_path / PARTIAL / OFFER
    try:
        manifest = Manifest.from_json(file.read_text(), where=file)
    except (OSError, IndexFormatError):
        return None
    return manifest if manifest.index_id == index.pk else None


def claim(index_id: int, holder: str) -> Claim | None:
    """The last free range of a build, for as long as it is renewed."""
    for row in _free().filter(index_id=index_id).order_by("-position")[:TRIED]:
        same = EmbeddingRange.objects.filter(_nobodys(), pk=row.pk)
        if same.update(holder=holder, leased_until=_lease_end(), attempts=F("attempts") + 1):
            return Claim(row, holder)
    return None


@dataclass(slots=True)
class Claim:
    """One range in the hands of a helper."""

    row: EmbeddingRange
    holder: str
    _checked_at: float = 0.0

    def check(self) -> None:
        """For between files and batches: renews the lease once a second. Raises HelpOver."""
        now = time.monotonic()
        if leases.stopping.is_set():
            raise HelpOver
        if now < self._checked_at + CHECK_SECONDS:
            return
        self._checked_at = now
        if queueing.any_wait() or not self._mine().update(leased_until=_lease_end()):
            raise HelpOver

    def done(self) -> None:
        self._mine().delete()

    def hand_back(self) -> None:
        """An orderly end is no attempt."""
        self._mine().update(holder="", leased_until=None, attempts=F("attempts") - 1)

    def _mine(self) -> QuerySet[EmbeddingRange]:
        return EmbeddingRange.objects.filter(pk=self.row.pk, holder=self.holder)


def _free() -> QuerySet[EmbeddingRange]:
    running = {"index__job__state": Job.State.RUNNING, "index__job__cancel_requested": False}
    return EmbeddingRange.objects.filter(_nobodys(), attempts__lt=MAX_ATTEMPTS, **running)


def _nobodys() -> Q:
    return Q(holder="") | Q(leased_until__lt=timezone.now())


def _lease_end() -> datetime:
    return timezone.now() + timedelta(seconds=leases.LEASE_SECONDS)
