"""Stored evaluation runs, so that figures can be compared over time."""

from __future__ import annotations

from django.db import models

from search.comparing import Key


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
