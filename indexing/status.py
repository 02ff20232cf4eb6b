"""How a repository stands, for people: one word, one dot, and the build that says so.

Input: repositories the caller may already read. Two queries for any number of them. Decides nothing about access.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Max

from indexing.models import Index, Repository


@dataclass(frozen=True, slots=True)
class RepositoryStatus:
    """`dot` is ok, busy, bad or stale; `latest` is the newest build, `current` the one that searches use."""

    repository: Repository
    latest: Index | None
    current: Index | None
    dot: str
    label: str

    @property
    def behind(self) -> int:
        """Commits of the source that the published index lacks, as far as they were fetched."""
        return self.repository.commits_behind

    @property
    def active(self) -> bool:
        return self.latest is not None and self.latest.active

    @property
    def failed(self) -> bool:
        return self.latest is not None and self.latest.status == Index.Status.FAILED

    @property
    def percent(self) -> int | None:
        """Chunks embedded of chunks known once there are any, else files; None while nothing is known."""
        if not self.active or self.latest is None:
            return None
        if self.latest.chunks_known:
            return 100 * self.latest.chunks_done // self.latest.chunks_known
        return 100 * self.latest.files_done // self.latest.files_known if self.latest.files_known else None


def statuses(repositories: Iterable[Repository]) -> list[RepositoryStatus]:
    rows = list(repositories)
    newest = (
        Index.objects.filter(repository__in=[row.pk for row in rows]).values("repository").annotate(newest=Max("pk"))
    )
    wanted = {row.current_index_id for row in rows} | {entry["newest"] for entry in newest}
    indexes = Index.objects.in_bulk([pk for pk in wanted if pk])
    latest = {entry["repository"]: indexes[entry["newest"]] for entry in newest}
    return [status_of(row, latest.get(row.pk), indexes.get(row.current_index_id or 0)) for row in rows]


def status_of(repository: Repository, latest: Index | None, current: Index | None) -> RepositoryStatus:
    dot, label = _words(latest, current)
    return RepositoryStatus(repository, latest, current, dot, label)


def _words(latest: Index | None, current: Index | None) -> tuple[str, str]:
    if latest is None:
        return "stale", "Not indexed"
    if latest.status == Index.Status.QUEUED:
        return "busy", "Waiting for descriptions" if current and current.pk == latest.pk else "Waiting"
    if latest.status == Index.Status.BUILDING:
        return "busy", "Updating" if current else "Indexing"
    if latest.status == Index.Status.FAILED:
        return "bad", "Update failed" if current else "Failed"
    if latest.status == Index.Status.CANCELLED:
        return ("ok", "Update stopped") if current else ("stale", "Stopped")
    if latest.status == Index.Status.EMPTY:
        return "stale", "Empty repository"
    return "ok", "Up to date"
