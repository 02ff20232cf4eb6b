"""Citations that people opened or copied -> counts by repository and day, and what the dashboard says of them.

Numbers only: neither who nor which answer. Repositories that the looking person may not read are one row together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

from django.db.models import Count, F, Sum
from django.utils import timezone

from assistant.models import Citation, CitationUse
from indexing.access import Principal
from indexing.models import Repository

OTHERS = "Repositories that you cannot read"
Kind = Literal["opened", "copied"]


@dataclass(frozen=True, slots=True)
class DayOfUses:
    day: date
    opened: int
    copied: int


@dataclass(frozen=True, slots=True)
class RepositoryUses:
    """`cited`: citations in answers of the period; one may be opened often."""

    name: str
    cited: int
    opened: int
    copied: int


@dataclass(frozen=True, slots=True)
class CitationUses:
    days: tuple[DayOfUses, ...]
    repositories: tuple[RepositoryUses, ...]

    @property
    def cited(self) -> int:
        return sum(row.cited for row in self.repositories)

    @property
    def opened(self) -> int:
        return sum(row.opened for row in self.repositories)

    @property
    def copied(self) -> int:
        return sum(row.copied for row in self.repositories)


def count(repository: Repository, kind: Kind) -> None:
    row, _created = CitationUse.objects.get_or_create(repository=repository, day=timezone.localdate())
    CitationUse.objects.filter(pk=row.pk).update(**{kind: F(kind) + 1})


def citation_uses(days: int, principal: Principal) -> CitationUses:
    """The last `days` days, today included; repositories with the most opened citations first."""
    today = timezone.localdate()
    first = today - timedelta(days=days - 1)
    return CitationUses(_days(first, today), tuple(_repositories(first, principal)))


def _days(first: date, last: date) -> tuple[DayOfUses, ...]:
    rows = CitationUse.objects.filter(day__gte=first).values("day").annotate(o=Sum("opened"), c=Sum("copied"))
    found = {row["day"]: DayOfUses(row["day"], row["o"], row["c"]) for row in rows.order_by()}
    every = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    return tuple(found.get(day, DayOfUses(day, 0, 0)) for day in every)


def _repositories(first: date, principal: Principal) -> Sequence[RepositoryUses]:
    cited = Citation.objects.filter(cited=True, message__created_at__date__gte=first, attempt=F("message__attempt"))
    counts = dict(cited.order_by().values_list("repository").annotate(number=Count("pk")))
    used = {
        row["repository"]: row
        for row in CitationUse.objects.filter(day__gte=first)
        .order_by()
        .values("repository")
        .annotate(o=Sum("opened"), c=Sum("copied"))
    }
    names = dict(
        Repository.objects.visible_to(principal).filter(pk__in={*counts, *used} - {None}).values_list("pk", "name")
    )
    totals: dict[str, Counter[str]] = {}
    for pk in {*counts, *used}:
        use = used.get(pk, {"o": 0, "c": 0})
        row = totals.setdefault(names.get(pk, OTHERS), Counter())
        row.update(cited=counts.get(pk, 0), opened=use["o"], copied=use["c"])
    rows = [RepositoryUses(name, row["cited"], row["opened"], row["copied"]) for name, row in totals.items()]
    return sorted(rows, key=lambda row: (row.name == OTHERS, -row.opened, -row.cited, row.name))
