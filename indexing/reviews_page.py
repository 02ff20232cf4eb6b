"""The staff's pages of chunk reviews: how the runs of `judge_chunks` went over time, and where each found something.

Rows are those of repositories that the person may read. Places are links into the viewer at the commit that was
reviewed; no source text is shown here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from indexing.access import Principal
from indexing.chunk_checks import CHECKS
from indexing.judging import BEST_MARK, MARKS
from indexing.links import blob_url
from indexing.models import ChunkReview, Repository

MAX_RUNS = 30  # of one repository, the newest
MAX_REVIEWS = 600
WIDTH, HEIGHT, MARGIN = 640, 170, 24

Json = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float
    said: str


@dataclass(frozen=True, slots=True)
class Series:
    """One mark of the rubric over the runs that gave marks, oldest first; `number` chooses its colour."""

    name: str
    number: int
    points: tuple[Point, ...]

    @property
    def line(self) -> str:
        return " ".join(f"{point.x},{point.y}" for point in self.points)


@dataclass(frozen=True, slots=True)
class Run:
    """A review, with counts for the table."""

    review: ChunkReview
    problems: int
    marks: tuple[tuple[str, float], ...]  # mean of each mark, from 1 to 5; empty without a sample


@dataclass(frozen=True, slots=True)
class Place:
    """`url` is empty for a path that cannot be told from how it is shown."""

    url: str
    path: str
    lines: str
    what: str
    said: str


@require_GET
def chunk_reviews(request: HttpRequest) -> HttpResponse:
    found: dict[Repository, list[ChunkReview]] = {}
    for review in _readable(request)[:MAX_REVIEWS]:
        found.setdefault(review.repository, []).append(review)
    cards = []
    for repository, reviews in found.items():
        runs = [_run(review) for review in reviews[:MAX_RUNS]]
        cards.append({"repository": repository, "runs": runs, "series": chart(runs[::-1])})
    grid = [(mark, _height(mark)) for mark in range(1, BEST_MARK + 1)]
    sizes = {"width": WIDTH, "height": HEIGHT, "margin": MARGIN}
    return render(request, "chunk_reviews.html", {"cards": cards, "grid": grid, "marks": MARKS, **sizes})


@require_GET
def chunk_review(request: HttpRequest, review_id: int) -> HttpResponse:
    review = get_object_or_404(_readable(request), pk=review_id)
    problems = [(_check_name(check), count) for check, count in review.problems.items()]
    context = {
        "run": _run(review),
        "problems": problems,
        "failing": [_failing(review, row) for row in review.examples],
        "sampled": [_sampled(review, row) for row in review.marked],
    }
    return render(request, "chunk_review.html", context)


def chart(runs: Sequence[Run]) -> list[Series]:
    """`runs` oldest first; those without marks are left out, and with them a chart that has no point."""
    judged = [run for run in runs if run.marks]
    step = (WIDTH - 2 * MARGIN) / max(1, len(judged) - 1)
    return [
        Series(
            name,
            number,
            tuple(
                Point(
                    x=round(MARGIN + place * step, 1),
                    y=_height(dict(run.marks)[name]),
                    said=f"{name} {dict(run.marks)[name]:.2f}, {run.review.created_at:%Y-%m-%d}",
                )
                for place, run in enumerate(judged)
            ),
        )
        for number, name in enumerate(MARKS, 1)
        if judged
    ]


def _readable(request: HttpRequest) -> QuerySet[ChunkReview]:
    if not getattr(request.user, "is_staff", False):
        raise Http404
    repositories = Repository.objects.visible_to(Principal.of_user(request.user))
    return ChunkReview.objects.filter(repository__in=repositories).select_related("repository")


def _run(review: ChunkReview) -> Run:
    marked = review.marked
    means = tuple((name, sum(row[name] for row in marked) / len(marked)) for name in MARKS) if marked else ()
    return Run(review, sum(review.problems.values()), means)


def _height(mark: float) -> float:
    """Of a mark in the chart, whose y grows downwards."""
    return round(HEIGHT - MARGIN / 2 - (mark - 1) / (BEST_MARK - 1) * (HEIGHT - MARGIN), 1)


def _failing(review: ChunkReview, row: Json) -> Place:
    line = row["line"]
    url = _url(review, row["path"], line, line)
    return Place(url, row["path"], str(line), _check_name(row["check"]), row["detail"])


def _check_name(check: str) -> str:
    return CHECKS.get(check, check)  # an older version may have had others


def _sampled(review: ChunkReview, row: Json) -> Place:
    first, last = row["start_line"], row["end_line"]
    marks = ", ".join(f"{name} {row[name]}" for name in MARKS)
    url = _url(review, row["path"], first, last)
    return Place(url, row["path"], f"{first}-{last}", f"{row['symbol'] or 'no name'}: {marks}", row["remark"])


def _url(review: ChunkReview, path: str, first: int, last: int) -> str:
    if "\\x" in path:  # bytes that are not UTF-8 are kept as they are shown
        return ""
    repository = review.repository
    return blob_url(repository.pk, repository.slug, review.commit, path.encode(), line_range=(first, last))
