"""Readers at a hosting site -> people here who may read the private repositories of an imported organisation.

Matches by user name, so it is only right where accounts here are made with the names of the hosting site. Takes
rights away as well as giving them; owners, groups and service accounts stay as they are.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction

from indexing import hosting_api, registering
from indexing.audit import record
from indexing.models import Organisation, Repository


def map_readers(organisation: Organisation, *, dry_run: bool = False) -> list[str]:
    """What changed, or with `dry_run` would change, a line for each repository. Raises HostingError."""
    site, changed = organisation.site, []
    listed = {hosted.hosted_id: hosted for hosted in hosting_api.repositories_of(site, organisation.name)}
    private = organisation.repositories.filter(visibility=Repository.Visibility.PRIVATE)
    for repository in private.filter(hosted_id__in=listed).order_by("name"):
        names = hosting_api.readers_of(site, listed[repository.hosted_id])
        people = User.objects.filter(username__in=names, is_active=True, service_account=None)
        services = repository.members.exclude(service_account=None)
        with transaction.atomic():
            said = registering.set_readers(repository, people=[*people, *services])
            if said and not dry_run:
                record(None, "readers mapped", repository, said)
            transaction.set_rollback(dry_run)
        changed += [f"{repository.name}: {said}"] if said else []
    return changed
