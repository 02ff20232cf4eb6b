"""Celery tasks of indexing: build the index that is first in line, and put interrupted builds back into the queue.

A message only wakes a worker. Which build is next is decided by its place (`queueing`), whether there is something to
do by its lease (`leases`), so a message that is lost, late or delivered twice does no harm. It is acknowledged before
the work, because brokers deliver again what stays unacknowledged as long as a build may take.
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

from indexing import leases, queueing, sharing
from indexing.leases import MAX_ATTEMPTS, MESSAGE_SECONDS, holder_is_dead
from indexing.models import Index, Job

TRIED_AT_ONCE = 5  # of those in line, when other workers are quicker

log = logging.getLogger(__name__)


def _stop(**_signal: object) -> None:
    leases.stopping.set()


worker_shutting_down.connect(_stop)  # a build hands itself back between two batches


@shared_task(acks_late=False)  # type: ignore[untyped-decorator]  # Celery has no types
def build(queue: str = Job.Queue.BUILDS) -> None:
    """One build of this queue; a second worker is woken when more of them wait."""
    from indexing.building import run_build

    for index_id in queueing.in_line(queue).values_list("index_id", flat=True)[:TRIED_AT_ONCE]:
        if queueing.in_line(queue).exclude(index_id=index_id).exists():
            _send(queue)
        if run_build(index_id, gives_way=True):
            return


@shared_task(acks_late=False)  # type: ignore[untyped-decorator]
def help_builds() -> None:
    """Embed for a large build of another worker until there is nothing left or a build waits."""
    from indexing.helping import help_builds

    help_builds()


def call_helper() -> None:
    """Wake a worker that has nothing to build. Who is busy for long need not hear of it later."""
    try:
        help_builds.apply_async((), queue=Job.Queue.BUILDS, retry=False, expires=sharing.CALL_SECONDS)
    except (OperationalError, OSError):
        log.warning("the broker did not take a call for help")


def enqueue(index_id: int) -> None:
    """Wake a worker for a queued build. Without a broker that is logged: `recover_jobs` does it later."""
    waiting = Job.objects.filter(index_id=index_id, state=Job.State.QUEUED)
    queue = waiting.values_list("queue", flat=True).first()
    if queue and waiting.update(leased_until=timezone.now() + timedelta(seconds=MESSAGE_SECONDS)):
        _send(queue)


def _send(queue: str) -> None:
    try:
        build.apply_async((queue,), queue=queue, retry=False)
    except (OperationalError, OSError):
        log.exception("the broker did not take a message for the queue %s", queue)


def recover_jobs() -> list[int]:
    """Called when a worker starts and every few seconds. Returns the index ids it put back into the queue.

    A build whose worker died is queued again, and parked when MAX_ATTEMPTS workers in a row died without getting it
    further; one that was cancelled while nobody worked on it ends.
    """
    for job in _interrupted().select_related("index"):
        reached = job.index.chunks_done + job.index.descriptions_done
        got_further = reached > job.furthest
        if job.cancel_requested:
            _end(job, Job.State.CANCELLED, Index.Status.CANCELLED, "Stopped on request.")
        elif job.attempts >= MAX_ATTEMPTS and not got_further:
            log.error("index %d is parked: its workers ended %d times", job.index_id, job.attempts)
            _end(job, Job.State.PARKED, Index.Status.FAILED, _exhausted(job))
        else:
            log.warning("the worker %s of index %d is gone; the build is queued again", job.holder, job.index_id)
            again = {"state": Job.State.QUEUED, "holder": "", "leased_until": None}
            _same(job).update(**again, **({"attempts": 0, "furthest": reached} if got_further else {}))
    for job in Job.objects.filter(state=Job.State.QUEUED, cancel_requested=True).select_related("index"):
        _end(job, Job.State.CANCELLED, Index.Status.CANCELLED, "Stopped on request.")
    return [index_id for queue in Job.Queue.values for index_id in _wake(queue)]


def _wake(queue: str) -> list[int]:
    """One message for all builds that have waited too long for theirs: a worker that takes one wakes the next."""
    silent = queueing.in_line(queue).filter(Q(leased_until=None) | Q(leased_until__lt=timezone.now()))
    index_ids = list(silent.values_list("index_id", flat=True))
    again_at = timezone.now() + timedelta(seconds=MESSAGE_SECONDS)
    if silent.update(leased_until=again_at):  # one of several schedulers
        _send(queue)
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
