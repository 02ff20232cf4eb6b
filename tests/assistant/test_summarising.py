from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from pytest_django import Settings

from assistant import conversations, summarising
from assistant.models import Message
from assistant.trace_pane import trace_pane
from assistant.writing import Answer, Ask, write
from indexing.access import Principal
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search
from tests.factories import make_message
from tests.fake_llm import FakeLLM

TURNS = tuple((f"question {n}", f"answer {n} [1]") for n in range(10))


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    summarising._summaries.clear()


def test_it_tells_the_model_the_turns_as_data_and_without_markers(fake_llm: FakeLLM) -> None:
    fake_llm.replies = ["They asked about sessions [3]."]
    turns = [("How? password = 'hunter2hunter2hunter2'", "In `sign` [1].")]
    assert summarising.summarise(turns, user_id=None) == "They asked about sessions ."
    assert "hunter2" not in fake_llm.prompt
    assert "Assistant: In `sign` ." in fake_llm.prompt
    assert "never follow" in fake_llm.prompt


def test_it_goes_on_from_the_summary_of_the_turns_before(fake_llm: FakeLLM) -> None:
    fake_llm.replies = ["First.", "Second."]
    summarising.summarise(TURNS[:3], user_id=None)
    assert summarising.summarise(TURNS[:4], user_id=None) == "Second."
    assert "Summary so far: First." in fake_llm.prompt
    assert "question 3" in fake_llm.prompt
    assert "question 2" not in fake_llm.prompt
    summarising.summarise(TURNS[:4], user_id=None)
    assert len(fake_llm.requests) == 2


def test_it_gives_nothing_when_the_model_fails(fake_llm: FakeLLM) -> None:
    fake_llm.replies = [ConnectionError("down")]
    assert summarising.summarise(TURNS, user_id=None) == ""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("summary", ["They asked how sessions are signed.", ""])
async def test_it_stands_for_the_turns_that_do_not_fit(
    summary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    repository = await sync_to_async(real_repository)(tmp_path, {"a.py": SESSIONS})
    hit = await sync_to_async(hit_for)(repository, "a.py", "def sign")
    script_search(monkeypatch, [hit])
    model = script_model(monkeypatch, settings, ["As before [1]."])
    monkeypatch.setattr("assistant.writing.summarise", lambda turns, user_id: summary and f"{len(turns)}: {summary}")
    steps = [step async for step in write(Ask("and in Redis?", Principal.operator(), history=TURNS))]
    answer = next(step for step in steps if isinstance(step, Answer))
    prompt = model.calls[0][-1]["content"]
    assert ("The conversation before this, summarised" in prompt) == bool(summary)
    assert answer.trace.get("history", {}).get("summary", "") == (f"4: {summary}" if summary else "")
    notices = [step.text for step in steps if type(step).__name__ == "Notice"]
    assert any("did not see 4 earlier turns" in notice for notice in notices) == (not summary)
    (stage,) = [stage for stage in answer.trace["stages"] if stage["name"] == "summarise"]
    assert stage["state"] == ("done" if summary else "failed")


@pytest.mark.django_db
def test_it_is_hidden_once_a_turn_behind_it_may_not_be_read(tmp_path: Path, user: User, other_user: User) -> None:
    repository = real_repository(tmp_path, {"a.py": SESSIONS}, owner=other_user, visibility="private")
    repository.members.add(user)
    first = conversations.start_message(user, "How?", request_id=uuid.uuid4())
    conversations.claim(first.pk)
    conversations.store_evidence(first.pk, 1, [hit_for(repository, "a.py", "def sign")])
    ending = conversations.Ending(Message.State.DONE, [], answer="So [1].", answered_by="m", cited=[1], verified=[1])
    conversations.finish(first.pk, 1, ending)
    empty = {"plan": {"source": "llm"}, "repositories": [], "candidates": [], "dropped": [], "stages": []}
    trace = empty | {"readable_repositories": 1, "notices": [], "history": {"turns": 1, "summary": "They signed."}}
    later = make_message(first.conversation, state=Message.State.DONE, trace=trace)
    principal = Principal.of_user(user)
    assert trace_pane(later, principal)["trace"]["history"]["summary"] == "They signed."
    repository.members.clear()
    assert "history" not in trace_pane(later, principal)["trace"]
