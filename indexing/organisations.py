"""Organisations of hosting sites -> repositories here, kept in step with the list there.

What is new and matches is added, what was renamed or moved follows, what was archived is not asked for commits any
more, what became private there becomes private here, and what is gone there goes here too. Nothing is decided from a
list that did not arrive whole, and a list that would remove much is refused: it may be a token that sees less.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from indexing import hosting_api, registering
from indexing.access import Principal
from indexing.audit import record
from indexing.building import request_build
from indexing.credentials import keep, origin_of, site_secret
from indexing.errors import GitError, HostingError, RateLimited
from indexing.git import allowed_source
from indexing.hosting_api import HostedRepository
from indexing.models import Job, Organisation, Repository
from indexing.queueing import in_line
from indexing.sources import parse_source

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User

EVERY = timedelta(hours=1)
WAITING_AT_ONCE = 3  # first builds in line, so that an import of thousands leaves room for what people ask for
REMOVED_AT_ONCE = 5
REMOVED_SHARE = 0.2  # of the organisation's repositories here; more, and more than REMOVED_AT_ONCE, is refused

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """Names, for people; `skipped` says why."""

    added: list[str] = field(default_factory=list)
    renamed: list[str] = field(default_factory=list)
    made_private: list[str] = field(default_factory=list)
    archived: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = {
            "added": self.added,
            "renamed": self.renamed,
            "made private": self.made_private,
            "archived": self.archived,
            "removed": self.removed,
            "skipped": self.skipped,
        }
        return ", ".join(f"{len(names)} {what}" for what, names in counts.items() if names) or "nothing to change"


def chosen(organisation: Organisation, listed: Iterable[HostedRepository]) -> list[HostedRepository]:
    """What of the list is added, by the organisation's patterns. A pattern without a slash is for the last part."""
    include, exclude = _patterns(organisation.include), _patterns(organisation.exclude)
    return [
        hosted
        for hosted in listed
        if _matches(hosted.name, include)
        and not _matches(hosted.name, exclude)
        and (organisation.with_archived or not hosted.archived)
    ]


def synchronise(
    organisation: Organisation,
    *,
    actor: User | AnonymousUser | None = None,
    force: bool = False,
    patience_seconds: float = hosting_api.MAX_WAIT_SECONDS,
) -> Outcome:
    """Bring the repositories in step with the site's list. `force`: remove however many are gone.

    Raises HostingError or RateLimited, noted on the row as well; then nothing was changed by that list.
    """
    try:
        site, name = organisation.site, organisation.name
        listed = hosting_api.repositories_of(site, name, patience_seconds=patience_seconds)
        outcome = _apply(organisation, listed, actor, force)
    except HostingError as error:
        wait = error.reset_at if isinstance(error, RateLimited) else timezone.now() + EVERY
        _note(organisation, error=str(error)[:500], next_check_at=wait)
        raise
    _note(organisation, error="", next_check_at=timezone.now() + EVERY)
    return outcome


def keep_in_step() -> None:
    """Called every few seconds by the scheduler: the first builds of what was added, and one list that is due."""
    build_added()
    due = Organisation.objects.filter(Q(next_check_at=None) | Q(next_check_at__lt=timezone.now()))
    organisation = due.order_by("next_check_at", "pk").first()
    if organisation is None or settings.REFRESH_MINUTES <= 0:
        return
    same = Organisation.objects.filter(pk=organisation.pk, next_check_at=organisation.next_check_at)
    if same.update(next_check_at=timezone.now() + EVERY):  # one of several schedulers
        try:
            log.info("organisation %d: %s", organisation.pk, synchronise(organisation))
        except HostingError as error:
            log.warning("organisation %d could not be listed: %s", organisation.pk, type(error).__name__)


def build_added() -> None:
    """As many first builds as leave the queue short."""
    room = WAITING_AT_ONCE - in_line(Job.Queue.BUILDS).count()
    waiting = Repository.objects.filter(organisation__isnull=False, indexes=None).order_by("pk")
    for repository in waiting[: max(0, room)]:
        request_build(repository, priority=Job.Priority.REFRESH)


def _patterns(text: str) -> list[str]:
    return [pattern for part in text.split(",") if (pattern := part.strip().lower())]


def _matches(name: str, patterns: Sequence[str]) -> bool:
    whole = name.lower()
    last = whole.rpartition("/")[2]
    return any(fnmatchcase(whole if "/" in pattern else last, pattern) for pattern in patterns)


