"""Plans with a scripted model, and the fallback that says why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pytest_django import Settings

from indexing.errors import LLMUnavailable
from indexing.models import LLMCall
from search import planning
from search.planning import basic_plan, plan
from search.results import QueryPlan
from tests.fake_llm import FakeLLM, ProviderError

GOOD = {
    "english_query": "delete expired tokens",
    "origin_language_query": "abgelaufene Tokens löschen",
    "hypothetical_document": "def purge():\n    Token.expired().delete()",
    "question_class": "behaviour",
}
GERMAN = "Wo werden die abgelaufenen Tokens gelöscht?"
SESSIONS = [("How are sessions stored?", "SessionStore.save writes them to disk.")]


def test_it_plans_without_a_model() -> None:
    assert plan("Can you please tell me where the config is loaded? thanks") == QueryPlan(
        english_query="where the config is loaded?", question_class="behaviour"
    )


def test_it_warns_that_a_foreign_question_needs_a_model_and_keeps_its_names() -> None:
    found = basic_plan("Wo wird SessionStore.save aufgerufen?")
    assert found.english_query == "SessionStore.save"
    assert found.origin_language_query == "Wo wird SessionStore.save aufgerufen?"
    assert found.notice == planning.NOT_ENGLISH


def test_it_takes_latin_words_out_of_another_script() -> None:
    assert basic_plan("会话如何在 Redis 中存储?").english_query == "Redis"


def test_it_searches_the_foreign_words_when_there_are_no_names() -> None:
    found = basic_plan("Где хранятся сессии?")
    assert (found.english_query, found.origin_language_query) == ("Где хранятся сессии?", "")


@pytest.mark.parametrize("question", ["", "???", " \x00 ", "x" * 20_000, "‮مرحبا", "(*[+", "{}" * 9000])
def test_it_always_makes_a_plan(question: str) -> None:
    assert len(basic_plan(question).english_query) < 2100


def test_it_asks_the_model_once_for_the_same_prompt(fake_llm: FakeLLM, settings: Settings) -> None:
    fake_llm.replies = [{**GOOD, "english_query": f"purge tokens {n}"} for n in range(4)]
    assert plan(GERMAN) == plan(GERMAN)
    assert plan(GERMAN, SESSIONS).english_query == "purge tokens 1"  # the conversation is part of the prompt
    settings.LLM_API_BASE = "http://localhost:9"
    assert plan(GERMAN).english_query == "purge tokens 2"


def test_it_does_not_remember_a_failure(fake_llm: FakeLLM) -> None:
    fake_llm.replies = ["no JSON", {**GOOD, "english_query": "purge tokens"}]
    assert plan(GERMAN).source == "basic"
    assert plan(GERMAN).source == "llm"


@pytest.mark.parametrize(
    ("question", "needed"),
    [("SessionStore.save", False), ("where is `purge_tokens` defined?", False), ("how are sessions kept?", True)],
)
def test_a_name_needs_no_model(question: str, needed: bool) -> None:
    assert planning.needs_model(basic_plan(question)) is needed


def test_it_uses_the_models_plan(fake_llm: FakeLLM, user: Any) -> None:
    fake_llm.replies = [{**GOOD, "english_query": "purge tokens"}]
    found = plan(GERMAN, user_id=user.pk)
    assert found == QueryPlan(
        english_query="purge tokens",
        origin_language_query="abgelaufene Tokens löschen",
        hypothetical_document="def purge():\n    Token.expired().delete()",
        question_class="behaviour",
        source="llm",
    )
    assert (LLMCall.objects.get().purpose, LLMCall.objects.get().user_id) == ("plan", user.pk)


def test_it_gives_the_model_the_conversation(fake_llm: FakeLLM) -> None:
    fake_llm.replies = [{"english_query": "delete a session SessionStore"}]
    assert plan("How can I delete one?", SESSIONS).english_query == "delete a session SessionStore"
    assert "SessionStore.save writes them to disk." in fake_llm.requests[0]["messages"][1]["content"]


def test_it_cuts_what_is_too_long_and_drops_what_does_not_belong(fake_llm: FakeLLM) -> None:
    fake_llm.replies = [
        {
            "english_query": "find\nthe parser " + "x" * 900,
            "origin_language_query": "find the parser",
            "hypothetical_document": ["```python", *[f"line_{n}()" for n in range(40)], "```"],
            "question_class": "poetry",
        }
    ]
    found = plan("where is the parser defined")
    assert found.english_query.startswith("find the parser x")
    assert len(found.english_query) == planning.MAX_QUERY_CHARS
    assert found.origin_language_query == ""
    assert found.hypothetical_document.splitlines() == [f"line_{n}()" for n in range(15)]
    assert found.question_class == "behaviour"


@pytest.mark.parametrize(
    "reply",
    [
        "great question!",
        "",
        {"english_query": "  "},
        {"english_query": "???"},
        {"english_query": {"a": 1}},
        {"origin_language_query": "x"},
        [1, 2],
        GOOD,  # copied from the example in the prompt
        json.dumps(GOOD)[:20],
    ],
)
def test_it_falls_back_visibly_when_the_plan_is_not_valid(fake_llm: FakeLLM, reply: Any) -> None:
    fake_llm.replies = [reply]
    found = plan("How are sessions stored?")
    assert found == QueryPlan(english_query="How are sessions stored?", notice=planning.BAD_PLAN)


def test_it_takes_a_plan_out_of_fences_and_thoughts(fake_llm: FakeLLM) -> None:
    fake_llm.replies = [
        '<think>hm {"english_query": "no"}</think>Sure:\n```json\n[{"english_query": "parse headers",}]\n```'
    ]
    assert plan("where are headers parsed?").english_query == "parse headers"


@pytest.mark.parametrize(("status", "words"), [(401, "LLM_API_KEY"), (404, "LLM_MODEL")])
def test_it_tells_which_setting_is_wrong(fake_llm: FakeLLM, status: int, words: str) -> None:
    fake_llm.replies = [ProviderError(status)]
    found = plan("How are sessions stored?")
    assert found.source == "basic"
    assert f"answered {status}" in found.notice
    assert words in found.notice


def test_it_adds_that_the_question_is_not_english_when_the_model_fails(
    fake_llm: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise LLMUnavailable("Nobody there.")

    monkeypatch.setattr("indexing.llm.structured", fail)
    assert plan(GERMAN).notice.startswith("Nobody there. A basic plan was used")
    assert plan(GERMAN).notice.endswith(planning.NOT_ENGLISH_NO_PLAN)


def test_it_keeps_a_pasted_text_within_the_budget(fake_llm: FakeLLM, settings: Settings) -> None:
    fake_llm.replies = [{"english_query": "why"}]
    plan("why? " + "at com.acme.Thing " * 5000, [("q" * 9000, "a" * 9000)] * 60)
    assert len(fake_llm.prompt) < 8000
