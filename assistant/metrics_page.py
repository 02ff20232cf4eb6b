"""`/metrics` for Prometheus: what this process counted, and what the database says about queues, indexes and costs.

Gauges from the database are the same in every web process; counters are each process's own, so each is a target.
Shown to whoever sends METRICS_TOKEN; without one set, to this machine only, and never through a proxy.
"""

from __future__ import annotations

import hmac
import ipaddress
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db.models import Count, F, Min, Q, Sum
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Gauge, generate_latest

from assistant.models import Callback, LeasedJob, Message, SlackJob
from indexing.models import Index, Job, LLMCall, Repository
from search import index_cache


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not _may_read(request):
        raise Http404
    return HttpResponse(generate_latest(REGISTRY) + generate_latest(_of_the_database()), CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    if settings.METRICS_TOKEN:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return hmac.compare_digest(given.encode(), settings.METRICS_TOKEN.encode())
    try:
        here = ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
    return here and "X-Forwarded-For" not in request.headers


def _of_the_database() -> CollectorRegistry:
    registry = CollectorRegistry()
    _queues(registry)
    _indexes(registry)
    _models(registry)
    _deliveries(registry)
    unfinished = Message.objects.filter(state__in=(Message.State.QUEUED, Message.State.RUNNING)).count()
    Gauge("assistant_answers_unfinished", "Questions whose answer is not over", registry=registry).set(unfinished)
    open_indexes = Gauge("assistant_index_cache_open", "Indexes this process holds open", registry=registry)
    open_indexes.set(index_cache.size())
    return registry


def _queues(registry: CollectorRegistry) -> None:
    jobs = Gauge("assistant_jobs", "Builds by queue and state", ["queue", "state"], registry=registry)
    oldest = Gauge("assistant_queue_oldest_seconds", "Age of the job that waits longest", ["queue"], registry=registry)
    for queue in Job.Queue.values:
        oldest.labels(queue).set(0)
        for state in (Job.State.QUEUED, Job.State.RUNNING, Job.State.PARKED):
            jobs.labels(queue, state.value).set(0)
    open_jobs = Job.objects.filter(state__in=(Job.State.QUEUED, Job.State.RUNNING, Job.State.PARKED))
    for row in open_jobs.values("queue", "state").annotate(jobs=Count("pk"), first=Min("created_at")).order_by():
        jobs.labels(row["queue"], row["state"]).set(row["jobs"])
        if row["state"] == Job.State.QUEUED:
            oldest.labels(row["queue"]).set((timezone.now() - row["first"]).total_seconds())


def _indexes(registry: CollectorRegistry) -> None:
    repositories = Gauge("assistant_repositories", "By what can be asked of them", ["state"], registry=registry)
    counts = Repository.objects.aggregate(
        all=Count("pk"),
        searchable=Count("pk", filter=Q(current_index__isnull=False)),
        behind=Count("pk", filter=Q(commits_behind__gt=0)),
        unreachable=Count("pk", filter=~Q(check_error="")),
    )
    for state, count in counts.items():
        repositories.labels(state).set(count)
    age = Gauge(
        "assistant_index_age_seconds", "Since the source was last compared with its index", ["which"], registry=registry
    )
    checked = Repository.objects.filter(current_index__isnull=False, checked_at__isnull=False).order_by("checked_at")
    ages = checked.annotate(age=Now() - F("checked_at")).values_list("age", flat=True)
    for which, place in (("oldest", 0), ("median", ages.count() // 2)):
        seconds = ages[place].total_seconds() if ages else 0.0
        age.labels(which).set(max(0.0, seconds))
    size = Index.objects.filter(pk__in=Repository.objects.values("current_index")).aggregate(
        bytes=Sum("size_bytes"), chunks=Sum("chunks_done")
    )
    Gauge("assistant_index_bytes", "Of all published indexes", registry=registry).set(size["bytes"] or 0)
    Gauge("assistant_index_chunks", "Of all published indexes", registry=registry).set(size["chunks"] or 0)


def _deliveries(registry: CollectorRegistry) -> None:
    labels = ["kind", "state"]
    gauge = Gauge("assistant_deliveries", "Open ones, and those that failed within a day", labels, registry=registry)
    failed = Q(state=LeasedJob.State.FAILED, finished_at__gte=timezone.now() - timedelta(days=1))
    for kind, model in (("slack", SlackJob), ("callback", Callback)):
        gauge.labels(kind, "open").set(model._default_manager.filter(finished_at=None).count())
        gauge.labels(kind, "failed").set(model._default_manager.filter(failed).count())


def _models(registry: CollectorRegistry) -> None:
    """Of the last hour, over all processes; workers, which have no page of metrics, call models as well."""
    labels = ["purpose", "model"]
    hour = LLMCall.objects.filter(created_at__gte=timezone.now() - timedelta(hours=1))
    rows = hour.values("purpose", "model").annotate(
        calls=Count("pk"),
        errors=Count("pk", filter=~Q(error="")),
        tokens=Sum(F("prompt_tokens") + F("completion_tokens")),
        cost=Sum("cost_usd"),
    )
    gauges = {
        "calls": Gauge("assistant_llm_hour_calls", "Calls within the last hour", labels, registry=registry),
        "errors": Gauge("assistant_llm_hour_errors", "Failed calls within the last hour", labels, registry=registry),
        "tokens": Gauge("assistant_llm_hour_tokens", "Tokens within the last hour", labels, registry=registry),
        "cost": Gauge("assistant_llm_hour_cost_usd", "Price of the last hour's calls", labels, registry=registry),
    }
    for purpose, model, *values in rows.order_by().values_list(*labels, *gauges):
        for gauge, value in zip(gauges.values(), values, strict=True):
            gauge.labels(purpose, model).set(value or 0)
