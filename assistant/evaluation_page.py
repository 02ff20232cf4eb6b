"""How well search ranks over time, beside how people took the answers. For staff: counts and figures, no questions."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Count, Q
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from assistant.citation_uses import citation_uses
from assistant.models import Feedback, Message
from indexing.access import Principal
from search.charts import HEIGHT, MARGIN, WIDTH, charts
from search.models import EvaluationRun, as_read_by

USAGE_DAYS = 30
MAX_RUNS = 300


@require_GET
def evaluation(request: HttpRequest) -> HttpResponse:
    if not request.user.is_staff:
        raise Http404
    principal = Principal.of_user(request.user)
    runs = as_read_by(EvaluationRun.objects.with_figures()[:MAX_RUNS], principal)
    context = {
        "charts": charts(runs),
        "width": WIDTH,
        "height": HEIGHT,
        "margin": MARGIN,
        "usage": _usage(),
        "uses": citation_uses(USAGE_DAYS, principal),
        "days": USAGE_DAYS,
    }
    return render(request, "evaluation.html", context)


def _usage() -> dict[str, int]:
    since = timezone.now() - timedelta(days=USAGE_DAYS)
    asked = Message.objects.filter(created_at__gte=since).aggregate(
        questions=Count("pk"),
        failed=Count("pk", filter=Q(state=Message.State.FAILED)),
        extractive=Count("pk", filter=Q(state=Message.State.DONE, answered_by="")),
    )
    rated = Feedback.objects.filter(created_at__gte=since).aggregate(
        helped=Count("pk", filter=Q(helpful=True)), did_not_help=Count("pk", filter=Q(helpful=False))
    )
    return {**asked, **rated}
