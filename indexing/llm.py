"""The only module that imports litellm, lazily: complete, structured, stream; with retries, time-outs and the ledger."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.conf import settings
from pydantic import BaseModel

from indexing.errors import LLMNotConfigured

Message = dict[str, str]  # {"role": ..., "content": ...}, as every chat API has it
Schema = TypeVar("Schema", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where questions and code go. `local`: the model answers on this host or in the private network."""

    name: str
    host: str
    local: bool


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    model: str
    prompt_tokens: int
    completion_tokens: int
    finish_reason: str
    milliseconds: int
    cost_usd: float


@dataclass(frozen=True, slots=True)
class StreamPart:
    """`finish_reason` is None until the last part ("stop", "length", ...), whose text may be empty."""

    text: str
    finish_reason: str | None


def configured() -> bool:
    return bool(settings.LLM_MODEL)


def model_name() -> str:
    return str(settings.LLM_MODEL)


def model_place() -> ModelPlace:
    """Raises LLMNotConfigured."""
    raise LLMNotConfigured("no model")


def complete(
    messages: Sequence[Message],
    *,
    purpose: str,
    max_tokens: int,
    timeout_seconds: float,
    user_id: int | None = None,
    repository_id: int | None = None,
    json_schema: dict[str, Any] | None = None,
) -> Completion:
    """One whole reply. `timeout_seconds` bounds everything, retries included. Raises an LLMError."""
    raise LLMNotConfigured("no model")


def structured(
    messages: Sequence[Message],
    schema: type[Schema],
    *,
    purpose: str,
    max_tokens: int,
    timeout_seconds: float,
    user_id: int | None = None,
    repository_id: int | None = None,
) -> Schema:
    """A reply validated against `schema`. Raises an LLMError; LLMBadReply when it does not fit."""
    raise LLMNotConfigured("no model")


async def stream(
    messages: Sequence[Message],
    *,
    purpose: str,
    max_tokens: int,
    timeout_seconds: float,
    user_id: int | None = None,
) -> AsyncIterator[StreamPart]:
    """The reply as it is written. Close the iterator (`aclose`) to stop the model. Raises an LLMError."""
    raise LLMNotConfigured("no model")
    yield StreamPart("", None)


def count_tokens(text: str) -> int:
    """A cheap upper estimate."""
    return len(text.encode()) // 3 + 1


def parse_json_reply(text: str) -> Any:
    """The JSON value in a model's reply. Raises LLMBadReply."""
    raise LLMNotConfigured("no model")
