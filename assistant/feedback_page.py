"""What people said of answers, for staff: as a file, and as the beginning of an evaluation question.

Only about answers made from code that the looking person may read. What was asked, and by whom, is there only with
STAFF_SEES_QUESTIONS; so a question can be taken over into an evaluation only then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from assistant.admin import readable_conversations
from assistant.models import Citation, Feedback, Message
from assistant.tables import csv_response
from indexing.access import Principal
from indexing.audit import record
from indexing.models import Repository
from search.models import Question, QuestionSet

MAX_ROWS = 50_000
DEFAULT_SET = "Rated badly"
COLUMNS = ("at", "helpful", "reason", "comment", "answered_by", "mode", "repositories")
COLUMNS_WITH_NAMES = (*COLUMNS, "question", "asked_by")

Json = dict[str, Any]  # Any: JSON


def readable_feedback(request: HttpRequest) -> QuerySet[Feedback]:
    mine = Feedback.objects.filter(message__conversation__in=readable_conversations(request))
    return mine.select_related("message__conversation__owner").order_by("-created_at")


@require_GET
def export_csv(request: HttpRequest) -> HttpResponse:
    rows = _exported(request)
    columns = COLUMNS_WITH_NAMES if settings.STAFF_SEES_QUESTIONS else COLUMNS
    return csv_response("feedback.csv", columns, ([_cell(row[name]) for name in columns] for row in rows))


@require_GET
def export_json(request: HttpRequest) -> HttpResponse:
    response = JsonResponse({"feedback": _exported(request)}, json_dumps_params={"indent": 1, "ensure_ascii": False})
    response["Content-Disposition"] = 'attachment; filename="feedback.json"'
    return response


def _exported(request: HttpRequest) -> list[Json]:
    if not getattr(request.user, "is_staff", False):
        raise Http404
    rows = list(readable_feedback(request)[:MAX_ROWS])
    record(request.user, "feedback exported", f"{len(rows)} rows")
    repositories = _cited_repositories(row.message_id for row in rows)
    return [_row(row, repositories.get(row.message_id, [])) for row in rows]


def _cited_repositories(message_ids: Iterable[UUID]) -> dict[UUID, list[str]]:
    found: dict[UUID, list[str]] = {}
    rows = Citation.objects.filter(message__in=set(message_ids), cited=True, repository__isnull=False)
    for message_id, name in rows.values_list("message", "repository__name").order_by("repository__name").distinct():
        found.setdefault(message_id, []).append(name)
    return found


def _row(row: Feedback, repositories: list[str]) -> Json:
    message = row.message
    shown = {
        "at": row.created_at.isoformat(),
        "helpful": row.helpful,
        "reason": row.reason,
        "comment": row.comment,
        "answered_by": message.answered_by,
        "mode": message.mode,
        "repositories": repositories,
    }
    if settings.STAFF_SEES_QUESTIONS:
        shown |= {"question": message.question, "asked_by": message.conversation.owner.get_username()}
    return shown


def _cell(value: object) -> object:
    return ", ".join(value) if isinstance(value, list) else value


class EvaluationQuestionForm(forms.ModelForm):  # type: ignore[type-arg]  # takes none at run time
    set_name = forms.CharField(max_length=100, label="Set", help_text="A new name makes a new set")

    class Meta:
        model = Question
        fields = ("query", "repository", "relevant")
        labels = {"query": "Question", "relevant": "What answers it"}
        widgets = {"query": forms.Textarea(attrs={"rows": 3}), "relevant": forms.Textarea(attrs={"rows": 6})}


@require_http_methods(["GET", "POST"])
def add_question(request: HttpRequest, message_id: UUID) -> HttpResponse:
    """The form comes filled in with the question and the passages it was answered from, to be corrected and saved."""
    message = _askable(request, message_id)
    form = EvaluationQuestionForm(request.POST or None, initial=_initial(message))
    form.fields["repository"].queryset = _repositories(request, message)  # type: ignore[attr-defined]  # ModelChoiceField
    if request.method == "POST" and form.is_valid():
        question = form.save(commit=False)
        question.question_set, _created = QuestionSet.objects.get_or_create(name=form.cleaned_data["set_name"])
        question.save()
        record(request.user, "evaluation question added", question.question_set)
        messages.success(request, f"Added to {question.question_set}. manage.py evaluate --set measures it.")
        return redirect("evaluation")
    context = {
        "form": form,
        "message": message,
        "feedback": message.feedback.filter(helpful=False).first(),
        "sets": QuestionSet.objects.values_list("name", flat=True),
        "action": reverse("add_evaluation_question", args=[message.pk]),
    }
    return render(request, "evaluation_question.html", context, status=422 if form.errors else 200)


def _askable(request: HttpRequest, message_id: UUID) -> Message:
    user = request.user
    if not (
        getattr(user, "is_staff", False) and user.has_perm("search.add_question") and settings.STAFF_SEES_QUESTIONS
    ):
        raise Http404
    return get_object_or_404(Message, pk=message_id, conversation__in=readable_conversations(request))


def _repositories(request: HttpRequest, message: Message) -> QuerySet[Repository]:
    """Those of the answer's passages; all readable ones when it had none."""
    readable = Repository.objects.visible_to(Principal.of_user(request.user)).order_by("name")
    cited = readable.filter(pk__in=message.citations.values("repository"))
    return cited if cited.exists() else readable


def _initial(message: Message) -> Json:
    rows = message.citations.filter(attempt=message.attempt, repository__isnull=False).order_by("-cited", "number")
    best = rows.first()
    places = [f"{row.display_path}:{row.start_line}-{row.end_line}" for row in rows if best and _same(row, best)]
    return {
        "query": message.question[:2000],
        "repository": best.repository_id if best else None,
        "relevant": "\n".join(dict.fromkeys(places)),
        "set_name": DEFAULT_SET,
    }


def _same(row: Citation, best: Citation) -> bool:
    return row.repository_id == best.repository_id and row.cited == best.cited
