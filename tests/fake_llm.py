"""A scripted language model in place of litellm, for tests that are not about litellm itself."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_django import Settings

from indexing import llm

Reply = str | dict[str, Any] | list[Any] | Exception | Callable[[list[dict[str, str]]], Any]


class FakeLLM:
    """Answers each request with the next of `replies`, the last one again and again; keeps what it was asked.

    A reply is text, a JSON value, an exception to raise, or a function of the messages that gives one of those.
    """

    def __init__(self) -> None:
        self.replies: list[Reply] = ["A plain answer."]
        self.requests: list[dict[str, Any]] = []

    @property
    def prompt(self) -> str:
        """Everything that the last request says."""
        return "\n".join(message["content"] for message in self.requests[-1]["messages"])

    def completion(self, **request: Any) -> Any:
        message = SimpleNamespace(content=self._next(request))
        return SimpleNamespace(choices=[SimpleNamespace(message=message, finish_reason="stop")], usage=_usage())

    async def acompletion(self, **request: Any) -> AsyncIterator[Any]:
        text = self._next(request)

        async def chunks() -> AsyncIterator[Any]:
            for word in text.split(" "):
                yield _chunk(word if word == text.split(" ")[0] else f" {word}", None)
            yield _chunk(None, "stop")
            yield SimpleNamespace(choices=[], usage=_usage())

        return chunks()

    def cost_per_token(self, **_: Any) -> tuple[float, float]:
        return 0.001, 0.002

    def _next(self, request: dict[str, Any]) -> str:
        self.requests.append(request)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if callable(reply):
            reply = reply(request["messages"])
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, str) else json.dumps(reply)


class ProviderError(Exception):
    """What litellm raises, as far as it matters: a status and headers."""

    def __init__(self, status_code: int, **headers: str) -> None:
        super().__init__("the provider's own words, with sk-secret-key in them")
        self.status_code = status_code
        self.response = SimpleNamespace(headers={name.replace("_", "-"): text for name, text in headers.items()})


def _usage() -> Any:
    return SimpleNamespace(prompt_tokens=10, completion_tokens=4)


def _chunk(text: str | None, finish_reason: str | None) -> Any:
    return SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(content=text), finish_reason=finish_reason)])


@pytest.fixture
def fake_llm(db: None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> FakeLLM:
    settings.LLM_MODEL = "openai/fake"
    settings.LLM_API_BASE = "http://127.0.0.1:9/v1"
    fake = FakeLLM()
    monkeypatch.setattr(llm, "_litellm", lambda: fake)
    return fake
