"""Stored evaluation runs, newest first, so that a team lead sees whether search got better. Read-only."""

from __future__ import annotations

from django.contrib import admin

from indexing.admin import RecordAdmin
from search.models import EvaluationRun


@admin.register(EvaluationRun)
class EvaluationRunAdmin(RecordAdmin):
    list_display = ("created_at", "ndcg_at_10", "queries", "commit")
    date_hierarchy = "created_at"
