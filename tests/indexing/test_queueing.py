from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from indexing import building, leases, queueing, tasks
from indexing.building import request_build, request_update
from indexing.leases import claim
from indexing.models import Index, Job, Repository
from indexing.tasks import build
from tests.factories import make_index, make_repo, make_repository

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []
    monkeypatch.setattr(tasks, "_send", messages.append)
    return messages


def names() -> list[str]:
    return [job.index.repository.name for job in queueing.in_line("builds").select_related("index__repository")]


def test_it_builds_for_people_first_then_for_pushes_then_for_refreshing() -> None:
    for priority in Job.Priority:
        request_build(make_repository(priority.name), priority=priority)
    assert names() == ["PERSON", "PUSH", "REFRESH"]


def test_it_lets_what_waited_long_go_before_what_people_ask_for_now() -> None:
    request_build(make_repository("old"), priority=Job.Priority.REFRESH)
    Job.objects.update(due_at=timezone.now() - timedelta(minutes=31))
    request_build(make_repository("new"), priority=Job.Priority.PERSON)
    assert names() == ["old", "new"]


def test_it_lets_a_repository_that_had_much_wait_behind_the_others() -> None:
    busy, quiet = make_repository("busy"), make_repository("quiet")
    now = timezone.now()
    make_index(busy, started_at=now - timedelta(minutes=20), finished_at=now)
    request_update(busy)
    request_update(quiet)
    assert names() == ["quiet", "busy"]


def test_it_moves_a_build_up_when_a_person_asks_for_it() -> None:
    for name in ("first", "second"):
        request_build(make_repository(name), priority=Job.Priority.REFRESH)
    request_build(Repository.objects.get(name="second"), priority=Job.Priority.PERSON)
    assert names() == ["second", "first"]


def test_it_takes_the_first_in_line_whatever_the_message_was_sent_for(tmp_path: Path, sent: list[str]) -> None:
    url = str(make_repo(tmp_path, {}))
    last = request_build(make_repository("last", url=url), priority=Job.Priority.REFRESH)
    first = request_build(make_repository("first", url=url, ref="main"), priority=Job.Priority.PERSON)
    build("builds")
    assert sent == ["builds"]  # another worker for what still waits
    assert Job.objects.get(index=first).attempts == 1
    assert Job.objects.get(index=last).state == "queued"


def test_it_leaves_descriptions_to_their_own_queue(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    settings.DESCRIBE_CHUNKS, settings.LLM_MODEL = True, "openai/x"
    described: list[int] = []
    monkeypatch.setattr(building._Build, "_describe", lambda self, *_: described.append(self.index.pk))
    index = request_build(make_repository(url=str(make_repo(tmp_path, {"a.py": "def a():\n    return 1\n"}))))
    build("builds")
    job = Job.objects.select_related("index__repository").get(index=index)
    assert (job.state, job.queue, job.attempts, described) == ("queued", "descriptions", 0, [])
    assert job.index.repository.current_index_id == index.pk
    assert sent == ["descriptions"]
    build("descriptions")
    job.refresh_from_db()
    assert (job.state, described) == ("done", [index.pk])


def test_it_takes_newer_commits_before_descriptions_that_wait() -> None:
    index = request_build(make_repository())
    Job.objects.update(queue=Job.Queue.DESCRIPTIONS, due_at=timezone.now() + timedelta(hours=1))
    request_update(index.repository)
    assert names() == [index.repository.name]


def test_it_breaks_descriptions_off_for_newer_commits(sent: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    index = request_build(make_repository())
    Job.objects.update(queue=Job.Queue.DESCRIPTIONS)

    def push_arrives(_index: Index, _check: object) -> None:
        request_update(index.repository)
        assert leases.asked_again(index.pk)
        raise leases.GivingWay

    assert building.run_under_lease(index.pk, push_arrives)
    job = Job.objects.get()
    assert (job.state, job.queue, job.again, job.attempts) == ("queued", "builds", False, 0)
    assert sent == ["builds"]


@pytest.mark.django_db(transaction=True)  # a worker sees what is committed
def test_it_builds_once_for_a_push_that_a_worker_takes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_send", lambda _queue: claim(Job.objects.get().index_id))
    request_update(make_repository())
    assert (Job.objects.get().state, Job.objects.get().again) == ("running", False)


def test_it_leaves_a_build_that_another_worker_took(tmp_path: Path) -> None:
    url = str(make_repo(tmp_path, {}))
    taken, free = (request_build(make_repository(url=url, ref=ref)) for ref in ("", "main"))
    assert claim(taken.pk) is not None
    build("builds")
    assert Job.objects.get(index=free).attempts == 1
