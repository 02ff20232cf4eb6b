"""Celery tasks of indexing: build one index, and put builds that were interrupted back into the queue.

A message only says "look at this build"; whether there is something to do is decided by the lease (`leases`), so a
message that is lost, late or delivered twice does no harm.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from celery import shared_task
from celery.signals import worker_shutting_down
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from indexing import leases
from indexing.leases import MAX_ATTEMPTS, MESSAGE_SECONDS, holder_is_dead
from indexing.models import Index, Job

log = logging.getLogger(__name__)


def _stop(**_signal: object) -> None:
    leases.stopping.set()


worker_shutting_down.connect(_stop)  # a build hands itself back between two batches


@shared_task(acks_late=True)  # type: ignore[untyped-decorator]  # Celery has no types
def build(index_id: int) -> None:
    from indexing.building import run_build

    run_build(index_id, gives_way=True)


def enqueue(index_id: int) -> None:
    """Send the message of a queued build. Without a broker it is logged: `recover_jobs` sends it again later."""
    again_at = timezone.now() + timedelta(seconds=MESSAGE_SECONDS)
    if not Job.objects.filter(index_id=index_id, state=Job.State.QUEUED).update(leased_until=again_at):
        return
    try:
        build.delay(index_id)
    except (OperationalError, OSError):
        log.exception("the queue did not take the build of index %d", index_id)


def recover_jobs() -> list[int]:
    """Called when a worker starts and every few seconds. Returns the index ids it put back into the queue.

    A build whose worker died is queued again, at most MAX_ATTEMPTS times in all; one that was cancelled while nobody
    worked on it ends.
    """
    for job in _interrupted().select_related("index"):
        if job.cancel_requested:
            _end(job, Job.State.CANCELLED, Index.Status.CANCELLED, "Stopped on request.")
        elif job.attempts >= MAX_ATTEMPTS:
            _end(job, Job.State.FAILED, Index.Status.FAILED, _exhausted(job))
        else:
            log.warning("the worker %s of index %d is gone; the build is queued again", job.holder, job.index_id)
            _same(job).update(state=Job.State.QUEUED, holder="", leased_until=None)
    for job in Job.objects.filter(state=Job.State.QUEUED, cancel_requested=True).select_related("index"):
        _end(job, Job.State.CANCELLED, Index.Status.CANCELLED, "Stopped on request.")
    waiting = Job.objects.filter(Q(leased_until=None) | Q(leased_until__lt=timezone.now()), state=Job.State.QUEUED)
    index_ids = list(waiting.order_by("pk").values_list("index_id", flat=True))
    for index_id in index_ids:
        enqueue(index_id)
    return index_ids


def _interrupted() -> QuerySet[Job]:
    running = Job.objects.filter(state=Job.State.RUNNING)
    dead = [job.pk for job in running if holder_is_dead(job.holder)]
    return running.filter(Q(leased_until__lt=timezone.now()) | Q(pk__in=dead))


def _same(job: Job) -> QuerySet[Job]:
    """The row, if nothing happened to it since it was read."""
    return Job.objects.filter(pk=job.pk, state=job.state, holder=job.holder, attempts=job.attempts)


def _end(job: Job, state: Job.State, status: Index.Status, error: str) -> None:
    with transaction.atomic():
        if _same(job).update(state=state, leased_until=None):
            Index.objects.filter(pk=job.index_id).update(status=status, error=error, finished_at=timezone.now())


def _exhausted(job: Job) -> str:
    step = Index.Step(job.index.step).label if job.index.step else "starting"
    file = f", file {job.index.current_path}" if job.index.current_path else ""
    return (
        f"The worker ended {job.attempts} times in the middle of this build, the last time at step {step}{file}. "
        "Its log says why; often memory ran out. Retry goes on with what is embedded already."
    )
