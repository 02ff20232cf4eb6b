"""Repositories that come and go: a source a person named becomes a row, a removed row takes its files with it.

Input: a checked `Source`. Builds nothing: that is `building.request_build`.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from django.db import transaction

from indexing import milvus
from indexing.access import Principal
from indexing.credentials import Secret, forget_unused, keep
from indexing.errors import VectorsUnavailable
from indexing.models import Credential, Index, Job, Mirror, Repository
from indexing.sources import Source

if TYPE_CHECKING:
    from django.contrib.auth.models import Group, User


@transaction.atomic
def register(
    source: Source,
    *,
    owner: User | None,
    principal: Principal,
    name: str = "",
    ref: str = "",
    visibility: str = "",
    golden: bool = False,
    secret: Secret | None = None,
) -> tuple[Repository, bool]:
    """The repository of this source and ref, and whether it is new. One that `principal` sees already is reused.

    Without a `visibility`, what needs a login is private and the rest public. Raises InvalidLogin.
    """
    credential = keep(secret, url=source.url, owner=owner) if secret else None
    known = Repository.objects.visible_to(principal).filter(mirror__url=source.url, ref=ref)
    if credential is not None:
        known = known.filter(mirror__credential=credential)
    if (existing := known.order_by("pk").first()) is not None:
        return existing, False
    mirror = _mirror(source.url, source.kind, credential)
    repository = Repository.objects.create(
        mirror=mirror,
        name=_free_name(name or source.default_name, principal),
        ref=ref,
        visibility=visibility or (Repository.Visibility.PRIVATE if secret else Repository.Visibility.PUBLIC),
        golden=golden,
        owner=owner,
    )
    return repository, True


def _mirror(url: str, kind: str, credential: Credential | None) -> Mirror:
    return Mirror.objects.get_or_create(url=url, credential=credential, defaults={"kind": kind})[0]


@transaction.atomic
def set_login(repository: Repository, secret: Secret | None) -> None:
    """Read the source with this secret from now on, or without any. The repository owns it, whoever typed it.

    A mirror that others use stays theirs, and what was fetched with a login never becomes the open mirror: then this
    repository moves to another one, which its next build fetches. Raises InvalidLogin.
    """
    mirror = repository.mirror
    credential = keep(secret, url=mirror.url, owner=repository.owner) if secret else None
    if credential == mirror.credential:
        return
    shared = mirror.repositories.exclude(pk=repository.pk).exists()
    taken = Mirror.objects.filter(url=mirror.url, credential=credential).exists()
    if credential is not None and not shared and not taken:
        mirror.credential = credential
        mirror.save(update_fields=["credential"])
    else:
        repository.mirror = _mirror(mirror.url, mirror.kind, credential)
        repository.save(update_fields=["mirror"])
        _remove_unused(mirror)
    forget_unused()


@transaction.atomic
def move(repository: Repository, *, url: str, name: str) -> None:
    """Its source has another address now. A mirror that others read by the old one stays theirs."""
    mirror = repository.mirror
    shared = mirror.repositories.exclude(pk=repository.pk).exists()
    if shared or Mirror.objects.filter(url=url, credential=mirror.credential).exists():
        repository.mirror = _mirror(url, mirror.kind, mirror.credential)
        _remove_unused(mirror)
    else:
        mirror.url = url
        mirror.save(update_fields=["url"])
    repository.name = name[:200]
    repository.save(update_fields=["mirror", "name"])


@transaction.atomic
def set_readers(
    repository: Repository,
    *,
    visibility: str | None = None,
    people: Iterable[User] | None = None,
    groups: Iterable[Group] | None = None,
    choosable: Iterable[Group] = (),
) -> str:
    """Change what is given, and say in words what that changed. Groups that are not `choosable` stay as they are."""
    said = []
    if visibility is not None and visibility != repository.visibility:
        repository.visibility = visibility
        repository.save(update_fields=["visibility"])
        said.append(f"visibility {visibility}")
    if people is not None:
        said += _difference(set(repository.members.all()), set(people))
        repository.members.set(people)
    if groups is not None:
        before = set(repository.groups.all())
        after = set(groups) | (before - set(choosable))
        said += _difference(before, after)
        repository.groups.set(after)
    return ", ".join(said)


def set_file_choice(repository: Repository, *, rules: str, max_file_bytes: int | None) -> str:
    """Which files are indexed from the next build on; returns what that changed, in words."""
    said = ["file rules"] if rules != repository.file_rules else []
    said += ["largest file"] if max_file_bytes != repository.max_file_bytes else []
    repository.file_rules, repository.max_file_bytes = rules, max_file_bytes
    repository.save(update_fields=["file_rules", "max_file_bytes"])
    return ", ".join(said)


def _difference(before: set[Any], after: set[Any]) -> list[str]:  # Any: people or groups
    added = sorted(f"+{reader}" for reader in after - before)
    return added + sorted(f"-{reader}" for reader in before - after)


def _free_name(wanted: str, principal: Principal) -> str:
    """`wanted`, or with a number behind it when a repository that `principal` sees, such as another branch, has it."""
    wanted = wanted[:190]
    taken = set(Repository.objects.visible_to(principal).filter(name__startswith=wanted).values_list("name", flat=True))
    return next(name for n in range(1, len(taken) + 2) if (name := wanted if n == 1 else f"{wanted}-{n}") not in taken)


def cancel_build(repository: Repository) -> bool:
    """Ask the active build, if there is one, to stop; what is published stays."""
    jobs = Job.objects.filter(index__repository=repository, state__in=[Job.State.QUEUED, Job.State.RUNNING])
    return jobs.update(cancel_requested=True) > 0


def remove(repository: Repository) -> None:
    """Forget a repository, its index files, and its mirror when no other repository reads that. Answers stay."""
    cancel_build(repository)
    index_path, mirror = repository.index_path, repository.mirror
    with transaction.atomic():
        Index.objects.filter(repository=repository).delete()
        repository.delete()
        _remove_unused(mirror)
        forget_unused()
    shutil.rmtree(index_path, ignore_errors=True)
    if milvus.enabled():
        with suppress(VectorsUnavailable):  # nothing names them any more: they take room and are never found
            milvus.forget(int(index_path.name))


def _remove_unused(mirror: Mirror) -> None:
    """Its files go once that is committed."""
    if not mirror.repositories.exists():
        path = mirror.path
        mirror.delete()
        transaction.on_commit(lambda: shutil.rmtree(path, ignore_errors=True))
