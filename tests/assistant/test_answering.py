from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.utils import timezone
from pytest_django import Settings

from assistant import answering, conversations, tokens
from assistant.models import AnswerEvent, Citation, Message
from indexing.access import Principal
from indexing.errors import LLMUnavailable
from indexing.models import LLMCall, Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search
from tests.factories import make_user

pytestmark = pytest.mark.django_db(transaction=True)

Events = list[tuple[int, str, dict[str, Any]]]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS})


@pytest.fixture
def message(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Message:
    """A question whose search finds one passage."""
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", "def sign(value: str) -> str:")])
    return conversations.start_message(make_user("asker"), "How is the cookie signed?", request_id=uuid.uuid4())


async def _read(message: Message, after: int = 0) -> Events:
    return [event async for event in answering.event_stream(message, after)]


async def _reload(message: Message) -> Message:
    return await Message.objects.aget(pk=message.pk)


async def _until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    async with asyncio.timeout(seconds):
        while not await sync_to_async(condition, thread_sensitive=False)():  # noqa: ASYNC110  # a database has no event
            await asyncio.sleep(0.01)


def _text(events: Events) -> str:
    return "".join(data["text"] for _, name, data in events if name == "text")


async def test_it_streams_and_stores_an_answer(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["It is ", "signed ", "[1]."])
    answering.start_answer(message.pk)
    events = await _read(message)
    assert [name for _, name, _ in events if name != "stage"] == ["evidence", *["text"] * 3, "done"]
    done = events[-1][2]
    assert (done["answered_by"], done["cited"], done["verified"]) == ("ollama/llama3.1", 1, 1)
    stored = await _reload(message)
    assert (stored.state, stored.answer, stored.finish_reason) == ("done", "It is signed [1].", "stop")
    assert stored.trace["stages"][-1]["name"] == "write"
    citation = await Citation.objects.aget()
    assert (citation.cited, citation.verified, citation.number) == (True, True, 1)


async def test_it_has_numbered_its_events_upwards_with_one_terminal_event(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["a", 0.25, "bc [1]"])
    answering.start_answer(message.pk)
    events = await _read(message)
    sequences = [sequence for sequence, _, _ in events]
    assert sequences == sorted(set(sequences))
    assert [name for _, name, _ in events if name in answering.TERMINAL] == ["done"]


async def test_it_stores_text_in_batches(message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    script_model(monkeypatch, settings, ["word "] * 300)
    answering.start_answer(message.pk)
    events = await _read(message)
    assert len([name for _, name, _ in events if name == "text"]) == 300
    assert await AnswerEvent.objects.filter(name="text").acount() <= 10
    assert _text(await _read(message)) == "word " * 300


async def test_it_calls_the_model_once_however_often_it_is_started_and_followed(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    model = script_model(monkeypatch, settings, ["It is ", 0.1, "signed [1]."])
    for _ in range(3):
        answering.start_answer(message.pk)
    streams = await asyncio.gather(*(_read(message) for _ in range(4)))
    answering.start_answer(message.pk)
    again = await _read(message)
    assert len(model.calls) == 1
    assert {_text(events) for events in [*streams, again]} == {"It is signed [1]."}
    assert await Message.objects.acount() == 1


async def test_it_resumes_exactly_after_any_sequence(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["Sign", "ed 🙂 é ", "here [1]."])
    answering.start_answer(message.pk)
    live = await _read(message)
    for at, (sequence, _, _) in enumerate(live):
        rest = await _read(message, sequence)
        assert _text(rest) == _text(live[at + 1 :])
        assert rest[-1][1] == "done"


async def test_it_goes_on_when_the_browser_leaves_and_lets_it_come_back(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    model = script_model(monkeypatch, settings, ["One ", 0.3, "two ", 0.3, "three [1]."])
    answering.start_answer(message.pk)
    seen: Events = []
    async with aclosing(answering.event_stream(message)) as stream:
        async for event in stream:
            seen.append(event)
            if event[1] == "text":
                break
    rest = await _read(message, seen[-1][0])
    assert _text(seen) + _text(rest) == "One two three [1]."
    assert len(model.calls) == 1


async def test_it_hands_the_first_word_on_before_it_is_stored(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(answering, "STORE_SECONDS", 60)
    script_model(monkeypatch, settings, ["First", 0.2, " and last [1]."])
    answering.start_answer(message.pk)
    async for _, name, _ in answering.event_stream(message):
        if name == "text":
            assert not await AnswerEvent.objects.filter(name="text").aexists()
            break
    await _read(message)


async def test_it_stops_at_once_in_its_own_process(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    model = script_model(monkeypatch, settings, ["Half an answer [1]", 60.0, "never"])
    answering.start_answer(message.pk)
    events: Events = []
    async for event in answering.event_stream(message):
        events.append(event)
        if event[1] == "text":
            await sync_to_async(conversations.request_stop)(message)
            answering.signal_stop(message.pk)
    assert events[-1][1:] == ("stopped", {"text": "Stopped. What was written is kept."})
    stored = await _reload(message)
    assert (stored.state, stored.answer, model.closed) == ("stopped", "Half an answer [1]", 1)
    assert await Citation.objects.filter(cited=True, verified=True).acount() == 1


async def test_it_sees_a_stop_that_another_process_stored(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(answering, "WATCH_SECONDS", 0.05)
    script_model(monkeypatch, settings, ["Half", 60.0])
    answering.start_answer(message.pk)
    async for _, name, _ in answering.event_stream(message):
        if name == "text":
            await sync_to_async(conversations.request_stop)(message)
    assert (await _reload(message)).state == "stopped"


async def test_it_stops_while_it_still_searches(message: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    script_search(monkeypatch, [], before=lambda: release.wait(10) and None)
    answering.start_answer(message.pk)
    await _until(lambda: Message.objects.filter(state="running").exists())
    answering.signal_stop(message.pk)
    events = await _read(message)
    release.set()
    assert [name for _, name, _ in events] == ["stopped"]


async def test_it_keeps_text_and_evidence_when_the_model_breaks_off(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["It signs [1].", LLMUnavailable("The connection broke.")])
    answering.start_answer(message.pk)
    events = await _read(message)
    assert events[-1][1:] == ("error", {"text": "The connection broke. The text above is saved."})
    stored = await _reload(message)
    assert (stored.state, stored.answer) == ("error", "It signs [1].")
    assert await Citation.objects.filter(verified=True, cited=True).acount() == 1


async def test_it_ends_with_an_error_when_something_unexpected_happens(
    message: Message, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    script_search(monkeypatch, [], error=RuntimeError("secret detail"))
    answering.start_answer(message.pk)
    events = await _read(message)
    assert events[-1][1:] == ("error", {"text": answering.UNEXPECTED})
    assert (await _reload(message)).state == "error"
    assert "secret detail" in caplog.text


async def test_it_answers_again_after_a_retry(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["Bad.", LLMUnavailable("Down.")])
    answering.start_answer(message.pk)
    await _read(message)
    script_model(monkeypatch, settings, ["Good [1]."])
    again = await sync_to_async(conversations.retry)(message)
    answering.start_answer(message.pk)
    assert _text(await _read(again)) == "Good [1]."
    stored = await _reload(message)
    assert (stored.attempt, stored.state, stored.answer, stored.error) == (2, "done", "Good [1].", "")


async def test_it_asks_with_the_rights_and_the_history_of_the_owner(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["In a cookie [1]."])
    answering.start_answer(message.pk)
    await _read(message)
    scripted = script_search(monkeypatch, [])
    owner = await User.objects.aget(username="asker")
    follow_up = await sync_to_async(conversations.start_message)(
        owner, "and in Redis?", request_id=uuid.uuid4(), conversation=message.conversation
    )
    answering.start_answer(follow_up.pk)
    await _read(follow_up)
    call = scripted.calls[0]
    assert call["principal"] == Principal(user_id=owner.pk)
    assert call["history"] == (("How is the cookie signed?", "In a cookie [1]."),)


def _expire(message: Message) -> None:
    Message.objects.filter(pk=message.pk).update(leased_until=timezone.now() - timedelta(seconds=1))


async def test_it_ends_an_orphan_that_a_reader_meets(message: Message) -> None:
    """As after a crash: the row says running, and no task here or elsewhere writes it."""
    await sync_to_async(conversations.claim)(message.pk)
    event = conversations.Event(4, "text", {"text": "Half"})
    await sync_to_async(conversations.append_events)(message.pk, 1, [event])
    await sync_to_async(_expire)(message)
    events = await _read(message)
    assert [name for _, name, _ in events] == ["text", "error"]
    assert "The server restarted" in events[-1][2]["text"]


async def test_it_follows_an_answer_that_another_process_writes(
    message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answering, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(answering, "HEARTBEAT_SECONDS", 0.1)
    await sync_to_async(conversations.claim)(message.pk)
    reading = asyncio.create_task(_read(message))
    await asyncio.sleep(0.25)
    await sync_to_async(conversations.append_events)(message.pk, 1, [conversations.Event(2, "text", {"text": "Hi"})])
    ending = conversations.Ending(Message.State.DONE, [conversations.Event(3, "done", {})])
    await sync_to_async(conversations.finish)(message.pk, 1, ending)
    events = await reading
    assert [name for _, name, _ in events if name != "heartbeat"] == ["text", "done"]
    assert events[0] == (0, "heartbeat", {})


async def test_it_sends_heartbeats_while_a_model_thinks(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(answering, "HEARTBEAT_SECONDS", 0.05)
    script_model(monkeypatch, settings, [0.3, "At last [1]."])
    answering.start_answer(message.pk)
    events = await _read(message)
    assert [name for _, name, _ in events].count("heartbeat") >= 3
    assert _text(events) == "At last [1]."


async def test_it_does_not_replay_what_its_reader_may_not_read_any_more(
    message: Message, repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["It signs [1]."])
    answering.start_answer(message.pk)
    await _read(message)
    await Repository.objects.filter(pk=repository.pk).aupdate(visibility="private")
    assert [name for _, name, _ in await _read(message)] == ["done"]


async def test_it_keeps_what_was_written_when_it_is_stopped_before_it_goes_on(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["Half [1]"], finish_reason="length")
    answering.start_answer(message.pk)
    await _read(message)
    again = await sync_to_async(conversations.go_on)(await _reload(message))
    await sync_to_async(conversations.request_stop)(again)
    answering.start_answer(again.pk)
    await _read(again)
    stored = await _reload(message)
    assert (stored.attempt, stored.state, stored.answer) == (2, "stopped", "Half [1]")
    assert stored.continuable
    assert await stored.citations.filter(attempt=2, cited=True, verified=True).aexists()


@pytest.mark.parametrize("how", ["repository", "person", "token"])
async def test_it_ends_when_the_right_to_its_sources_ends(
    how: str, message: Message, repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(answering, "WATCH_SECONDS", 0.05)
    script_model(monkeypatch, settings, ["It signs [1].", 20, " Never written."])
    if how == "token":
        await sync_to_async(_begin_with_token)(message, repository)
    answering.start_answer(message.pk)
    reading = asyncio.create_task(_read(message))
    await _until(lambda: AnswerEvent.objects.filter(name="text").exists())
    await sync_to_async(_take_right_away)(how, message, repository)
    events = await asyncio.wait_for(reading, 5)
    assert (events[-1][1], events[-1][2]["text"]) == ("error", conversations.RIGHTS_ENDED)
    assert [name for _, name, _ in await _read(message)] == ["error"]


def _begin_with_token(message: Message, repository: Repository) -> None:
    token, _secret = tokens.create(message.conversation.owner, "bot", scopes=["ask"], repositories=[repository])
    message.conversation.token = token
    message.conversation.save(update_fields=["token"])


def _take_right_away(how: str, message: Message, repository: Repository) -> None:
    if how == "person":
        User.objects.update(is_active=False)
    elif how == "token":
        message.conversation.token.repositories.clear()  # type: ignore[union-attr]  # it has one
    Repository.objects.filter(pk=repository.pk).update(visibility="public" if how == "token" else "private")


async def test_it_writes_on_when_a_source_was_removed(
    message: Message, repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(answering, "WATCH_SECONDS", 0.05)
    script_model(monkeypatch, settings, ["It signs [1]", 0.4, ", all of it."])
    answering.start_answer(message.pk)
    reading = asyncio.create_task(_read(message))
    await _until(lambda: AnswerEvent.objects.filter(name="text").exists())
    await Repository.objects.filter(pk=repository.pk).adelete()
    assert _text(await reading) == "It signs [1], all of it."


async def test_it_ends_quietly_when_its_person_is_deleted(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(answering, "WATCH_SECONDS", 0.05)
    script_model(monkeypatch, settings, ["It signs [1].", 0.5, " More."])
    answering.start_answer(message.pk)
    await _until(lambda: AnswerEvent.objects.filter(name="text").exists())
    await sync_to_async(User.objects.all().delete)()
    await _until(lambda: message.pk not in answering._live)
    assert not await Message.objects.aexists()


async def test_it_writes_nothing_more_once_another_process_ended_it(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(answering, "STORE_SECONDS", 0.02)
    script_model(monkeypatch, settings, ["Half", 0.3, " late", 0.3, " later"])
    answering.start_answer(message.pk)
    await _until(lambda: AnswerEvent.objects.filter(name="text").exists())
    await sync_to_async(_expire)(message)
    await sync_to_async(conversations.end_orphans)()
    events = await _read(message)
    assert events[-1][1] == "error"
    assert (await _reload(message)).answer == "Half"
    assert await AnswerEvent.objects.filter(name__in=answering.TERMINAL).acount() == 1


async def test_it_loses_no_text_when_the_database_is_busy(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    real, failures = conversations.append_events, [OperationalError("database is locked")]

    def append(*arguments: Any) -> bool:
        if failures:
            raise failures.pop()
        return real(*arguments)

    monkeypatch.setattr(conversations, "append_events", append)
    script_model(monkeypatch, settings, ["One ", 0.4, "two [1]."])
    answering.start_answer(message.pk)
    await _read(message)
    assert not failures
    assert _text(await _read(message)) == "One two [1]."


async def test_it_marks_an_answer_whose_server_shuts_down(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["Half", 60.0])
    answering.start_answer(message.pk)
    async for _, name, _ in answering.event_stream(message):
        if name == "text":
            break
    task = answering._live[message.pk].task
    assert task is not None
    task.cancel()
    await asyncio.wait([task])
    stored = await _reload(message)
    assert (stored.state, stored.answer) == ("error", "Half")
    assert stored.error == "The server restarted while this answer was being written. The text above is saved."


async def test_it_renews_its_lease(message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr(answering, "WATCH_SECONDS", 0.02)
    monkeypatch.setattr(answering, "RENEW_SECONDS", 0.04)
    script_model(monkeypatch, settings, ["Half", 0.6, " done [1]."])
    answering.start_answer(message.pk)
    await _until(lambda: AnswerEvent.objects.filter(name="text").exists())
    await sync_to_async(_expire)(message)
    await _until(lambda: Message.objects.filter(leased_until__gt=timezone.now() + timedelta(seconds=20)).exists())
    assert (await _read(message))[-1][1] == "done"


async def test_it_holds_no_connection_while_it_streams(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["Half", 0.2, " done [1]."])
    answering.start_answer(message.pk)
    assert await sync_to_async(lambda: User.objects.exists() and connection.connection is not None)()
    held = []
    async for _, name, _ in answering.event_stream(message):
        if name == "text":
            held.append(await sync_to_async(lambda: connection.connection is not None)())
    assert held == [False, False]


async def test_it_forgets_an_answer_that_has_ended(
    message: Message, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["Done [1]."])
    answering.start_answer(message.pk)
    await _read(message)
    assert message.pk not in answering._live
    assert not await LLMCall.objects.aexists()


@pytest.mark.parametrize("turns", range(6))
async def test_it_stores_no_batch_after_the_end_whenever_that_comes(turns: int) -> None:
    live = answering._Live(uuid.uuid4(), asyncio.get_running_loop())
    live.publish("text", {"text": "a"})
    storing = asyncio.create_task(answering._store(live))
    await asyncio.sleep(0.01)
    live.publish("text", {"text": "b"})
    for _ in range(turns):
        await asyncio.sleep(0)
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(storing, 2)
    assert live.storing is None
