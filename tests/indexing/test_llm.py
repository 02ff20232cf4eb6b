"""What `indexing.llm` asks, retries, refuses, tells and records: with a scripted model and with litellm itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from email.utils import formatdate
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import DatabaseError
from pydantic import BaseModel
from pytest_django import Settings

from indexing import llm
from indexing.errors import LLMBadReply, LLMError, LLMNotConfigured, LLMRefused, LLMUnavailable
from indexing.models import LLMCall
from tests.fake_llm import FakeLLM, ProviderError
from tests.stub_llm_server import StubServer, serve

HELLO = [{"role": "user", "content": "Say hello, prompt-word."}]


def ask(**kwargs: Any) -> llm.Completion:
    return llm.complete(HELLO, **{"purpose": "test", "max_tokens": 20, "timeout_seconds": 10, **kwargs})


async def read_stream(**kwargs: Any) -> list[llm.StreamPart]:
    parts = llm.stream(HELLO, **{"purpose": "test", "max_tokens": 20, "timeout_seconds": 10, **kwargs})
    return [part async for part in parts]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of retries: the waits asked for, none of which is slept."""
    asked: list[float] = []
    real_sleep = time.sleep

    def sleep(seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():
            asked.append(seconds)
        else:
            real_sleep(seconds)  # a scripted server's

    monkeypatch.setattr("indexing.llm.time.sleep", sleep)
    return asked


@pytest.fixture
def stub(transactional_db: None, settings: Settings) -> Iterator[StubServer]:
    """litellm itself, talking to a scripted server."""
    with serve() as server:
        settings.LLM_MODEL, settings.LLM_API_BASE, settings.LLM_API_KEY = "openai/stub", server.base, "sk-our-key"
        yield server


# Settings.


def test_it_imports_litellm_only_when_it_is_used() -> None:
    code = "import django; django.setup(); import indexing.llm, sys; sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=_environment(), check=False).returncode == 0


def _environment() -> dict[str, str]:
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}


def test_it_says_how_to_set_up_a_model(settings: Settings) -> None:
    settings.LLM_MODEL = ""
    assert not llm.configured()
    with pytest.raises(LLMNotConfigured, match="set LLM_MODEL"):
        ask()


@pytest.mark.parametrize(
    ("model", "base", "host", "local"),
    [
        ("ollama/llama3.1", "", "localhost", True),
        ("openai/gpt-5", "", "api.openai.com", False),
        ("gpt-5", "", "api.openai.com", False),
        ("claude-sonnet-4-5", "", "api.anthropic.com", False),
        ("mistral/large", "", "mistral", False),
        ("openai/qwen", "http://10.1.2.3:8000/v1", "10.1.2.3", True),
        ("openai/qwen", "http://vllm:8000/v1", "vllm", True),
        ("openai/qwen", "https://user:pw@llm.example.com/v1", "llm.example.com", False),
        ("openai/qwen", "https://[2606:4700::1]/v1", "2606:4700::1", False),
    ],
)
def test_it_says_where_code_goes(settings: Settings, model: str, base: str, host: str, local: bool) -> None:
    settings.LLM_MODEL, settings.LLM_API_BASE = model, base
    assert llm.model_place() == llm.ModelPlace(name=model, host=host, local=local)


def test_it_sends_no_key_of_the_environment_to_another_host(fake_llm: FakeLLM, settings: Settings) -> None:
    settings.LLM_API_KEY = ""
    ask()
    assert fake_llm.requests[0]["api_key"] == "none"


def test_it_tells_ollama_the_window_and_uses_its_chat_endpoint(fake_llm: FakeLLM, settings: Settings) -> None:
    settings.LLM_MODEL, settings.LLM_API_BASE, settings.LLM_CONTEXT_TOKENS = "ollama/llama3.1", "", 16384
    ask()
    sent = fake_llm.requests[0]
    assert (sent["model"], sent["num_ctx"], sent["api_base"]) == (
        "ollama_chat/llama3.1",
        16384,
        "http://localhost:11434",
    )


