"""The Celery application; `celery -A assistant worker` starts it.

A worker that is ready looks for builds whose worker died, at once and then again and again: brokers lose messages,
the leases in our own tables do not (see indexing/tasks.py). In a second thread, because a host may take its time to
answer, it asks the sources of repositories for new commits (see indexing/refreshing.py).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from celery import Celery
from celery.signals import worker_ready, worker_shutting_down

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")

RECOVERY_SECONDS = 15.0
REFRESH_SECONDS = 20.0

log = logging.getLogger(__name__)
_stopping = threading.Event()

app = Celery("assistant")
app.set_default()  # for every thread: "current" is thread-local, and views run in threads
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def _start_loops(**_signal: object) -> None:
    from assistant.tasks import recover_answers
    from indexing.refreshing import refresh_due
    from indexing.tasks import recover_jobs

    loops: tuple[tuple[Callable[[], object], float], ...] = (
        (recover_jobs, RECOVERY_SECONDS),
        (recover_answers, RECOVERY_SECONDS),
        (refresh_due, REFRESH_SECONDS),
    )
    for work, seconds in loops:
        threading.Thread(target=_repeat, args=(work, seconds), daemon=True).start()


def _stop_loops(**_signal: object) -> None:
    _stopping.set()


worker_ready.connect(_start_loops)
worker_shutting_down.connect(_stop_loops)


def _repeat(work: Callable[[], object], seconds: float) -> None:
    """Until the worker ends. Whatever goes wrong once, the next round may go well."""
    from django.db import close_old_connections

    while True:
        try:
            work()
        except Exception:
            log.exception("%r failed; trying again in %.0f s", work, seconds)
        close_old_connections()
        if _stopping.wait(seconds):
            return
