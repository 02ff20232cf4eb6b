"""Everything that asks a language model, against a real one: what is asserted is form and behaviour, never wisdom."""

from __future__ import annotations

import time

import pytest
from pydantic import BaseModel
from pytest_django import Settings

from indexing import describing, llm
from indexing.errors import LLMBadReply, LLMRefused, LLMUnavailable
from indexing.models import ChunkDescription, LLMCall
from search import planning
from search.planning import plan
from search.reranking import rerank
from tests.local_llm import LocalLLM
from tests.search.test_reranking import make_hits

pytestmark = [pytest.mark.llm, pytest.mark.django_db(transaction=True)]

COUNT = [{"role": "user", "content": "Count from one to ten in words."}]


class Colours(BaseModel):
    names: list[str]
    warm: bool


def test_it_answers_and_counts_its_tokens(local_llm: LocalLLM) -> None:
    completion = llm.complete(COUNT, purpose="test", max_tokens=12, timeout_seconds=60)
    assert completion.text
    assert completion.prompt_tokens > 5
    assert 1 <= completion.completion_tokens <= 12
    assert LLMCall.objects.get().completion_tokens == completion.completion_tokens


def test_it_fits_the_schema_or_says_so(local_llm: LocalLLM) -> None:
    question = [{"role": "user", "content": "Name one colour, as JSON with names and warm."}]
    try:
        colours = llm.structured(question, Colours, purpose="test", max_tokens=60, timeout_seconds=60)
    except LLMBadReply:
        return
    assert isinstance(colours, Colours)


async def test_it_streams_as_the_tokens_come(local_llm: LocalLLM) -> None:
    arrivals = []
    async for part in llm.stream(COUNT, purpose="test", max_tokens=48, timeout_seconds=60):
        arrivals.append((time.monotonic(), part))
    texts = [part.text for _, part in arrivals if part.text]
    assert len(texts) > 5
    assert arrivals[-1][0] - arrivals[0][0] > 0.05
    assert arrivals[-1][1].finish_reason in ("stop", "length")
    assert (await LLMCall.objects.aget()).completion_tokens >= len(texts) - 1


async def test_it_answers_the_next_question_after_one_was_stopped(local_llm: LocalLLM) -> None:
    parts = llm.stream(COUNT, purpose="test", max_tokens=2000, timeout_seconds=60)
    await anext(parts)
    await parts.aclose()
    started = time.monotonic()
    texts = [part.text async for part in llm.stream(COUNT, purpose="test", max_tokens=4, timeout_seconds=60)]
    assert texts
    assert time.monotonic() - started < 15  # 2,000 tokens would have held the only slot for longer


def test_it_names_the_key_when_the_server_refuses_it(local_llm: LocalLLM, settings: Settings) -> None:
    settings.LLM_API_KEY = "wrong-key"
    with pytest.raises(LLMRefused, match="401.*LLM_API_KEY") as caught:
        llm.complete(COUNT, purpose="test", max_tokens=4, timeout_seconds=20)
    assert "wrong-key" not in str(caught.value)


def test_it_names_the_address_when_nobody_listens(local_llm: LocalLLM, settings: Settings) -> None:
    settings.LLM_API_BASE = "http://127.0.0.1:9/v1"
    with pytest.raises(LLMUnavailable, match="LLM_API_BASE"):
        llm.complete(COUNT, purpose="test", max_tokens=4, timeout_seconds=20)


def test_it_names_the_model_setting_when_the_name_has_no_provider(local_llm: LocalLLM, settings: Settings) -> None:
    settings.LLM_MODEL = "smollm2"
    with pytest.raises(LLMRefused, match="LLM_MODEL"):
        llm.complete(COUNT, purpose="test", max_tokens=4, timeout_seconds=20)


def test_it_refuses_a_prompt_longer_than_the_window(local_llm: LocalLLM) -> None:
    long = [{"role": "user", "content": "word " * 6000}]
    with pytest.raises(LLMRefused, match="LLM_CONTEXT_TOKENS"):
        llm.complete(long, purpose="test", max_tokens=4, timeout_seconds=60)


def test_it_plans_or_says_that_it_could_not(local_llm: LocalLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_REPLY_TOKENS", 90)  # this model does not know when to stop
    found = plan("How can I delete one?", [("How are sessions stored?", "By SessionStore.save.")])
    assert found.english_query
    assert (found.source, bool(found.notice)) in (("llm", False), ("basic", True))
    assert found.notice in ("", planning.BAD_PLAN)


def test_it_reranks_or_keeps_the_order(local_llm: LocalLLM) -> None:
    hits = make_hits(3)
    result = rerank("How are sessions stored?", hits, [f"def symbol_{n}(): pass" for n in range(3)], keep=10)
    assert {hit.symbol for hit in [*result.hits, *(drop.hit for drop in result.dropped)]} == {h.symbol for h in hits}
    assert result.state == "done" or result.notice


def test_it_describes_or_warns(local_llm: LocalLLM) -> None:
    budget = describing.DescribeBudget(chunks=4, tokens=4000)
    chunks = [
        describing.ChunkToDescribe("store.py", "python", name, f"def {name}(session):\n    db.write(session)")
        for name in ("save_session", "delete_session")
    ]
    found = dict(describing.describe_chunks(chunks, repository_id=None, budget=budget))
    assert ChunkDescription.objects.count() == len(found) == budget.described
    assert len(found) == 2 or budget.warning
    assert all(describing.MIN_DESCRIPTION_CHARS <= len(text) <= 400 for text in found.values())
