"""Which waiting build goes first: places in a queue, kept in our own rows because brokers only know first come.

A place is a moment, the earliest goes first. It is now, less a head start for what people and webhooks ask for, plus
the time that builds of the same repository took within the last hour: a repository that is pushed to every minute
waits behind those that have had less, and what waits long goes ahead of what comes later, whoever asked.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import F, QuerySet
from django.utils import timezone

from indexing.models import Index, Job

HEAD_START = {
    Job.Priority.REFRESH: timedelta(0),
    Job.Priority.PUSH: timedelta(minutes=5),
    Job.Priority.PERSON: timedelta(minutes=30),
}
REMEMBERED = timedelta(hours=1)


def place(repository_id: int, priority: Job.Priority) -> datetime:
    now = timezone.now()
    recent = Index.objects.filter(repository=repository_id, finished_at__gt=now - REMEMBERED, started_at__isnull=False)
    had = sum((row.took for row in recent.annotate(took=F("finished_at") - F("started_at"))), timedelta(0))
    return now - HEAD_START[priority] + min(had, REMEMBERED)


def in_line(queue: str) -> QuerySet[Job]:
    return Job.objects.filter(state=Job.State.QUEUED, queue=queue).order_by("due_at", "pk")


def any_wait() -> bool:
    """In any queue."""
    return Job.objects.filter(state=Job.State.QUEUED).exists()


def others_wait(index_id: int) -> bool:
    """In the same queue as this build."""
    queue = Job.objects.filter(index=index_id).values_list("queue", flat=True).first()
    return in_line(queue or Job.Queue.BUILDS).exclude(index_id=index_id).exists()


def move_up(index: Index, priority: Job.Priority) -> None:
    """A waiting build is asked for again, perhaps by somebody whose wishes count more, or for newer commits."""
    waiting = Job.objects.filter(index=index, state=Job.State.QUEUED)
    due_at = place(index.repository_id, priority)
    waiting.filter(queue=Job.Queue.DESCRIPTIONS).update(queue=Job.Queue.BUILDS, priority=priority, due_at=due_at)
    waiting.filter(priority__lt=priority).update(priority=priority, due_at=due_at)


def send_back(index_id: int, *, queue: Job.Queue, behind: timedelta = timedelta(0)) -> None:
    """A build that was handed back takes a new place, so far behind what comes now."""
    Job.objects.filter(index=index_id, state=Job.State.QUEUED).update(
        queue=queue, due_at=timezone.now() + behind, again=False
    )
    Index.objects.filter(pk=index_id).update(status=Index.Status.QUEUED)
