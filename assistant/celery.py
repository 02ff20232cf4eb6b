"""The Celery application; `celery -A assistant worker` starts it.

A worker that is ready looks for builds whose worker died, at once and then again and again: brokers lose messages,
the leases in our own tables do not (see indexing/tasks.py).
"""

from __future__ import annotations

import logging
import os
import threading

from celery import Celery
from celery.signals import worker_ready, worker_shutting_down

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")

RECOVERY_SECONDS = 15.0

log = logging.getLogger(__name__)
_stopping = threading.Event()

app = Celery("assistant")
app.set_default()  # for every thread: "current" is thread-local, and views run in threads
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def _start_recovering(**_signal: object) -> None:
    threading.Thread(target=_recover_until_stopped, daemon=True).start()


def _stop_recovering(**_signal: object) -> None:
    _stopping.set()


worker_ready.connect(_start_recovering)
worker_shutting_down.connect(_stop_recovering)


def _recover_until_stopped() -> None:
    from django.db import DatabaseError, close_old_connections

    from indexing.tasks import recover_jobs

    while True:
        try:
            recover_jobs()
        except DatabaseError:
            log.exception("could not look for interrupted builds; trying again in %.0f s", RECOVERY_SECONDS)
        close_old_connections()
        if _stopping.wait(RECOVERY_SECONDS):
            return
