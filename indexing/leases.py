"""Who works on a build: one row per build, held for a minute at a time and renewed while the worker lives.

Brokers lose messages and deliver them twice; these rows decide. Every change of holder is one conditional UPDATE, so
of two workers that want a build one gets it. A worker that lost its lease hears of it at its next `check`.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from datetime import timedelta
from types import TracebackType
from typing import Self

from django.db import DatabaseError, connection
from django.db.models import F, Q
from django.utils import timezone

from indexing.errors import BuildCancelled, LeaseLost
from indexing.models import Job

LEASE_SECONDS = 60
HEARTBEAT_SECONDS = 10
CHECK_SECONDS = 1.0
MESSAGE_SECONDS = 120  # a queued job that no worker has taken by then gets another message
MAX_ATTEMPTS = 3

log = logging.getLogger(__name__)
stopping = threading.Event()  # set when this worker was asked to end


class WorkerStopping(Exception):
    """This worker ends in order: the build goes on in the next one."""


class GivingWay(Exception):
    """Other builds wait and this one has had its turn: it goes on behind them."""


class DescribingLater(Exception):
    """The index is searchable; its descriptions are written by the workers of their own queue."""


def asked_again(index_id: int) -> bool:
    """Whether newer commits arrived while this build runs."""
    return Job.objects.filter(index_id=index_id, again=True).exists()


def new_holder() -> str:
    """A name that no other worker has, nor this one the next time."""
    return f"{socket.gethostname()[:60]}:{os.getpid()}:{secrets.token_hex(4)}"


def claim(index_id: int) -> Lease | None:
    """The right to build, or None: somebody else has it, it is over, was cancelled, or failed too often."""
    holder = new_holder()
    now = timezone.now()
    free = Q(state=Job.State.QUEUED) | Q(state=Job.State.RUNNING, leased_until__lt=now)
    claimed = Job.objects.filter(free, index_id=index_id, attempts__lt=MAX_ATTEMPTS, cancel_requested=False).update(
        state=Job.State.RUNNING,
        holder=holder,
        leased_until=now + timedelta(seconds=LEASE_SECONDS),
        heartbeat_at=now,
        attempts=F("attempts") + 1,
    )
    return Lease(index_id, holder) if claimed else None


def pardon(index_id: int) -> None:
    """The attempt before this one is not counted: what ended it is known by now, and is left out."""
    Job.objects.filter(index_id=index_id, state=Job.State.RUNNING, attempts__gt=1).update(attempts=F("attempts") - 1)


class Lease:
    """Use as a context manager: it is renewed in the background until the block ends."""

    def __init__(self, index_id: int, holder: str) -> None:
        self.index_id = index_id
        self.holder = holder
        self._stopping = threading.Event()
        self._checked_at = 0.0
        self._thread = threading.Thread(target=self._keep_alive, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def check(self) -> None:
        """Cheap enough for every file and batch: asks the database once a second.

        Raises BuildCancelled when a person asked for that, LeaseLost when another worker has the build, and
        WorkerStopping.
        """
        if stopping.is_set():
            raise WorkerStopping
        now = time.monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return
        self._checked_at = now
        found = Job.objects.filter(index_id=self.index_id, holder=self.holder, state=Job.State.RUNNING)
        cancelled = found.values_list("cancel_requested", flat=True).first()
        if cancelled is None:
            raise LeaseLost(f"Another worker has taken over the build of index {self.index_id}.")
        if cancelled:
            raise BuildCancelled("Stopped on request. What was indexed before stays searchable.")

    def end(self, state: Job.State) -> bool:
        """False when the lease was lost meanwhile: then the outcome is not this worker's to write."""
        mine = Job.objects.filter(index_id=self.index_id, holder=self.holder, state=Job.State.RUNNING)
        return mine.update(state=state, leased_until=None) > 0

    def hand_back(self) -> None:
        """Into the queue again; an orderly end does not count as an attempt."""
        mine = Job.objects.filter(index_id=self.index_id, holder=self.holder, state=Job.State.RUNNING)
        mine.update(state=Job.State.QUEUED, holder="", leased_until=None, attempts=F("attempts") - 1)

    def renew(self) -> None:
        now = timezone.now()
        Job.objects.filter(index_id=self.index_id, holder=self.holder, state=Job.State.RUNNING).update(
            leased_until=now + timedelta(seconds=LEASE_SECONDS), heartbeat_at=now
        )

    def _keep_alive(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            try:
                self.renew()
            except DatabaseError:
                log.warning("could not renew the lease of index %d; trying again", self.index_id, exc_info=True)
            finally:
                connection.close()


def holder_is_dead(holder: str) -> bool:
    """True when the worker ran on this machine and its process is gone: nobody has to wait for the lease to end."""
    host, _, rest = holder.partition(":")
    pid = rest.partition(":")[0]
    if host != socket.gethostname()[:60] or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
