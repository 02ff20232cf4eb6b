"""The staff's dashboard: how the assistant is used, what it costs, and which answers did not help.

Counts are for all staff. What a person asked is shown only with STAFF_SEES_QUESTIONS, and only for answers made from
code that the looking person may read.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from assistant.admin import readable_conversations
from assistant.models import Feedback, Message
from assistant.usage import UNANSWERED, usage
from assistant.usage_charts import days_chart, stages_chart, weeks_chart

PERIODS = (7, 30, 90)
LISTED = 30


@require_GET
def dashboard(request: HttpRequest) -> HttpResponse:
    if not getattr(request.user, "is_staff", False):
        raise Http404
    asked = request.GET.get("days", "")
    days = int(asked) if asked in map(str, PERIODS) else 30
    found = usage(days)
    context = {
        "usage": found,
        "days": days,
        "periods": PERIODS,
        "days_chart": days_chart(found.days),
        "weeks_chart": weeks_chart(found.weeks),
        "stages_chart": stages_chart(found.stages),
        "names_shown": settings.STAFF_SEES_QUESTIONS,
        "not_helpful": _not_helpful(request),
        "unanswered": _unanswered(request) if settings.STAFF_SEES_QUESTIONS else [],
    }
    return render(request, "dashboard.html", context)


def _not_helpful(request: HttpRequest) -> list[tuple[Feedback, Message | None]]:
    """The newest ones; with the question only where policy and rights allow it."""
    rows = list(Feedback.objects.filter(helpful=False).order_by("-created_at")[:LISTED])
    shown = _shown(request).in_bulk([row.message_id for row in rows]) if settings.STAFF_SEES_QUESTIONS else {}
    return [(row, shown.get(row.message_id)) for row in rows]


def _unanswered(request: HttpRequest) -> list[Message]:
    return list(_shown(request).filter(UNANSWERED).order_by("-created_at")[:LISTED])


def _shown(request: HttpRequest) -> QuerySet[Message, Any]:  # Any: the row type
    mine = Message.objects.filter(conversation__in=readable_conversations(request))
    return mine.select_related("conversation__owner")
