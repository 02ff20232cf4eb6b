from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from django.db import DatabaseError
from pytest_django import Settings

from assistant import celery, scheduling
from assistant import tasks as answer_tasks
from indexing import refreshing, tasks


@pytest.mark.django_db
def test_it_repeats_its_loops_until_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = threading.Event()
    looked: list[int] = []

    def work() -> None:
        looked.append(1)
        if len(looked) == 1:
            raise DatabaseError("locked")
        stopping.set()

    monkeypatch.setattr(scheduling, "stopping", stopping)
    scheduling._repeat(work, 0.01)
    assert len(looked) == 2


def test_it_recovers_builds_and_asks_sources_beside_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    called = {name: threading.Event() for name in ("recover_jobs", "refresh_due")}
    monkeypatch.setattr(tasks, "recover_jobs", called["recover_jobs"].set)
    monkeypatch.setattr(refreshing, "refresh_due", called["refresh_due"].set)
    stopping = threading.Event()
    stopping.set()
    monkeypatch.setattr(scheduling, "stopping", stopping)
    celery._start()
    assert all(event.wait(5) for event in called.values())


def test_it_recovers_answers_in_a_worker_that_has_no_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    called = {name: threading.Event() for name in ("recover_answers", "recover_jobs")}
    monkeypatch.setattr(answer_tasks, "recover_answers", called["recover_answers"].set)
    monkeypatch.setattr(tasks, "recover_jobs", called["recover_jobs"].set)
    stopping = threading.Event()
    stopping.set()
    monkeypatch.setattr(scheduling, "stopping", stopping)
    queues = SimpleNamespace(consume_from={"answers": object()})
    celery._start(SimpleNamespace(app=SimpleNamespace(amqp=SimpleNamespace(queues=queues))))
    assert called["recover_answers"].wait(5)
    assert not called["recover_jobs"].is_set()


def test_it_knows_the_tasks_of_the_apps() -> None:
    celery.app.loader.import_default_modules()
    assert "indexing.tasks.build" in celery.app.tasks


def test_it_sends_tasks_through_one_application_from_any_thread(settings: Settings) -> None:
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.append(tasks.build.app.conf.broker_url))
    thread.start()
    thread.join()
    assert seen == [settings.CELERY_BROKER_URL]
