"""The Celery application; `celery -A assistant worker` starts it.

A worker of builds that is ready schedules as well (see scheduling.py), and one of answers recovers those: they need no
other process for that, and any number of schedulers may run at once.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import worker_ready, worker_shutting_down

from assistant import file_broker

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")

file_broker.use()
app = Celery("assistant")
app.set_default()  # for every thread: "current" is thread-local, and views run in threads
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def _start(sender: Any = None, **_signal: object) -> None:  # Any: Celery's consumer, which has no types
    from assistant import scheduling

    queues = {"builds"} if sender is None else set(sender.app.amqp.queues.consume_from)
    if "builds" in queues:
        scheduling.start()
    elif "answers" in queues:
        scheduling.start_for_answers()


def _stop(**_signal: object) -> None:
    from assistant import scheduling

    scheduling.stopping.set()


worker_ready.connect(_start)
worker_shutting_down.connect(_stop)