@pytest.mark.parametrize(
    ("model", "base", "sent"),
    [
        ("ollama/llama3.1", "http://gpu:11434/v1/", "http://gpu:11434"),
        ("anthropic/claude", "https://llm.example.com/v1", "https://llm.example.com"),
        ("openai/qwen", "http://gpu:8000/v1/", "http://gpu:8000/v1"),
    ],
)
def test_it_takes_addresses_as_people_copy_them(
    fake_llm: FakeLLM, settings: Settings, model: str, base: str, sent: str
) -> None:
    settings.LLM_MODEL, settings.LLM_API_BASE = model, base
    ask()
    assert fake_llm.requests[0]["api_base"] == sent


def test_it_never_counts_fewer_tokens_than_a_tokenizer_of_code_would() -> None:
    assert llm.count_tokens("") == 0
    assert llm.count_tokens("x" * 300) == 100
    assert llm.count_tokens("日本語") == 3


# Whole replies.


def test_it_records_tokens_cost_and_purpose_but_no_text(fake_llm: FakeLLM, user: Any) -> None:
    completion = ask(user_id=user.pk)
    row = LLMCall.objects.get()
    assert (completion.text, completion.prompt_tokens, completion.finish_reason) == ("A plain answer.", 10, "stop")
    assert (row.purpose, row.user_id, row.prompt_tokens, row.completion_tokens, row.error) == (
        "test",
        user.pk,
        10,
        4,
        "",
    )
    assert row.cost_usd == pytest.approx(0.003)


@pytest.mark.parametrize(("header", "low", "high"), [("2", 2, 2.25), ("3600", 60, 60.25), ("", 0.5, 1.0)])
def test_it_waits_as_told_and_with_jitter_otherwise(
    fake_llm: FakeLLM, waits: list[float], header: str, low: float, high: float
) -> None:
    fake_llm.replies = [ProviderError(429, **({"retry_after": header} if header else {})), "hello"]
    assert ask(timeout_seconds=100).text == "hello"
    assert len(waits) == 1
    assert low <= waits[0] <= high


def test_it_reads_retry_after_as_a_date(fake_llm: FakeLLM, waits: list[float]) -> None:
    fake_llm.replies = [ProviderError(429, retry_after=formatdate(time.time() + 5, usegmt=True)), "hello"]
    ask(timeout_seconds=100)
    assert 3 <= waits[0] <= 5.25


def test_it_does_not_wait_longer_than_the_caller_would(fake_llm: FakeLLM, waits: list[float]) -> None:
    fake_llm.replies = [ProviderError(429, retry_after="30")]
    with pytest.raises(LLMUnavailable, match="429"):
        ask(timeout_seconds=8)
    assert waits == []


def test_it_gives_up_after_four_attempts(fake_llm: FakeLLM, waits: list[float]) -> None:
    fake_llm.replies = [ProviderError(503)]
    with pytest.raises(LLMUnavailable, match="503"):
        ask(timeout_seconds=100)
    assert (len(fake_llm.requests), len(waits)) == (4, 3)
    assert LLMCall.objects.get().error == "LLMUnavailable"


@pytest.mark.parametrize(
    ("status", "setting"), [(400, "LLM_MODEL"), (401, "LLM_API_KEY"), (403, "LLM_API_KEY"), (404, "LLM_API_BASE")]
)
def test_it_does_not_retry_what_a_setting_must_fix(
    fake_llm: FakeLLM, waits: list[float], status: int, setting: str
) -> None:
    fake_llm.replies = [ProviderError(status)]
    with pytest.raises(LLMRefused, match=rf"127\.0\.0\.1 answered {status}.*{setting}") as caught:
        ask()
    assert len(fake_llm.requests) == 1
    assert "sk-secret-key" not in str(caught.value)


def test_it_asks_again_without_the_schema_when_the_server_knows_none(fake_llm: FakeLLM) -> None:
    fake_llm.replies = [ProviderError(400), '{"a": 1}']
    assert ask(json_schema={"type": "object", "properties": {"a": {"type": "integer"}}}).text == '{"a": 1}'
    assert ["response_format" in request for request in fake_llm.requests] == [True, False]


def test_it_calls_an_empty_reply_bad(fake_llm: FakeLLM) -> None:
    fake_llm.replies = ["<think>hm"]
    with pytest.raises(LLMBadReply, match="empty"):
        ask()


