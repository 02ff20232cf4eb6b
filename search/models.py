"""Stored evaluation runs, so that figures can be compared over time, and the questions that team leads measure with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.fields.json import KeyTransform

from indexing.access import Principal
from indexing.models import Repository
from search.comparing import Key
from search.errors import EvaluationError
from search.metrics import Target, parse_target

NAMING = ("repo", "golden")  # options that hold names of repositories


class EvaluationRunQuerySet(models.QuerySet["EvaluationRun"]):
    def with_figures(self) -> Self:
        """Without the report, which has a row for each question; only its figures of each repository."""
        return self.defer("report").annotate(per_repository=KeyTransform("per_repository", "report"))


class EvaluationRun(models.Model):
    created_at = models.DateTimeField(auto_now_add=True)
    commit = models.CharField(max_length=64, blank=True, help_text="Commit of this project that was measured")
    options = models.JSONField(default=dict, help_text="What was asked for on the command line")
    ndcg_at_10 = models.FloatField()
    queries = models.PositiveIntegerField()
    report = models.JSONField(help_text="The whole report, per query included")

    objects = EvaluationRunQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M} NDCG@10 {self.ndcg_at_10:.3f} over {self.queries}"

    @property
    def figures(self) -> dict[Key, float]:
        """NDCG@10 of each question, for comparisons."""
        return {(row["repository"], row["query"]): row["ndcg_at_10"] for row in self.report.get("per_query", [])}


def as_read_by(runs: Iterable[EvaluationRun], principal: Principal) -> list[EvaluationRun]:
    """Runs of `with_figures` as one person may see them, not to be saved: means over what they may read.

    A run of which they may read nothing is left out, and so are options that name other repositories.
    """
    rows = list(runs)
    if principal.sees_all and principal.repository_ids is None:  # a token with a list is narrowed, whoever made it
        return rows
    names = set(Repository.objects.visible_to(principal).values_list("name", flat=True))
    return [run for run in rows if _narrow(run, names)]


def read_whole_by(principal: Principal) -> list[int]:
    """Ids of runs all of whose repositories a person may read."""
    names = set(Repository.objects.visible_to(principal).values_list("name", flat=True))
    runs = EvaluationRun.objects.with_figures()
    return [run.pk for run in runs if (found := _figures_of(run)) and set(found) <= names]


def _figures_of(run: EvaluationRun) -> dict[str, dict[str, Any]]:  # Any: JSON
    return getattr(run, "per_repository", None) or {}


def _narrow(run: EvaluationRun, names: set[str]) -> bool:
    """False when nothing is left."""
    whole = _figures_of(run)
    seen = [figures for name, figures in whole.items() if name in names]
    queries = sum(figures["queries"] for figures in seen)
    if not queries:
        return False
    run.options = {key: value for key, value in run.options.items() if key not in NAMING or set(value) <= names}
    if len(seen) < len(whole):
        run.ndcg_at_10 = round(sum(figures["ndcg_at_10"] * figures["queries"] for figures in seen) / queries, 4)
        run.queries = queries
    return True


class QuestionSet(models.Model):
    """Questions with known answers that a team asks of its own code: `manage.py evaluate --set NAME`."""

    name = models.CharField(max_length=100, unique=True)
    description = models.TextField(blank=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Question(models.Model):
    question_set = models.ForeignKey(QuestionSet, on_delete=models.CASCADE, related_name="questions")
    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="+")
    query = models.CharField(max_length=2000)
    relevant = models.TextField(help_text="What answers it, one a line: a path, or a path with lines: src/app.py:10-24")

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.query

    @property
    def targets(self) -> tuple[Target, ...]:
        """Raises EvaluationError for lines that run backwards."""
        return tuple(parse_target(line) for line in self.relevant.splitlines() if line.strip())

    def clean(self) -> None:
        try:
            found = self.targets
        except EvaluationError as error:
            raise ValidationError({"relevant": str(error)}) from error
        if not found:
            raise ValidationError({"relevant": "Name at least one file."})
