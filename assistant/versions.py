"""A file or folder -> where else it can be looked at: indexed refs of the same mirror, and commits that are kept.

Only repositories the person may read, only commits that were indexed (a ref pins each of them), and only those that
have something at the path. One Git process. A mirror that cannot be read gives nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from assistant.code_places import page_url, place_url
from assistant.models import Message
from indexing import git
from indexing.access import Principal
from indexing.errors import GitError
from indexing.models import Index, Repository

MAX_COMMITS = 12


@dataclass(frozen=True, slots=True)
class Version:
    """`label` is a ref, or empty for a commit that is only kept; `here` is the one that is shown."""

    label: str
    repository: str
    commit: str
    indexed_at: datetime | None
    href: str
    here: bool

    @property
    def group(self) -> str:
        return "Branches and tags" if self.label else "Earlier commits, kept for citations"


@dataclass(frozen=True, slots=True)
class _Place:
    label: str
    repository: Repository
    commit: str
    indexed_at: datetime | None


def versions(
    repository: Repository,
    commit: str,
    path: bytes,
    *,
    principal: Principal,
    message: Message | None,
    byte_range: tuple[int, int] = (0, 0),
    folder: bool = False,
) -> list[Version]:
    """Refs first, then kept commits, the newest first. A marked range stays marked where the file is the same."""
    places = [*_refs(repository, principal), *_kept(repository)]
    try:
        found = git.objects_at(repository.mirror.path, {place.commit for place in places} | {commit}, path)
    except (GitError, OSError):
        return []
    seen: set[tuple[int, str]] = set()
    listed = []
    for place in places:
        key = (place.repository.pk, place.commit)
        if place.commit not in found or key in seen:
            continue
        seen.add(key)
        if folder:
            href = page_url("folder", place.repository, place.commit, path, message)
        else:
            same = found[place.commit] == found.get(commit)
            href = place_url(place.repository, place.commit, path, byte_range if same else (0, 0), message)
        here = key == (repository.pk, commit)
        listed.append(Version(place.label, place.repository.name, place.commit, place.indexed_at, href, here))
    return listed


def _refs(repository: Repository, principal: Principal) -> list[_Place]:
    readable = Repository.objects.visible_to(principal).filter(mirror=repository.mirror_id)
    rows = readable.searchable().select_related("current_index", "mirror").order_by("ref", "pk")
    default = repository.mirror.default_branch or "default branch"
    return [
        _Place(row.ref or default, row, row.current_index.commit, row.current_index.finished_at)
        for row in rows
        if row.current_index is not None
    ]


def _kept(repository: Repository) -> list[_Place]:
    rows = Index.objects.filter(repository=repository, status=Index.Status.READY).exclude(commit="").order_by("-pk")
    return [_Place("", repository, row.commit, row.finished_at) for row in rows[:MAX_COMMITS]]
