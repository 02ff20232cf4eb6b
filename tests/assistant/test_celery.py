from __future__ import annotations

import threading

import pytest
from django.db import DatabaseError

from assistant import celery
from indexing import tasks


def test_it_looks_for_interrupted_builds_until_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    looked: list[int] = []

    def recover_jobs() -> int:
        looked.append(1)
        if len(looked) == 1:
            raise DatabaseError("locked")
        stopping.set()
        return 0

    monkeypatch.setattr(tasks, "recover_jobs", recover_jobs)
    monkeypatch.setattr(celery, "_stopping", stopping)
    monkeypatch.setattr(celery, "RECOVERY_SECONDS", 0.01)
    celery._recover_until_stopped()
    assert len(looked) == 2


def test_it_knows_the_tasks_of_the_apps() -> None:
    celery.app.loader.import_default_modules()
    assert "indexing.tasks.build" in celery.app.tasks


def test_it_sends_tasks_through_one_application_from_any_thread() -> None:
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(tasks.build.app.conf.broker_url))
    thread.start()
    thread.join()
    assert seen == ["memory://"]