def _apply(
    organisation: Organisation, listed: list[HostedRepository], actor: User | AnonymousUser | None, force: bool
) -> Outcome:
    outcome, known = Outcome(), {row.hosted_id: row for row in organisation.repositories.select_related("mirror")}
    by_id = {hosted.hosted_id: hosted for hosted in listed}
    gone = _gone(organisation, [row for hosted_id, row in known.items() if hosted_id not in by_id], known, force)
    for hosted in listed:
        if hosted.hosted_id in known:
            try:
                _follow(organisation, known[hosted.hosted_id], hosted, outcome)
            except GitError as error:
                outcome.skipped.append(f"{hosted.name}: {error}")
    for hosted in chosen(organisation, listed):
        if hosted.hosted_id not in known:
            _add(organisation, hosted, outcome)
    for repository in gone:
        outcome.removed.append(repository.name)
        record(actor, "repository removed", repository, f"gone from {organisation}")
        registering.remove(repository)
    if str(outcome) != str(Outcome()):
        record(actor, "organisation imported", organisation, str(outcome))
    return outcome


def _gone(
    organisation: Organisation, missing: list[Repository], known: dict[str, Repository], force: bool
) -> list[Repository]:
    """Those that the site has no more. One that it still has was moved out of the organisation and stays here."""
    if len(missing) > max(REMOVED_AT_ONCE, REMOVED_SHARE * len(known)) and not force:
        raise HostingError(
            f"{organisation} lists {len(missing)} of {len(known)} repositories no more, so nothing was removed. If "
            "that is right, run manage.py import_organisation with --force; else check the token."
        )
    return [row for row in missing if hosting_api.is_gone(organisation.site, row.hosted_id)]


def _follow(organisation: Organisation, repository: Repository, hosted: HostedRepository, outcome: Outcome) -> None:
    """What became public there stays as private as it is: that is for people to change."""
    url, mirror_id = parse_source(hosted.url, from_staff=False).url, repository.mirror_id
    if repository.mirror.url != url and origin_of(url) == origin_of(repository.mirror.url):
        kept_name = urlsplit(repository.mirror.url).path.strip("/") != repository.name
        outcome.renamed.append(f"{repository.name} -> {hosted.name}")
        registering.move(repository, url=url, name=repository.name if kept_name else hosted.name)
    if hosted.private and registering.set_readers(repository, visibility=Repository.Visibility.PRIVATE):
        outcome.made_private.append(repository.name)
    if hosted.private and repository.mirror.credential_id is None:
        registering.set_login(repository, site_secret(organisation.site))
    if repository.mirror_id != mirror_id:
        request_build(repository, priority=Job.Priority.REFRESH)  # the other mirror has nothing yet
    if hosted.archived != repository.archived:
        repository.archived = hosted.archived
        repository.save(update_fields=["archived"])
        if hosted.archived:
            outcome.archived.append(repository.name)


def _add(organisation: Organisation, hosted: HostedRepository, outcome: Outcome) -> None:
    """A repository of the same source and login is taken over as it is. One that cannot be used is skipped."""
    try:
        if origin_of(hosted.url) != hosting_api.git_origin(organisation.site):
            raise HostingError("it is on another host than its API")
        secret = site_secret(organisation.site) if hosted.private else None
        source = allowed_source(hosted.url, from_staff=False, secret=secret)
        with transaction.atomic():
            credential = keep(secret, url=source.url, owner=None) if secret else None
            same = Repository.objects.filter(mirror__url=source.url, mirror__credential=credential, ref="")
            wanted = Repository.Visibility.PRIVATE if hosted.private else Repository.Visibility.PUBLIC
            repository = same.filter(organisation=None, visibility=wanted).order_by("pk").first()
            if repository is None:
                # For nobody in particular: what others have of this source is not looked at.
                repository, _ = registering.register(
                    source, owner=None, principal=Principal(user_id=None), name=hosted.name, secret=secret
                )
                repository.description = hosted.description
                if hosted.private:
                    repository.groups.set(organisation.groups.all())
            repository.organisation, repository.hosted_id = organisation, hosted.hosted_id
            repository.archived = hosted.archived
            repository.save(update_fields=["organisation", "hosted_id", "archived", "description"])
    except (GitError, HostingError) as error:
        outcome.skipped.append(f"{hosted.name}: {error}")
    else:
        outcome.added.append(repository.name)


def _note(organisation: Organisation, *, error: str, next_check_at: object) -> None:
    Organisation.objects.filter(pk=organisation.pk).update(
        checked_at=timezone.now(), check_error=error, next_check_at=next_check_at
    )
