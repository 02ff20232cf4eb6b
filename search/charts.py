"""Evaluation runs -> charts over time: coordinates for an SVG that the template draws, without a script or a style.

Runs that were asked for in the same way share a chart; each stands at its place in time order, not at its date, so
that ten runs of one afternoon do not fall on one spot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from search.models import EvaluationRun

WIDTH, HEIGHT, MARGIN = 640, 160, 34
MAX_RUNS = 60  # newest of one chart
GRID_LINES = 3


@dataclass(frozen=True, slots=True)
class Point:
    run: EvaluationRun
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class GridLine:
    y: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`points` are in time order, in a box of WIDTH x HEIGHT whose y grows downwards."""

    title: str
    points: tuple[Point, ...]
    grid: tuple[GridLine, ...]

    @property
    def line(self) -> str:
        return " ".join(f"{point.x},{point.y}" for point in self.points)

    @property
    def newest_first(self) -> list[EvaluationRun]:
        return [point.run for point in reversed(self.points)]


def charts(runs: Iterable[EvaluationRun]) -> list[Chart]:
    """`runs` newest first; charts in the order of their newest run."""
    groups: dict[str, list[EvaluationRun]] = {}
    for run in runs:
        groups.setdefault(label(run.options), []).append(run)
    return [_chart(title, members[:MAX_RUNS][::-1]) for title, members in groups.items()]


def label(options: dict[str, Any]) -> str:  # Any: JSON
    """What was asked for, in words: "all repositories", "shop, cafe, no vectors"."""
    words = [str(options["set"])] if options.get("set") else []
    words += [", ".join(options["repo"])] if options.get("repo") else []
    words = words or ["all repositories"]
    words += [name.replace("_", " ") for name in ("no_vectors", "no_golden", "pooled", "plans") if options.get(name)]
    words += [f"golden {', '.join(options['golden'])}"] if options.get("golden") else []
    words += [f"{options['judge']} judge"] if options.get("judge") else []
    return ", ".join(words)


def _chart(title: str, runs: list[EvaluationRun]) -> Chart:
    low, high = _range([run.ndcg_at_10 for run in runs])
    step = (WIDTH - 2 * MARGIN) / max(1, len(runs) - 1)

    def height(value: float) -> float:
        return round(HEIGHT - MARGIN / 2 - (value - low) / (high - low) * (HEIGHT - MARGIN), 1)

    points = tuple(
        Point(run, round(MARGIN + place * step, 1), height(run.ndcg_at_10)) for place, run in enumerate(runs)
    )
    values = [low + (high - low) * number / (GRID_LINES - 1) for number in range(GRID_LINES)]
    return Chart(title, points, tuple(GridLine(height(value), f"{value:.3f}") for value in values))


def _range(values: list[float]) -> tuple[float, float]:
    """At least two hundredths high: noise in the fourth digit must not look like a cliff."""
    middle = (min(values) + max(values)) / 2
    half = max((max(values) - min(values)) / 2, 0.01)
    return middle - half, middle + half
