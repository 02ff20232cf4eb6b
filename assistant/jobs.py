"""Who does a leased job: claimed by one conditional UPDATE, renewed while the worker lives, taken over when it died.

Brokers lose messages and deliver them twice; these rows decide. A message of the broker only says "look at this
job". `recover` sends it again for what is due, and puts into the queue what a dead worker left. Knows nothing of
what a job does.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from django.db import DatabaseError, connection
from django.db.models import F, Q
from django.utils import timezone
from kombu.exceptions import OperationalError

from assistant.models import LeasedJob
from indexing.leases import holder_is_dead

LEASE_SECONDS = 60
HEARTBEAT_SECONDS = 10
DIED = "Whichever worker took it ended without a word, each time: see its log, and what the kernel says of memory."
MESSAGE_AGAIN = timedelta(seconds=60)  # a queued job that no worker has taken by then gets another message

log = logging.getLogger(__name__)


def send(job: LeasedJob, task: Callable[[int], object]) -> None:
    """Send the broker's message of a new job. Without a broker it is logged: `recover` sends it again."""
    try:
        task(job.pk)
    except (OperationalError, OSError):
        log.exception("the queue did not take %s %d", job._meta.verbose_name, job.pk)


def recover(model: type[LeasedJob], task: Callable[[int], object]) -> int:
    """Called when a worker starts and every few seconds. Returns how many jobs it sent to workers."""
    now = timezone.now()
    running = model._default_manager.filter(state=LeasedJob.State.RUNNING)
    dead = [holder for holder in running.values_list("holder", flat=True) if holder_is_dead(holder)]
    left = running.filter(Q(due_at__lt=now) | Q(holder__in=dead))
    left.update(state=LeasedJob.State.QUEUED, holder="", due_at=now)
    waiting = model._default_manager.filter(state=LeasedJob.State.QUEUED, due_at__lte=now).order_by("pk")
    sent = 0
    for job in waiting:
        mine = waiting.filter(pk=job.pk).update(due_at=now + MESSAGE_AGAIN)
        if mine:
            send(job, task)
            sent += 1
    return sent


def requeue(job: LeasedJob, task: Callable[[int], object]) -> bool:
    """Begin a job anew that was given up, with all of its attempts. False for one that was not."""
    failed = type(job)._default_manager.filter(pk=job.pk, state=LeasedJob.State.FAILED)
    due_at = timezone.now() + MESSAGE_AGAIN
    begun = failed.update(state=LeasedJob.State.QUEUED, holder="", attempts=0, finished_at=None, due_at=due_at)
    if begun:
        send(job, task)
    return begun > 0


def claim(model: type[LeasedJob], pk: int) -> Lease | None:
    """The right to do the job, or None: it is done, or another worker has it."""
    now = timezone.now()
    holder = f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(4)}"
    free = Q(state=LeasedJob.State.QUEUED) | Q(state=LeasedJob.State.RUNNING, due_at__lt=now)
    claimed = model._default_manager.filter(free, pk=pk).update(
        state=LeasedJob.State.RUNNING, holder=holder, attempts=F("attempts") + 1, due_at=_lease_end()
    )
    return Lease(model, pk, holder) if claimed else None


class Lease:
    """Use as a context manager: it is renewed in the background until the block ends."""

    def __init__(self, model: type[LeasedJob], pk: int, holder: str) -> None:
        self._mine = model._default_manager.filter(pk=pk, holder=holder, state=LeasedJob.State.RUNNING)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def held(self) -> bool:
        """False once another worker has taken the job over: then nothing more may be done for it."""
        return self._mine.exists()

    def save(self, **values: Any) -> bool:  # Any: fields of the job
        return self._mine.update(**values) > 0

    def finish(self, *, failed: str = "", **values: Any) -> bool:  # Any: fields of the job
        state = LeasedJob.State.FAILED if failed else LeasedJob.State.DONE
        return self.save(state=state, error=failed[:1000], finished_at=timezone.now(), **values)

    def put_back(self, why: str, *, seconds: float, **values: Any) -> bool:  # Any: fields of the job
        """Into the queue, to be tried again later."""
        due_at = timezone.now() + timedelta(seconds=seconds)
        return self.save(state=LeasedJob.State.QUEUED, holder="", due_at=due_at, error=why[:1000], **values)

    def _keep_alive(self) -> None:
        while not self._ended.wait(HEARTBEAT_SECONDS):
            try:
                self._mine.update(due_at=_lease_end())
            except DatabaseError:
                log.warning("could not renew a lease; trying again", exc_info=True)
            finally:
                connection.close()


def _lease_end() -> Any:  # Any: django-stubs types the fields with combined expressions
    return timezone.now() + timedelta(seconds=LEASE_SECONDS)
