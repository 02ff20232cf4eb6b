from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from celery.signals import worker_shutting_down
from django.utils import timezone

from indexing import leases, tasks
from indexing.building import request_build, run_build
from indexing.leases import MAX_ATTEMPTS, claim, holder_is_dead
from indexing.models import Index, Job
from indexing.tasks import build, enqueue, recover_jobs
from tests.factories import make_repo, make_repository

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queues that got a message."""
    messages: list[str] = []
    monkeypatch.setattr(tasks, "_send", messages.append)
    return messages


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return request_build(make_repository(url=str(make_repo(tmp_path, {}))))


def _expire(index: Index) -> None:
    Job.objects.filter(index=index).update(leased_until=timezone.now() - timedelta(seconds=1), holder="elsewhere:1:a")


def _dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_it_builds_what_waits_when_a_message_comes(index: Index) -> None:
    build("builds")
    index.refresh_from_db()
    assert (index.status, index.job.state, index.job.attempts) == ("empty", "done", 1)


def test_it_does_nothing_when_a_message_comes_twice(index: Index) -> None:
    assert run_build(index.pk) is True
    assert run_build(index.pk) is False
    assert Job.objects.get().attempts == 1


def test_it_ignores_a_message_about_an_index_that_was_removed(index: Index) -> None:
    index.delete()
    build("builds")


def test_it_puts_a_build_without_message_into_the_queue_once(index: Index, sent: list[str]) -> None:
    assert recover_jobs() == [index.pk]
    assert recover_jobs() == []
    assert sent == ["builds"]


def test_it_sends_another_message_when_the_first_was_lost(index: Index, sent: list[str]) -> None:
    enqueue(index.pk)
    _expire(index)
    recover_jobs()
    assert sent == ["builds", "builds"]


def test_it_keeps_the_job_when_there_is_no_broker(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError("no queue")

    monkeypatch.undo()
    monkeypatch.setattr(build, "apply_async", refuse)
    enqueue(index.pk)
    assert Job.objects.get().state == "queued"


def test_it_takes_over_when_a_lease_ran_out(index: Index, sent: list[str]) -> None:
    claim(index.pk)
    assert recover_jobs() == []
    _expire(index)
    assert recover_jobs() == [index.pk]
    assert run_build(index.pk) is True
    assert Job.objects.get().attempts == 2


def test_it_does_not_wait_for_the_lease_of_a_dead_process(index: Index, sent: list[str]) -> None:
    lease = claim(index.pk)
    assert lease is not None
    holder = lease.holder.replace(f":{os.getpid()}:", f":{_dead_pid()}:")
    Job.objects.update(holder=holder)
    assert recover_jobs() == [index.pk]


def test_it_knows_whether_a_holder_is_alive(index: Index) -> None:
    lease = claim(index.pk)
    assert lease is not None
    assert not holder_is_dead(lease.holder)
    assert holder_is_dead(lease.holder.replace(f":{os.getpid()}:", f":{_dead_pid()}:"))
    assert not holder_is_dead(f"another-machine:{_dead_pid()}:a")
    assert not holder_is_dead("")


def test_it_gives_up_a_build_that_kills_its_worker_again_and_again(index: Index, sent: list[str]) -> None:
    for _ in range(MAX_ATTEMPTS):
        assert claim(index.pk) is not None
        Index.objects.filter(pk=index.pk).update(status="building", step="chunk", current_path="a/poison.c")
        _expire(index)
        recover_jobs()
    index.refresh_from_db()
    assert (index.status, index.job.state) == ("failed", "parked")
    assert "ended 3 times" in index.error
    assert "step parsing, file a/poison.c" in index.error
    assert claim(index.pk) is None


def test_it_does_not_give_up_a_build_that_gets_further_each_time(index: Index, sent: list[str]) -> None:
    for chunks in range(100, 100 * (MAX_ATTEMPTS + 3), 100):
        assert claim(index.pk) is not None
        Index.objects.filter(pk=index.pk).update(status="building", step="embed", chunks_done=chunks)
        _expire(index)
        recover_jobs()
    index.refresh_from_db()
    assert (index.job.state, index.job.furthest) == ("queued", 100 * (MAX_ATTEMPTS + 2))


@pytest.mark.parametrize("running", [False, True])
def test_it_ends_a_cancelled_build_that_nobody_works_on(index: Index, running: bool) -> None:
    if running:
        claim(index.pk)
        _expire(index)
    Job.objects.update(cancel_requested=True)
    assert recover_jobs() == []
    index.refresh_from_db()
    assert (index.status, index.job.state) == ("cancelled", "cancelled")


def test_it_lets_a_failed_build_be_asked_for_again(index: Index) -> None:
    Index.objects.update(status="failed")
    assert request_build(index.repository).pk != index.pk


def test_it_logs_no_repository_text(index: Index, caplog: pytest.LogCaptureFixture) -> None:
    claim(index.pk)
    _expire(index)
    with caplog.at_level("INFO", logger=tasks.__name__):
        recover_jobs()
    assert f"index {index.pk} is gone" in caplog.text
    assert index.repository.mirror.url not in caplog.text


def test_it_hands_a_build_back_when_the_worker_is_asked_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = request_build(make_repository(url=str(make_repo(tmp_path, {"a.py": "x = 1\n"}, name="web"))))
    stopping = threading.Event()
    monkeypatch.setattr(leases, "stopping", stopping)
    worker_shutting_down.send(sender="worker", sig="TERM", how="Warm", exitcode=0)
    assert stopping.is_set()
    build("builds")
    index.refresh_from_db()
    assert (index.active, index.job.state, index.job.attempts, index.job.holder) == (True, "queued", 0, "")
    stopping.clear()
    assert recover_jobs() == [index.pk]
