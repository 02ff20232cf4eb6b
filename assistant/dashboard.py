"""The staff's dashboard: how the assistant is used, what it costs, and which answers did not help.

Counts are for all staff. Opinions are listed for answers made from code that the looking person may read, and what a
person asked only with STAFF_SEES_QUESTIONS.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from assistant.admin import readable_conversations
from assistant.citation_uses import citation_uses
from assistant.feedback_page import readable_feedback
from assistant.models import Feedback, Message
from assistant.usage import UNANSWERED, usage
from assistant.usage_charts import days_chart, stages_chart, uses_chart, weeks_chart
from indexing.access import Principal

PERIODS = (7, 30, 90)
LISTED = 30


@require_GET
def dashboard(request: HttpRequest) -> HttpResponse:
    if not getattr(request.user, "is_staff", False):
        raise Http404
    asked = request.GET.get("days", "")
    days = int(asked) if asked in map(str, PERIODS) else 30
    found = usage(days)
    uses = citation_uses(days, Principal.of_user(request.user))
    context = {
        "usage": found,
        "days": days,
        "periods": PERIODS,
        "days_chart": days_chart(found.days),
        "weeks_chart": weeks_chart(found.weeks),
        "stages_chart": stages_chart(found.stages),
        "uses": uses,
        "uses_chart": uses_chart(uses),
        "names_shown": settings.STAFF_SEES_QUESTIONS,
        "not_helpful": _not_helpful(request),
        "may_add": settings.STAFF_SEES_QUESTIONS and request.user.has_perm("search.add_question"),
        "unanswered": _unanswered(request) if settings.STAFF_SEES_QUESTIONS else [],
    }
    return render(request, "dashboard.html", context)


def _not_helpful(request: HttpRequest) -> list[Feedback]:
    """The newest ones about code that the looking person may read."""
    return list(readable_feedback(request).filter(helpful=False)[:LISTED])


def _unanswered(request: HttpRequest) -> list[Message]:
    return list(_shown(request).filter(UNANSWERED).order_by("-created_at")[:LISTED])


def _shown(request: HttpRequest) -> QuerySet[Message, Any]:  # Any: the row type
    mine = Message.objects.filter(conversation__in=readable_conversations(request))
    return mine.select_related("conversation__owner")
