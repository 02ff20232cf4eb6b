"""The list of tracked files that are not indexed: one list a repository, of its published index.

A whole build writes its own list as it meets the files. An update changes the list of the build before it, at the
moment it is published; copying the list would cost what the repository has, not what the commit changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from indexing.collecting import display
from indexing.models import Index, SkippedFile
from indexing.walking import SkippedEntry

ROWS_AT_ONCE = 1_000
PATHS_AT_ONCE = 500  # SQLite takes a limited number of values
PATH_CHARS, DETAIL_CHARS = 1_000, 300


class SkipRecorder:
    """Rows of a whole build are written as they come, those of an update (`keep`) only by `write`."""

    def __init__(self, index: Index, *, keep: bool) -> None:
        self._index = index
        self._keep = keep
        self._rows: list[SkippedFile] = []

    def add(self, entry: SkippedEntry) -> None:
        path, detail = _shown(entry.path), entry.detail[:DETAIL_CHARS]
        self._rows.append(SkippedFile(index=self._index, path=path, reason=entry.reason.value, detail=detail))
        if len(self._rows) >= ROWS_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        if not self._keep:
            self.write()

    def write(self, index_id: int | None = None) -> None:
        """Into the list of that build, or of its own."""
        for row in self._rows:
            row.index_id = index_id or self._index.pk
        SkippedFile.objects.bulk_create(self._rows, batch_size=ROWS_AT_ONCE)
        self._rows = []


def remove_skipped(index_id: int, paths: Iterable[bytes]) -> Counter[str]:
    """Drops these paths from a list; returns how many of each reason they were."""
    found: Counter[str] = Counter()
    remaining = map(_shown, paths)
    while batch := list(islice(remaining, PATHS_AT_ONCE)):
        rows = SkippedFile.objects.filter(index=index_id, path__in=batch)
        found.update(rows.order_by().values_list("reason", flat=True))
        rows.delete()
    return found


def remove_skipped_before(index: Index) -> None:
    """Of the lists of a repository only that of the published index is ever shown."""
    SkippedFile.objects.filter(index__repository=index.repository_id, index__lt=index.pk).delete()


def _shown(path: bytes) -> str:
    return display(path)[:PATH_CHARS]
