"""An answer in the making, as a browser receives it: whole blocks, nothing twice, one end."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient
from pytest_django import Settings

from assistant import answering, conversations, following
from assistant.live_answer import complete_length
from assistant.models import Message
from indexing.models import Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search
from tests.factories import make_user

Event = tuple[int, str, dict[str, Any]]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("One.", ""),
        ("One.\n\n", ""),
        ("One.\n\nTwo is being writ", "One.\n\n"),
        ("One.\n\nTwo", ""),
        ("- a\n\n- b is next", ""),
        ("- a\n\n  still a, indented", ""),
        ("- a\n\nAfter the list", "- a\n\n"),
        ("1. a\n\n2. b is next", ""),
        ("```python\nx = 1\n\ny = 2\n", ""),
        ("```python\nx = 1\n\ny = 2\n```\n", "```python\nx = 1\n\ny = 2\n```\n"),
        ("Text\n```\ncode\n```\nmore te", "Text\n```\ncode\n```\n"),
        ("", ""),
    ],
)
def test_it_knows_which_blocks_are_complete(text: str, complete: str) -> None:
    assert text[: complete_length(text)] == complete


def test_it_never_takes_a_block_back() -> None:
    text = "# Title\n\nOne [1].\n\n- a\n\n- b\n\n```js\nlet x\n\nlet y\n```\n\nLast words, quite long.\n\nEnd of it."
    lengths = [complete_length(text[:end]) for end in range(len(text) + 1)]
    assert lengths == sorted(lengths)


@pytest.fixture
def asked(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> tuple[User, Message]:
    user = make_user()
    repository = real_repository(tmp_path, {"sessions.py": SESSIONS})
    script_search(monkeypatch, [hit_for(repository, "sessions.py", "def sign(value: str) -> str:")])
    script_model(monkeypatch, settings, ["Signed 🙂 in ", "`sign` [1].\n\n", "A second ", "block follows."])
    return user, conversations.start_message(user, "Where?", request_id=uuid.uuid4())


async def read(user: User, message: Message, headers: dict[str, str] | None = None) -> list[Event]:
    client = AsyncClient()
    await client.aforce_login(user)
    response = await client.get(f"/m/{message.pk}/events/", headers=headers or {})
    assert response["X-Accel-Buffering"] == "no"
    body = b"".join([part async for part in response.streaming_content]).decode()
    found = re.findall(r"id: (\d+)\nevent: (\w+)\ndata: (.*)\n\n", body)
    return [(int(sequence), name, json.loads(data)) for sequence, name, data in found]


def text_of(events: list[Event]) -> str:
    return "".join(data["text"] for _, name, data in events if name == "text")


async def test_it_streams_stages_evidence_text_blocks_and_one_end(asked: tuple[User, Message]) -> None:
    user, message = asked
    answering.start_answer(message.pk)
    events = await read(user, message)
    names = [name for _, name, _ in events]
    assert text_of(events) == "Signed 🙂 in `sign` [1].\n\nA second block follows."
    assert names.index("evidence") < names.index("text")
    assert [name for name in names if name in ("done", "stopped", "error")] == ["done"]
    (block,) = [data for _, name, data in events if name == "block"]
    assert (block["at"], block["end"]) == (0, len("Signed 🙂 in `sign` [1].\n\n"))
    assert '<a class="citation"' in block["html"]


async def test_it_resumes_after_the_last_event_without_repetition(asked: tuple[User, Message]) -> None:
    user, message = asked
    answering.start_answer(message.pk)
    events = await read(user, message)
    cut = next(place for place, (_, name, _) in enumerate(events) if name == "text")
    rest = await read(user, message, {"Last-Event-ID": str(events[cut][0])})
    whole, seen = text_of(events), events[cut][2]["end"]
    assert whole == whole[:seen] + "".join(
        data["text"][max(0, seen - data["at"]) :] for _, name, data in rest if name == "text"
    )
    assert "evidence" not in [name for _, name, _ in rest]
    assert rest[-1][1] == "done"


async def test_it_ends_at_once_for_an_answer_that_is_over(asked: tuple[User, Message]) -> None:
    user, message = asked
    answering.start_answer(message.pk)
    events = await read(user, message)
    assert (await read(user, message, {"Last-Event-ID": str(events[-1][0])}))[-1][1] == "done"
    assert await sync_to_async(Message.objects.count)() == 1


async def test_it_is_not_found_by_anyone_else(asked: tuple[User, Message]) -> None:
    _, message = asked
    client = AsyncClient()
    await client.aforce_login(await sync_to_async(make_user)())
    assert (await client.get(f"/m/{message.pk}/events/")).status_code == 404


async def test_it_replays_no_text_to_whoever_lost_the_right_to_its_sources(asked: tuple[User, Message]) -> None:
    user, message = asked
    answering.start_answer(message.pk)
    assert "sign" in text_of(await read(user, message))
    await Repository.objects.aupdate(visibility="private")
    for after in ("", "1", "20"):
        events = await read(user, message, {"Last-Event-ID": after})
        assert not [name for _, name, _ in events if name in ("text", "block")]
        assert "sessions.py" not in json.dumps(events)
        assert events[-1][1] == "done"


@pytest.mark.parametrize("how", ["signs out", "is deactivated", "changes the password"])
async def test_it_tells_nothing_more_to_whoever_is_not_signed_in_any_more(
    asked: tuple[User, Message], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    user, message = asked
    monkeypatch.setattr(following, "RECHECK_SECONDS", -1)
    client = AsyncClient()
    await client.aforce_login(user)
    response = await client.get(f"/m/{message.pk}/events/")
    if how == "signs out":
        await client.alogout()
    elif how == "is deactivated":
        await User.objects.filter(pk=user.pk).aupdate(is_active=False)
    else:
        await sync_to_async(user.set_password)("another one entirely")
        await user.asave()
    answering.start_answer(message.pk)
    assert [part async for part in response.streaming_content] == []
    assert [name async for _, name, _ in answering.event_stream(message)][-1] == "done"
