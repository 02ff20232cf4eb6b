"""Which repositories need a build: those a shell names, those whose source moved on, those whose index is damaged.

Sources are asked in turn, the one that waited longest first, and only while few builds wait: thousands of
repositories that moved on at once get their builds one after the other, and people's own requests are not behind them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from zlib import crc32

from django.conf import settings
from django.utils import timezone

from indexing import git, registering
from indexing.access import Principal
from indexing.building import ACTIVE, request_build, request_update
from indexing.embedding import configured_model
from indexing.errors import IndexingError
from indexing.index_writing import usable_manifest
from indexing.models import Index, Job, Repository
from indexing.queueing import in_line
from indexing.sources import Source, check_ref, parse_source
from indexing.updating import chunking_fingerprint

ANYWHERE = (Path("/"),)  # whoever has the server's shell may read its disk anyway
WAITING_AT_ONCE = 3
ASKED_AT_ONCE = 20  # sources a round
JITTER = 0.2  # of the interval, to both sides: sources are not all asked at the same moment
UNANSWERED_FACTOR = 4  # a source that did not answer is asked so much more seldom: each one costs a time-out
PAUSE_AFTER_FAILURE = timedelta(hours=1)

log = logging.getLogger(__name__)
_started = timezone.now()  # settings and code are as they were then


def refresh_due() -> list[int]:
    """Ask the sources whose turn it is; returns the indexes that were asked for.

    Several workers may call this at once: a source is asked by one of them.
    """
    if settings.REFRESH_MINUTES <= 0:
        return []
    asked = []
    for repository in due():
        if in_line(Job.Queue.BUILDS).count() >= WAITING_AT_ONCE:
            break
        if _claim(repository) and _needs_build(repository):
            asked.append(request_update(repository, priority=Job.Priority.REFRESH).pk)
    return asked


def due() -> Iterator[Repository]:
    """The longest waiting first. Repositories that nobody asked to index yet are left alone."""
    interval = timedelta(minutes=settings.REFRESH_MINUTES)
    now = timezone.now()
    ready = Repository.objects.select_related("mirror").filter(indexes__isnull=False, archived=False).distinct()
    building = Index.objects.filter(status__in=ACTIVE).exclude(job__queue=Job.Queue.DESCRIPTIONS)
    ready = ready.exclude(indexes__in=building).order_by("checked_at", "pk")
    for repository in ready.exclude(checked_at__gt=now - (1 - JITTER) * interval)[:ASKED_AT_ONCE]:
        patience = _share(repository) * (UNANSWERED_FACTOR if repository.check_error else 1)
        if repository.checked_at is None or repository.checked_at <= now - patience * interval:
            yield repository


def _share(repository: Repository) -> float:
    """Between 1 - JITTER and 1 + JITTER; another one after each check."""
    spread = crc32(f"{repository.pk} {repository.checked_at}".encode()) / 0xFFFFFFFF
    return 1 - JITTER + 2 * JITTER * spread


def _claim(repository: Repository) -> bool:
    same = Repository.objects.filter(pk=repository.pk, checked_at=repository.checked_at)
    return same.update(checked_at=timezone.now()) > 0


def _needs_build(repository: Repository) -> bool:
    """A commit that was tried is not tried again, and a source that fails gets an hour of rest."""
    latest = repository.indexes.latest("pk")
    rests = latest.finished_at is not None and latest.finished_at > timezone.now() - PAUSE_AFTER_FAILURE
    if latest.status == Index.Status.FAILED and rests:
        return False
    try:
        commit = git.remote_commit(repository.mirror, repository.ref)
    except IndexingError as error:
        log.warning("the source of repository %d could not be asked: %s", repository.pk, type(error).__name__)
        Repository.objects.filter(pk=repository.pk).update(check_error=str(error)[:500])
        return False
    Repository.objects.filter(pk=repository.pk).exclude(check_error="").update(check_error="")
    moved = bool(commit) and latest.commit != commit
    return moved or (latest.status == Index.Status.READY and latest.created_at < _started and _is_outdated(repository))


def _is_outdated(repository: Repository) -> bool:
    """Made by another version of the chunkers, or with another embedding model than the settings name now."""
    manifest = usable_manifest(repository.index_path)
    if manifest is None or manifest.model is None:
        return True
    return manifest.chunking != chunking_fingerprint(repository) or not configured_model(manifest.model)


def request_repair(repository: Repository) -> Index | None:
    """A search found the index damaged. Asks for a new one once: None when that was tried since it was published."""
    if repository.indexes.filter(pk__gt=repository.current_index_id or 0).exists():
        return None
    log.warning("the index of repository %d is damaged; it is made anew", repository.pk)
    return request_build(repository, rebuild=True, priority=Job.Priority.PUSH)


def add_from_shell(text: str, *, name: str = "", ref: str = "") -> tuple[Repository, bool]:
    """The repository of a Git URL or of any local path, and whether it is new. A new source must answer first.

    Raises InvalidSource, UnreachableSource, NotARepository, UnknownRef.
    """
    source, ref = parse_source(text, from_staff=True, local_roots=ANYWHERE), check_ref(ref)
    if not Repository.objects.filter(mirror__url=source.url, ref=ref).exists():
        git.probe(source, ref)
    return _register(source, name=name, ref=ref)


def repository_at(path: Path, *, name: str = "") -> Repository:
    """The repository of a local path, made when it is new. Raises InvalidSource."""
    source = parse_source(str(path.resolve()), from_staff=True, local_roots=ANYWHERE)
    return _register(source, name=name, ref="")[0]


def _register(source: Source, *, name: str, ref: str) -> tuple[Repository, bool]:
    return registering.register(source, owner=None, principal=Principal.operator(), name=name, ref=ref)
