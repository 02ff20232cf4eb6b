"""Asking through the API: whole answers, streams, keys that ask once, and what a token must not see."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient
from pytest_django import Settings

from assistant import answering, conversations, tokens
from assistant.models import Conversation, Feedback, Message
from indexing.models import Repository
from search.results import Hit
from tests.assistant.api_client import ApiClient
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search
from tests.factories import make_conversation, make_message

pytestmark = pytest.mark.django_db(transaction=True)
SCOPES = ["read", "ask"]
PASSAGE = 'def sign(value: str) -> str:\n    """Sign the cookie."""'


@pytest.fixture
def repository(tmp_path: Path, user: User) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS, ".env": "A=1"}, owner=user, visibility="private")


@pytest.fixture
def hit(repository: Repository) -> Hit:
    return hit_for(repository, "src/sessions.py", PASSAGE)


@pytest.fixture
def api(user: User) -> ApiClient:
    return ApiClient(user, SCOPES)


@pytest.fixture
def scripted(hit: Hit, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Any:
    script_model(monkeypatch, settings, ["It is ", "signed ", "[1]."])
    return script_search(monkeypatch, [hit])


@pytest.fixture
def answered(user: User, hit: Hit) -> Message:
    message = conversations.start_message(user, "Where is it signed?", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit])
    ending = conversations.Ending(
        Message.State.DONE, [conversations.Event(1, "done", {})], answer="In `sign` [1].", cited=[1], verified=[1]
    )
    conversations.finish(message.pk, 1, ending)
    return message


async def ask(api: ApiClient, body: dict[str, Any], **headers: str) -> Any:
    return await AsyncClient().post(
        "/api/v1/ask",
        json.dumps(body),
        content_type="application/json",
        headers=api.authorization | {name.replace("_", "-"): value for name, value in headers.items()},
    )


async def lines_of(response: Any) -> list[str]:
    return b"".join([part async for part in response.streaming_content]).decode().splitlines()


async def test_it_answers_in_one_reply_with_citations(api: ApiClient, scripted: Any, repository: Repository) -> None:
    response = await ask(api, {"question": "How is it signed?", "repositories": ["acme/web"]})
    answer = response.json()
    assert (response.status_code, answer["state"], answer["answer"]) == (200, "done", "It is signed [1].")
    (citation,) = answer["citations"]
    assert (citation["repository"], citation["path"], citation["verified"]) == ("acme/web", "src/sessions.py", True)
    assert scripted.calls[0]["scope"].repository_ids == (repository.pk,)


async def test_it_streams_lines_of_json_up_to_the_whole_answer(api: ApiClient, scripted: Any) -> None:
    response = await ask(api, {"question": "How is it signed?"}, accept="application/jsonl")
    assert response["Content-Type"] == "application/jsonl"
    events = [json.loads(line) for line in await lines_of(response)]
    names = [event["event"] for event in events if event["event"] != "stage"]
    assert names == ["message", "evidence", "text", "text", "text", "done", "answer"]
    assert events[-1]["data"]["answer"] == "It is signed [1]."


async def test_it_streams_events_that_can_be_resumed(api: ApiClient, scripted: Any) -> None:
    response = await ask(api, {"question": "How is it signed?"}, accept="text/event-stream")
    lines = await lines_of(response)
    assert "event: done" in lines
    message = await Message.objects.aget()
    last = max(int(line[4:]) for line in lines if line.startswith("id: "))
    again = await AsyncClient().get(
        f"/api/v1/messages/{message.pk}/events",
        headers=api.authorization | {"accept": "text/event-stream", "Last-Event-ID": str(last)},
    )
    assert [line for line in await lines_of(again) if line.startswith("event")] == [
        "event: message",
        "event: done",
        "event: answer",
    ]


async def test_it_answers_head_of_a_stream_without_following_it(api: ApiClient, answered: Message) -> None:
    address = f"/api/v1/messages/{answered.pk}/events"
    head = await AsyncClient().head(address, headers=api.authorization | {"accept": "text/event-stream"})
    assert (head.status_code, head["Content-Type"], head.streaming) == (200, "text/event-stream", False)
    assert head.content == b""


async def test_it_asks_once_for_an_idempotency_key(api: ApiClient, scripted: Any, other_user: User) -> None:
    first = await ask(api, {"question": "How is it signed?"}, Idempotency_Key="build-42")
    again = await ask(api, {"question": "How is it signed?"}, Idempotency_Key="build-42")
    assert first.json()["message_id"] == again.json()["message_id"]
    other = await ask(api, {"question": "Something else?"}, Idempotency_Key="build-42")
    assert (other.status_code, other.json()["error"]["code"]) == (409, "conflict")
    stranger = await sync_to_async(ApiClient)(other_user, SCOPES)
    theirs = await ask(stranger, {"question": "How is it signed?"}, Idempotency_Key="build-42")
    assert theirs.json()["message_id"] != first.json()["message_id"]
    assert len(scripted.calls) == 2


async def test_it_ends_a_stream_whose_token_was_revoked(
    api: ApiClient, scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.before = lambda: tokens.revoke(api.token)
    response = await ask(api, {"question": "How is it signed?"}, accept="application/jsonl")
    events = [json.loads(line) for line in await lines_of(response)]
    assert events[-1]["event"] == "error"
    assert "revoked" in events[-1]["data"]["text"]
    assert not [event for event in events if event["event"] in ("evidence", "text", "answer")]


async def test_it_replays_no_text_to_a_token_that_lost_the_right_to_its_sources(
    api: ApiClient, scripted: Any, other_user: User
) -> None:
    whole = await lines_of(await ask(api, {"question": "How is it signed?"}, accept="application/jsonl"))
    message = await Message.objects.aget()
    await Repository.objects.aupdate(owner=other_user)
    for line in whole:
        address = f"/api/v1/messages/{message.pk}/events?after={json.loads(line)['sequence']}"
        response = await AsyncClient().get(address, headers=api.authorization | {"accept": "application/jsonl"})
        assert [json.loads(line)["event"] for line in await lines_of(response)] == ["message", "done"]


@pytest.mark.parametrize("accept", ["application/json", "application/jsonl", "text/event-stream"])
async def test_it_ends_for_an_answer_whose_steps_were_removed_with_age(
    accept: str, api: ApiClient, answered: Message
) -> None:
    await answered.events.all().adelete()
    address = f"/api/v1/messages/{answered.pk}/events"
    response = await AsyncClient().get(address, headers=api.authorization | {"accept": accept})
    whole = response.content.decode() if accept == "application/json" else "\n".join(await lines_of(response))
    assert "In `sign` [1]." in whole


async def test_it_gives_no_answer_to_a_token_that_was_revoked_while_it_waited(api: ApiClient, scripted: Any) -> None:
    scripted.before = lambda: tokens.revoke(api.token)
    response = await ask(api, {"question": "How is it signed?"})
    assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")


def test_it_accepts_a_question_without_waiting(api: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[uuid.UUID] = []
    monkeypatch.setattr(answering, "start_answer", started.append)
    response = api.post("/ask", {"question": "Why?", "wait": False})
    assert (response.status_code, response.json()["state"]) == (202, "queued")
    assert [str(pk) for pk in started] == [response.json()["message_id"]]
    assert api.get(f"/messages/{started[0]}").json()["question"] == "Why?"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"question": "  "}, 422),
        ({"question": "a", "mode": "poem"}, 422),
        ({"question": "a", "conversation_id": str(uuid.uuid4())}, 404),
        ({"question": "a", "repositories": ["acme/nowhere"]}, 404),
    ],
)
def test_it_refuses_questions_that_make_no_sense(api: ApiClient, body: dict[str, str], status: int) -> None:
    assert api.post("/ask", body).status_code == status
    assert not Message.objects.exists()


def test_it_lists_the_conversations_of_the_person_newest_first(api: ApiClient, user: User, other_user: User) -> None:
    mine = [str(make_conversation(user).pk) for _ in range(3)]
    make_conversation(other_user)
    first = api.get("/conversations?limit=2").json()
    second = api.get(f"/conversations?limit=2&cursor={first['next_cursor']}").json()
    assert [row["id"] for row in first["items"] + second["items"]] == mine[::-1]
    assert second["next_cursor"] == ""


def test_it_gets_and_deletes_a_conversation(api: ApiClient, answered: Message) -> None:
    address = f"/conversations/{answered.conversation_id}"
    assert api.get(address).json()["messages"][0]["answer"] == "In `sign` [1]."
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


def test_it_shows_a_restricted_token_only_what_was_begun_with_it(
    user: User, answered: Message, repository: Repository
) -> None:
    narrow = ApiClient(user, SCOPES, [repository])
    begun = make_message(make_conversation(user, token=narrow.token), state=Message.State.DONE)
    assert [row["id"] for row in narrow.get("/conversations").json()["items"]] == [str(begun.conversation_id)]
    assert narrow.get(f"/messages/{answered.pk}").status_code == 404
    assert narrow.delete(f"/conversations/{answered.conversation_id}").status_code == 404
    assert narrow.post("/ask", {"question": "a", "conversation_id": str(answered.conversation_id)}).status_code == 404


def test_it_withholds_an_answer_whose_sources_may_not_be_read_any_more(
    api: ApiClient, answered: Message, other_user: User
) -> None:
    Repository.objects.update(owner=other_user)
    answer = api.get(f"/messages/{answered.pk}").json()
    assert "sign" not in answer["answer"]
    assert answer["citations"] == [answer["citations"][0] | {"state": "hidden", "path": None, "commit": None}]


def test_it_keeps_one_opinion_a_person(api: ApiClient, answered: Message) -> None:
    address = f"/messages/{answered.pk}/feedback"
    assert api.post(address, {"helpful": True}).status_code == 204
    assert api.post(address, {"helpful": False, "reason": "incomplete", "comment": "Which one?"}).status_code == 204
    assert [(row.helpful, row.reason) for row in Feedback.objects.all()] == [(False, "incomplete")]
    assert api.post(address, {"helpful": False, "reason": "bored"}).status_code == 422


def test_it_stops_an_answer(api: ApiClient, user: User) -> None:
    message = make_message(make_conversation(user), state=Message.State.RUNNING)
    assert api.post(f"/messages/{message.pk}/stop").status_code == 202
    message.refresh_from_db()
    assert message.stop_requested


def test_it_reads_code_by_its_coordinates(api: ApiClient, repository: Repository, hit: Hit) -> None:
    address = f"/repositories/{repository.pk}/code?commit={hit.commit}&path=src/sessions.py"
    by_bytes = api.get(f"{address}&start_byte={hit.start_byte}&end_byte={hit.end_byte}").json()
    assert (by_bytes["text"], by_bytes["start_line"], by_bytes["end_line"]) == (PASSAGE, hit.start_line, hit.end_line)
    by_lines = api.get(f"{address}&start_line={hit.start_line}&end_line={hit.end_line}").json()
    assert by_lines["text"].rstrip("\n") == PASSAGE
    assert api.get(address).json()["text"].startswith('"""Sessions of é and 🙂."""')


@pytest.mark.parametrize(
    "query",
    [
        "commit={commit}&path=nowhere.py",
        "commit={commit}&path=.env",
        "commit={commit}&path=src/sessions.py&start_byte=5&end_byte=4",
        "commit={commit}&path=src/sessions.py&start_line=5000",
        "commit=HEAD&path=src/sessions.py",
        "commit=--help&path=src/sessions.py",
    ],
)
def test_it_reads_nothing_that_is_not_there(api: ApiClient, repository: Repository, hit: Hit, query: str) -> None:
    response = api.get(f"/repositories/{repository.pk}/code?{query.format(commit=hit.commit)}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def test_it_reads_no_code_of_others(other_user: User, repository: Repository, hit: Hit) -> None:
    stranger = ApiClient(other_user, SCOPES)
    address = f"/repositories/{repository.pk}/code?commit={hit.commit}&path=src/sessions.py"
    assert stranger.get(address).status_code == 404
    assert not Conversation.objects.filter(owner=other_user).exists()
