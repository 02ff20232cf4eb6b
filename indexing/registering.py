"""Repositories that come and go: a source a person named becomes a row, a removed row takes its files with it.

Input: a checked `Source`. Builds nothing: that is `building.request_build`.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from django.db import transaction

from indexing.access import Principal
from indexing.models import Index, Job, Mirror, Repository
from indexing.sources import Source

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@transaction.atomic
def register(
    source: Source,
    *,
    owner: User | None,
    principal: Principal,
    name: str = "",
    ref: str = "",
    visibility: str = Repository.Visibility.PUBLIC,
    golden: bool = False,
) -> tuple[Repository, bool]:
    """The repository of this source and ref, and whether it is new. One that `principal` sees already is reused."""
    mirror, _ = Mirror.objects.get_or_create(url=source.url, defaults={"kind": source.kind})
    known = Repository.objects.visible_to(principal).filter(mirror=mirror, ref=ref)
    if (existing := known.order_by("pk").first()) is not None:
        return existing, False
    repository = Repository.objects.create(
        mirror=mirror,
        name=_free_name(name or source.default_name, principal),
        ref=ref,
        visibility=visibility,
        golden=golden,
        owner=owner,
    )
    return repository, True


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
    mirror_path = mirror.path
    with transaction.atomic():
        Index.objects.filter(repository=repository).delete()
        repository.delete()
        unused = not mirror.repositories.exists()
        if unused:
            mirror.delete()
    shutil.rmtree(index_path, ignore_errors=True)
    if unused:
        shutil.rmtree(mirror_path, ignore_errors=True)
