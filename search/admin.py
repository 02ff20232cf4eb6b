"""Evaluation for team leads: stored runs, read-only, and the questions that they measure their own code with.

A person sees and names only repositories that they may read.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import ForeignKey, QuerySet
from django.forms import ModelChoiceField
from django.http import HttpRequest

from indexing.access import Principal
from indexing.admin import AuditedAdmin, RecordAdmin
from indexing.models import Repository
from search.models import EvaluationRun, Question, QuestionSet, read_whole_by


@admin.register(EvaluationRun)
class EvaluationRunAdmin(RecordAdmin):
    list_display = ("created_at", "ndcg_at_10", "queries", "commit")
    date_hierarchy = "created_at"

    def get_queryset(self, request: HttpRequest) -> QuerySet[EvaluationRun]:
        """A report is shown whole or not at all; parts of it are on the evaluation page."""
        principal = Principal.of_user(request.user)
        runs = EvaluationRun.objects.all()
        return runs if principal.sees_all else runs.filter(pk__in=read_whole_by(principal))


class QuestionInline(admin.TabularInline):
    model = Question
    extra = 3

    def get_queryset(self, request: HttpRequest) -> QuerySet[Question]:
        return Question.objects.filter(repository__in=_readable(request))

    def formfield_for_foreignkey(
        self,
        db_field: ForeignKey[Any, Any],  # Any: of any model
        request: HttpRequest,
        **kwargs: Any,  # Any: keyword arguments of the field
    ) -> ModelChoiceField | None:
        if db_field.name == "repository":
            kwargs["queryset"] = _readable(request).order_by("name")
        return super().formfield_for_foreignkey(db_field, request, **kwargs)


@admin.register(QuestionSet)
class QuestionSetAdmin(AuditedAdmin):
    list_display = ("name", "description", "question_count")
    search_fields = ("name",)
    inlines = (QuestionInline,)

    @admin.display(description="questions")
    def question_count(self, question_set: QuestionSet) -> int:
        return question_set.questions.count()


def _readable(request: HttpRequest) -> QuerySet[Repository]:
    return Repository.objects.visible_to(Principal.of_user(request.user))