def test_it_keeps_the_answer_when_the_ledger_cannot_be_written(
    fake_llm: FakeLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: LLMCall, **_: Any) -> None:
        raise DatabaseError("locked")

    monkeypatch.setattr(LLMCall, "save", fail)
    assert ask().text == "A plain answer."


class Colour(BaseModel):
    name: str
    shades: list[int] = []


def structured() -> Colour:
    return llm.structured(HELLO, Colour, purpose="test", max_tokens=20, timeout_seconds=5)


def test_it_validates_a_structured_reply(fake_llm: FakeLLM) -> None:
    fake_llm.replies = ['Here: ```json\n{"name": "red", "shades": [1,],}```']
    assert structured() == Colour(name="red", shades=[1])
    schema = fake_llm.requests[0]["response_format"]["json_schema"]["schema"]
    assert (schema["required"], schema["additionalProperties"]) == (["name", "shades"], False)


@pytest.mark.parametrize("reply", ["great!", '{"shades": [1]}', '{"name": ["secret reply"]}', "[1, 2]"])
def test_it_refuses_a_structured_reply_that_does_not_fit(fake_llm: FakeLLM, reply: str) -> None:
    fake_llm.replies = [reply]
    with pytest.raises(LLMBadReply) as caught:
        structured()
    assert "secret reply" not in str(caught.value)


# Streams.


@pytest.mark.django_db(transaction=True)
async def test_it_streams_the_parts_and_records_the_usage(fake_llm: FakeLLM) -> None:
    parts = await read_stream()
    assert [part.text for part in parts] == ["A", " plain", " answer.", ""]
    assert [part.finish_reason for part in parts] == [None, None, None, "stop"]
    assert (await LLMCall.objects.aget()).prompt_tokens == 10


@pytest.mark.django_db(transaction=True)
async def test_it_hides_thoughts_however_they_are_cut(fake_llm: FakeLLM) -> None:
    fake_llm.replies = ["<think>no, well no</think> Yes, see [1]."]
    assert "".join(part.text for part in await read_stream()) == "Yes, see [1]."


@pytest.mark.django_db(transaction=True)
async def test_it_records_an_estimate_when_a_stream_is_stopped(fake_llm: FakeLLM) -> None:
    parts = llm.stream(HELLO, purpose="answer", max_tokens=20, timeout_seconds=5)
    assert (await anext(parts)).text == "A"
    await parts.aclose()
    row = await LLMCall.objects.aget()
    assert (row.purpose, row.prompt_tokens, row.completion_tokens, row.error) == ("answer", 8, 1, "")


# litellm itself.


def test_it_talks_to_an_openai_compatible_server(stub: StubServer) -> None:
    completion = ask()
    assert (completion.text, completion.prompt_tokens, completion.completion_tokens) == ("Hello there.", 21, 5)
    assert (stub.requests[0]["model"], stub.requests[0]["max_tokens"]) == ("stub", 20)
    assert stub.keys == ["Bearer sk-our-key"]


@pytest.mark.parametrize(("status", "error"), [(401, LLMRefused), (404, LLMRefused), (400, LLMRefused)])
def test_it_explains_what_the_server_refuses_after_one_request(
    stub: StubServer, status: int, error: type[LLMError], caplog: pytest.LogCaptureFixture
) -> None:
    stub.script = [(status, {}, "")]
    with pytest.raises(error, match=f"answered {status}") as caught:
        ask()
    assert len(stub.requests) == 1
    shown = repr(caught.getrepr(chain=True)) + caplog.text + str(caught.value)
    assert "sk-our-key" not in shown
    assert "prompt-word" not in shown


def test_it_obeys_retry_after_of_a_real_response(stub: StubServer, waits: list[float]) -> None:
    stub.script = [(429, {"Retry-After": "2"}, ""), (500, {}, ""), (200, {}, "late")]
    assert ask(timeout_seconds=30).text == "late"
    assert 2 <= waits[0] <= 2.25


@pytest.mark.parametrize("behaviour", ["HANG", "DRIP"])
def test_it_keeps_to_the_time_limit_whatever_the_server_does(stub: StubServer, behaviour: str) -> None:
    stub.script = [(200, {}, behaviour)]
    started = time.monotonic()
    with pytest.raises(LLMUnavailable, match="did not answer within 1 seconds"):
        ask(timeout_seconds=0.6)
    assert time.monotonic() - started < 5


