"""Stored evaluation runs, so that figures can be compared over time, and the questions that team leads measure with."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import models

from indexing.models import Repository
from search.comparing import Key
from search.errors import EvaluationError
from search.metrics import Target, parse_target


class EvaluationRun(models.Model):
    created_at = models.DateTimeField(auto_now_add=True)
    commit = models.CharField(max_length=64, blank=True, help_text="Commit of this project that was measured")
    options = models.JSONField(default=dict, help_text="What was asked for on the command line")
    ndcg_at_10 = models.FloatField()
    queries = models.PositiveIntegerField()
    report = models.JSONField(help_text="The whole report, per query included")

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M} NDCG@10 {self.ndcg_at_10:.3f} over {self.queries}"

    @property
    def figures(self) -> dict[Key, float]:
        """NDCG@10 of each question, for comparisons."""
        return {(row["repository"], row["query"]): row["ndcg_at_10"] for row in self.report.get("per_query", [])}


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
