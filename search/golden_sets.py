"""Golden sets -> the repositories behind a name, and the topics that make a question prefer them.

Only as far as the asking person may read: a set of which they read nothing is not there for them.
"""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from typing import Any

from django.db import connection
from django.db.models import Count

from indexing.access import Principal
from indexing.models import GoldenSet, Repository

PREFIX = "set/"  # of the name that people type behind @


def members(names: set[str], principal: Principal) -> dict[str, tuple[int, ...]]:
    """Readable repositories by the name of their set; names of sets without any are missing."""
    found: dict[str, list[int]] = defaultdict(list)
    if names:
        readable = Repository.objects.visible_to(principal).filter(golden_sets__name__in=names).order_by("pk")
        for name, pk in readable.values_list("golden_sets__name", "pk"):
            found[name].append(pk)
    return {name: tuple(pks) for name, pks in found.items() if name in names}


def offered(text: str, principal: Principal, *, limit: int) -> list[tuple[str, str, int]]:
    """Sets whose name has the text: name, note, and how many of the repositories this person reads."""
    readable = Repository.objects.visible_to(principal)
    rows = GoldenSet.objects.filter(name__icontains=text, repositories__in=readable)
    counted = rows.annotate(size=Count("repositories", distinct=True)).order_by("name")
    return list(counted.values_list("name", "note", "size")[:limit])


def topics() -> dict[int, list[tuple[str, str]]]:
    """Repository -> (topic, name of the set). To be looked up for readable repositories only."""
    found: dict[int, list[tuple[str, str]]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(*_members_with_topics())
        for name, listed, pk in cursor.fetchall():
            found[pk] += [(topic.strip(), name) for topic in listed.split(",") if topic.strip()]
    return found


@lru_cache(maxsize=1)
def _members_with_topics() -> tuple[str, tuple[Any, ...]]:  # Any: parameters
    """SQL, kept because every search asks this: writing it takes ten times as long as running it."""
    members = GoldenSet.repositories.through.objects.exclude(goldenset__topics="").order_by("goldenset__name")
    rows = members.values_list("goldenset__name", "goldenset__topics", "repository_id")
    sql, parameters = rows.query.sql_with_params()
    return sql, tuple(parameters)