def test_it_says_when_nobody_listens(stub: StubServer, settings: Settings, waits: list[float]) -> None:
    settings.LLM_API_BASE = "http://127.0.0.1:9/v1"
    with pytest.raises(LLMUnavailable, match="could not be reached.*LLM_API_BASE"):
        ask()
    assert len(waits) == 1


def test_it_says_when_the_model_name_has_no_provider(stub: StubServer, settings: Settings) -> None:
    settings.LLM_MODEL = "smollm"
    with pytest.raises(LLMRefused, match="openai/smollm"):
        ask()


async def test_it_streams_as_the_server_writes(stub: StubServer) -> None:
    stub.script = [(200, {}, "one WAIT two")]  # the rest is not written before the first word has arrived
    parts = llm.stream(HELLO, purpose="test", max_tokens=9, timeout_seconds=5)
    assert (await anext(parts)).text == "one "
    stub.go_on.set()
    assert "".join([part.text async for part in parts]) == "WAIT two "
    row = await LLMCall.objects.aget()
    assert (row.prompt_tokens, row.completion_tokens) == (21, 5)


async def test_it_replaces_characters_that_cannot_be_stored(stub: StubServer) -> None:
    stub.script = [(200, {}, "half \ud83d, nul \0")]
    parts = llm.stream(HELLO, purpose="test", max_tokens=9, timeout_seconds=5)
    assert "".join([part.text async for part in parts]).strip() == "half \ufffd, nul \ufffd"
    assert (await sync_to_async(ask)()).text == "half \ufffd, nul \ufffd"


async def test_it_hangs_up_when_a_stream_is_closed(stub: StubServer) -> None:
    stub.script, stub.pause_seconds = [(200, {}, " ".join(["word"] * 200))], 0.02
    parts = llm.stream(HELLO, purpose="test", max_tokens=9, timeout_seconds=5)
    await anext(parts)
    await parts.aclose()
    assert stub.disconnected.wait(3)


async def test_it_ends_a_stream_that_stalls(stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "IDLE_SECONDS", 0.4)
    stub.script = [(200, {}, "one HANG two")]
    parts = llm.stream(HELLO, purpose="test", max_tokens=9, timeout_seconds=5)
    assert (await anext(parts)).text.strip() == "one"
    with pytest.raises(LLMUnavailable, match="did not answer"):
        await anext(parts)
    assert (await LLMCall.objects.aget()).error == "LLMUnavailable"


async def test_it_refuses_a_stream_as_it_refuses_a_reply(stub: StubServer) -> None:
    stub.script = [(401, {}, "")]
    with pytest.raises(LLMRefused, match="LLM_API_KEY"):
        await read_stream()


async def test_it_tells_a_reply_that_broke_off_from_one_that_ended(stub: StubServer) -> None:
    stub.script = [(200, {}, "one two CUT")]
    with pytest.raises(LLMUnavailable, match="broke off"):
        await read_stream()


async def test_it_tells_a_long_prompt_from_an_error_in_a_stream(stub: StubServer) -> None:
    stub.script = [(200, {}, "one ERROR:This_model's_maximum_context_length_is_4096_tokens")]
    with pytest.raises(LLMRefused, match="LLM_CONTEXT_TOKENS"):
        await read_stream()
    stub.script = [(200, {}, "one ERROR:prompt-word")]
    with pytest.raises(LLMUnavailable, match="broke off") as caught:
        await read_stream()
    assert "prompt-word" not in "".join(traceback.format_exception(caught.value))


async def test_it_reads_openais_format_itself(stub: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails when litellm keeps its response elsewhere: all would work, at several times the cost."""
    litellm = await sync_to_async(llm._litellm)()
    monkeypatch.delattr(litellm.CustomStreamWrapper, "__anext__")
    assert "".join(part.text for part in await read_stream()) == "Hello there. "


async def test_it_gives_reasons_in_openais_words(stub: StubServer) -> None:
    stub.finish_reason = "eos_token"
    assert (await read_stream())[-1].finish_reason == "stop"
