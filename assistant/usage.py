"""How the assistant is used: questions, ratings, times and cost of a period, as plain numbers. Names nobody.

In: the tables of conversations, feedback and model calls. Out: one `Usage`. What a single person asked is not in it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import median
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from assistant.conversations import FEEDBACK_REASONS, FINISHED
from assistant.models import Feedback, Message
from indexing.models import LLMCall

MAX_TRACES = 1_000  # times are taken from the newest answers
STAGES = {
    "plan": "Plan",
    "repositories": "Repositories",
    "embed": "Embed",
    "retrieve": "Search",
    "rank": "Rank",
    "rerank": "Re-rank",
    "first_token": "First token",
    "write": "Write",
}
UNANSWERED = Q(state=Message.State.FAILED) | Q(finish_reason="not_found")


@dataclass(frozen=True, slots=True)
class Day:
    day: date
    answered: int
    unanswered: int


@dataclass(frozen=True, slots=True)
class Week:
    first: date
    helpful: int
    not_helpful: int


@dataclass(frozen=True, slots=True)
class StageTime:
    """Milliseconds."""

    label: str
    median: float
    slow: float  # 95th percentile


@dataclass(frozen=True, slots=True)
class ModelUse:
    model: str
    purposes: str
    calls: int
    failed: int
    tokens: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class Usage:
    """`before`: questions of the period of the same length before this one."""

    days: tuple[Day, ...]
    before: int
    weeks: tuple[Week, ...]
    stages: tuple[StageTime, ...]
    first_word: StageTime | None
    models: tuple[ModelUse, ...]
    reasons: tuple[tuple[str, int], ...]

    @property
    def questions(self) -> int:
        return sum(day.answered + day.unanswered for day in self.days)

    @property
    def unanswered(self) -> int:
        return sum(day.unanswered for day in self.days)

    @property
    def answered(self) -> int:
        return self.questions - self.unanswered

    @property
    def helpful(self) -> int:
        return sum(week.helpful for week in self.weeks)

    @property
    def ratings(self) -> int:
        return self.helpful + sum(week.not_helpful for week in self.weeks)


def usage(days: int) -> Usage:
    """The last `days` days, today included."""
    today = timezone.localdate()
    first = today - timedelta(days=days - 1)
    stages, first_word = _times(first)
    return Usage(
        days=_days(first, today),
        before=Message.objects.filter(
            created_at__date__lt=first, created_at__date__gte=first - timedelta(days=days)
        ).count(),
        weeks=_weeks(first, today),
        stages=stages,
        first_word=first_word,
        models=_models(first),
        reasons=_reasons(first),
    )


def _days(first: date, last: date) -> tuple[Day, ...]:
    """Every day, those without a question too."""
    rows = (
        Message.objects.filter(created_at__date__gte=first)
        .annotate(day=TruncDate("created_at"))
        .order_by()
        .values("day")
        .annotate(asked=Count("pk"), unanswered=Count("pk", filter=UNANSWERED))
    )
    found = {row["day"]: row for row in rows}
    every = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    return tuple(
        Day(day, found[day]["asked"] - found[day]["unanswered"], found[day]["unanswered"])
        if day in found
        else Day(day, 0, 0)
        for day in every
    )


def _weeks(first: date, last: date) -> tuple[Week, ...]:
    """Runs of seven days that end today; the first may be shorter."""
    counts: dict[date, list[int]] = {}
    rows = (
        Feedback.objects.filter(created_at__date__gte=first)
        .annotate(day=TruncDate("created_at"))
        .order_by()
        .values("day", "helpful")
        .annotate(number=Count("pk"))
    )
    start = last - timedelta(days=6)
    while start > first - timedelta(days=7):
        counts[max(start, first)] = [0, 0]
        start -= timedelta(days=7)
    for row in rows:
        week = max(begin for begin in counts if begin <= row["day"])
        counts[week][0 if row["helpful"] else 1] += row["number"]
    return tuple(Week(begin, *counts[begin]) for begin in sorted(counts))


def _times(first: date) -> tuple[tuple[StageTime, ...], StageTime | None]:
    traces = (
        Message.objects.filter(created_at__date__gte=first, state__in=FINISHED)
        .exclude(trace={})
        .order_by("-created_at")
        .values_list("trace__stages", flat=True)[:MAX_TRACES]
    )
    times: dict[str, list[float]] = defaultdict(list)
    first_words = []
    for stage in _stages(traces):
        times[stage["name"]].append(float(stage["milliseconds"]))
        if stage["name"] == "first_token":
            first_words.append(float(stage["started_ms"] + stage["milliseconds"]))
    stages = tuple(_stage_time(label, times[name]) for name, label in STAGES.items() if times.get(name))
    return stages, _stage_time("Until the first word", first_words) if first_words else None


def _stages(traces: Iterable[Any]) -> Iterable[dict[str, Any]]:  # Any: JSON
    for stages in traces:
        yield from stages or ()


def _stage_time(label: str, values: Sequence[float]) -> StageTime:
    ordered = sorted(values)
    return StageTime(label, median(ordered), ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))])


def _models(first: date) -> tuple[ModelUse, ...]:
    rows = (
        LLMCall.objects.filter(created_at__date__gte=first)
        .order_by()
        .values("model", "purpose")
        .annotate(
            calls=Count("pk"),
            failed=Count("pk", filter=~Q(error="")),
            tokens=Sum("prompt_tokens") + Sum("completion_tokens"),
            cost=Sum("cost_usd"),
        )
    )
    by_model: dict[str, list[Mapping[str, Any]]] = defaultdict(list)  # Any: numbers
    for row in rows:
        by_model[row["model"]].append(row)
    found = [
        ModelUse(
            model=model,
            purposes=", ".join(sorted(row["purpose"] for row in uses)),
            calls=sum(row["calls"] for row in uses),
            failed=sum(row["failed"] for row in uses),
            tokens=sum(row["tokens"] or 0 for row in uses),
            cost_usd=sum(row["cost"] or 0 for row in uses),
        )
        for model, uses in by_model.items()
    ]
    return tuple(sorted(found, key=lambda use: -use.tokens))


def _reasons(first: date) -> tuple[tuple[str, int], ...]:
    rows = (
        Feedback.objects.filter(created_at__date__gte=first, helpful=False)
        .order_by()
        .values("reason")
        .annotate(number=Count("pk"))
    )
    found = [(FEEDBACK_REASONS.get(row["reason"], "No reason given"), int(row["number"])) for row in rows]
    return tuple(sorted(found, key=lambda entry: (-entry[1], entry[0])))
