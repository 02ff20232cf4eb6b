"""SQLite with two threads that index and two that save chat messages: nothing is lost, nothing fails."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection, connections

from assistant import conversations
from assistant.conversations import Ending, Event
from assistant.models import AnswerEvent, Message
from indexing import embedding
from indexing.building import build_now
from indexing.models import Index
from tests.factories import commit_files, make_repo, make_repository, make_user
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS = 4.0


def test_it_loses_nothing_when_four_threads_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("other databases lock rows")
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    users = [make_user(f"asker{number}") for number in range(2)]
    repos = [make_repo(tmp_path, {"a.py": "x = 0\n"}, name=f"shop{number}") for number in range(2)]
    repositories = [make_repository(f"acme/shop{number}", url=str(repo)) for number, repo in enumerate(repos)]
    asked: list[uuid.UUID] = []
    built: list[str] = []

    def save_messages(place: int, number: int) -> None:
        message = conversations.start_message(users[place], f"Question {number}?", request_id=uuid.uuid4())
        claimed = conversations.claim(message.pk)
        assert claimed is not None
        for part in range(1, 6):
            assert conversations.append_events(message.pk, claimed.attempt, [Event(part, "text", {"text": "x"})])
        ending = Ending(state=Message.State.DONE, events=[Event(6, "done", {})], answer="xxxxx")
        assert conversations.finish(message.pk, claimed.attempt, ending)
        asked.append(message.pk)

    def index(place: int, number: int) -> None:
        commit = commit_files(repos[place], {"a.py": f"def step_{number}():\n    return {number}\n"})
        assert build_now(repositories[place]).commit == commit
        built.append(commit)

    errors = _run([(save_messages, 0), (save_messages, 1), (index, 0), (index, 1)])
    assert errors == []
    assert Message.objects.filter(state=Message.State.DONE).count() == len(asked) > 10
    assert AnswerEvent.objects.filter(message__in=asked).count() == 6 * len(asked)
    ready = Index.objects.filter(status=Index.Status.READY).values_list("commit", flat=True)
    assert set(built) == set(ready)
    assert len(built) >= 2


def _run(works: list[tuple[Callable[[int, int], None], int]]) -> list[BaseException]:
    """Each again and again in a thread of its own, for SECONDS; what they raised."""
    errors: list[BaseException] = []
    ends = time.monotonic() + SECONDS

    def again(work: Callable[[int, int], None], place: int) -> None:
        number = 0
        try:
            while number == 0 or time.monotonic() < ends:
                work(place, number)
                number += 1
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=again, args=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return errors
