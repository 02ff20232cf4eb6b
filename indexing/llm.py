"""Messages -> a language model's reply: the only module that imports litellm.

`complete` and `structured` wait for the whole reply, `stream` hands it on as it is written. Every call retries what
can get better (429, 5xx, network), tells in its error what to do about the rest, and leaves one row in the ledger.
Prompts, replies and keys are in no log, no error and no table.

litellm takes about 6 CPU-seconds to import, so it is imported by the first call, or by `warm_up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import ipaddress
import logging
import os
import random
import re
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DatabaseError
from pydantic import BaseModel, ValidationError

from indexing import counters, json_reply, openai_stream
from indexing.connections import let_go
from indexing.errors import LLMBadReply, LLMError, LLMNotConfigured, LLMRefused, LLMUnavailable
from indexing.models import LLMCall
from indexing.openai_stream import Arrived, BrokenOff

MAX_ATTEMPTS = 4
MAX_NETWORK_ATTEMPTS = 2  # a server that is not there seldom comes back while a person waits
BACKOFF_SECONDS = 0.5  # doubled with each attempt, with jitter
MAX_BACKOFF_SECONDS = 8.0
MAX_RETRY_AFTER_SECONDS = 60.0  # a server that asks for more gets its next request after this
IDLE_SECONDS = 30.0  # a stream that pauses longer between two parts is taken for dead
LOCAL_RERANKER = "local/"  # a cross-encoder of this machine, not a provider's model
MAX_STREAM_TIMEOUTS = 5  # a whole stream may last this many times its time-out

Message = dict[str, str]  # {"role": "system" | "user" | "assistant", "content": ...}
Schema = TypeVar("Schema", bound=BaseModel)
Reply = TypeVar("Reply")

logger = logging.getLogger(__name__)

# Provider -> address used when LLM_API_BASE is empty. Passed on explicitly, so that no variable of a provider's own
# library can send code to a host that `model_place` does not name.
_DEFAULT_BASES = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://localhost:11434",
    "ollama_chat": "http://localhost:11434",
}
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_BASES_WITHOUT_PATH = ("anthropic", "ollama", "ollama_chat")


@dataclass(frozen=True, slots=True)
class ModelPlace:
    """Where questions and code go. `local`: the model answers on this machine or in the private network.

    `host` is the provider's name when its address is litellm's own knowledge.
    """

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
    """`finish_reason` is None but in the last part, whose text is empty: "stop", "length", ..."""

    text: str
    finish_reason: str | None


def configured() -> bool:
    return bool(settings.LLM_MODEL)


def model_name() -> str:
    """As it is set; empty without a model."""
    return str(settings.LLM_MODEL)


def model_place() -> ModelPlace:
    """Raises LLMNotConfigured."""
    name = _configured_name()
    base = settings.LLM_API_BASE or _DEFAULT_BASES.get(_provider(name), "")
    host = (urlsplit(base if "://" in base else f"//{base}").hostname or "") if base else ""
    return ModelPlace(name=name, host=host or _provider(name), local=_is_local(host))


def reranker_place() -> ModelPlace | None:
    """Where RERANK_MODEL gets the passages; None when LLM_MODEL or this machine re-ranks."""
    if not settings.RERANK_MODEL or settings.RERANK_MODEL.startswith(LOCAL_RERANKER):
        return None
    host = urlsplit(settings.RERANK_API_BASE).hostname or settings.RERANK_API_BASE
    return ModelPlace(name=settings.RERANK_MODEL, host=host, local=_is_local(host))


def warm_up() -> None:
    """Import litellm in the background, so that the first question does not wait for it."""
    if configured():
        threading.Thread(target=_litellm, name="import litellm", daemon=True).start()


def complete(
    messages: Sequence[Message],
    *,
    purpose: str,
    max_tokens: int,
    timeout_seconds: float,
    user_id: int | None = None,
    repository_id: int | None = None,
    json_schema: dict[str, Any] | None = None,  # Any: JSON
) -> Completion:
    """One whole reply; `timeout_seconds` bounds it with all its retries. `purpose` is one of LLMCall.Purpose.

    `json_schema` asks for a reply that fits, where the model can promise that; it may still not fit.
    Raises LLMNotConfigured, LLMRefused, LLMUnavailable, LLMBadReply. Do not call it inside a transaction.
    """
    request = _request(messages, max_tokens)
    if json_schema is not None:
        request |= {"temperature": 0, "response_format": _response_format(json_schema)}
    litellm = _litellm()
    row = LLMCall(purpose=purpose, model=model_name(), user_id=user_id, repository_id=repository_id)
    started = time.monotonic()
    try:
        response = _attempt(lambda seconds: _ask(litellm, request, seconds), timeout_seconds)
        return _completion(litellm, response, row, started)
    except LLMError as error:
        row.error = type(error).__name__
        raise
    finally:
        row.milliseconds = _milliseconds_since(started)
        _save(row)


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
    """A reply as an instance of `schema`. Raises what `complete` raises; LLMBadReply when it does not fit."""
    completion = complete(
        messages,
        purpose=purpose,
        max_tokens=max_tokens,
        timeout_seconds=timeout_seconds,
        user_id=user_id,
        repository_id=repository_id,
        json_schema=schema.model_json_schema(),
    )
    value = parse_json_reply(completion.text)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        fields = ", ".join(sorted({".".join(map(str, problem["loc"])) or "(all)" for problem in error.errors()}))
        # From None: pydantic's message quotes the reply.
        raise LLMBadReply(f"The model's reply does not fit {schema.__name__}: {fields}.") from None


def relevances(
    question: str, passages: Sequence[str], *, timeout_seconds: float, user_id: int | None = None
) -> dict[int, float]:
    """How well passages answer the question, by RERANK_MODEL at its provider: position -> score, higher is better.

    Positions that the reply leaves out are missing. Raises LLMRefused, LLMUnavailable, LLMBadReply.
    """
    litellm = _litellm()
    place = reranker_place()
    row = LLMCall(purpose=LLMCall.Purpose.RERANK, model=settings.RERANK_MODEL, user_id=user_id)
    request = {
        "model": settings.RERANK_MODEL,
        "query": question,
        "documents": list(passages),
        "api_base": settings.RERANK_API_BASE,
        "api_key": settings.RERANK_API_KEY or "none",  # else a key in the environment would go to this host
        "return_documents": False,
        "max_retries": 0,
    }
    started = time.monotonic()
    try:
        response = _attempt(
            lambda seconds: _within(seconds, lambda: litellm.rerank(**request, timeout=seconds)), timeout_seconds, place
        )
        scores = {int(result["index"]): float(result["relevance_score"]) for result in response.results or ()}
        scores = {position: score for position, score in scores.items() if 0 <= position < len(passages)}
        if not scores:
            raise LLMBadReply("The re-ranking model scored none of the passages.")
        row.prompt_tokens = sum(count_tokens(passage) for passage in passages)
        return scores
    except (KeyError, TypeError, ValueError):
        row.error = LLMBadReply.__name__
        raise LLMBadReply("The re-ranking model's reply cannot be read.") from None
    except LLMError as error:
        row.error = type(error).__name__
        raise
    finally:
        row.milliseconds = _milliseconds_since(started)
        _save(row)


async def stream(
    messages: Sequence[Message],
    *,
    purpose: str,
    max_tokens: int,
    timeout_seconds: float,
    user_id: int | None = None,
) -> AsyncGenerator[StreamPart, None]:
    """The reply as it is written, without the thoughts of reasoning models; close it (`aclose`) to stop the model.

    The first part comes within `timeout_seconds`, the next ones within IDLE_SECONDS of each other. Retries happen
    before the first part only. Raises what `complete` raises.
    """
    request = _request(messages, max_tokens) | {"stream": True, "stream_options": {"include_usage": True}}
    litellm = await asyncio.to_thread(_litellm)
    row = LLMCall(purpose=purpose, model=model_name(), user_id=user_id)
    started = time.monotonic()
    try:
        source = await _open_stream(litellm, request, timeout_seconds)
        async with contextlib.aclosing(source), contextlib.aclosing(_parts(source, row, timeout_seconds)) as parts:
            async for part in parts:
                yield part
    except LLMError as error:
        row.error = type(error).__name__
        raise
    finally:
        if row.completion_tokens and not row.prompt_tokens:  # stopped, or a server that tells no usage
            row.prompt_tokens = sum(count_tokens(message["content"]) for message in messages)
        row.cost_usd = _cost(litellm, row)
        row.milliseconds = _milliseconds_since(started)
        await sync_to_async(_save_and_close)(row)


def count_tokens(text: str) -> int:
    """An upper estimate for code and prose: 3 bytes a token. Exact counts would need each provider's tokenizer."""
    return (len(text.encode("utf-8", "replace")) + 2) // 3


def parse_json_reply(text: str) -> Any:  # Any: JSON
    """The JSON value in a reply with fences, thoughts, chatter or a cut end. Raises LLMBadReply."""
    return json_reply.read(text)


@cache
def _litellm() -> Any:  # Any: litellm is not typed for strict checks
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    os.environ["LITELLM_OFFLINE_MODE"] = "true"  # no catalogue, tokenizer or version is fetched
    os.environ["LITELLM_MODE"] = "PRODUCTION"  # does not read .env files of its own
    import litellm

    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.turn_off_message_logging = True
    litellm.drop_params = True
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # its errors quote requests
    return litellm


# What is sent.


def _configured_name() -> str:
    if not configured():
        raise LLMNotConfigured("No language model is set up: set LLM_MODEL, for example ollama/llama3.1.")
    return model_name()


def _provider(name: str) -> str:
    prefix, separator, _ = name.partition("/")
    if separator:
        return prefix
    return "anthropic" if name.startswith("claude") else "openai"


def _request(messages: Sequence[Message], max_tokens: int) -> dict[str, Any]:  # Any: keyword arguments of litellm
    name = _configured_name()
    provider = _provider(name)
    request: dict[str, Any] = {
        # Ollama's plain endpoint knows no roles; its chat endpoint uses the model's own template.
        "model": name.replace("ollama/", "ollama_chat/", 1) if provider == "ollama" else name,
        "messages": list(messages),
        "max_tokens": max_tokens,
        "max_retries": 0,
        "num_retries": 0,
        "drop_params": True,
    }
    if provider in ("ollama", "ollama_chat"):
        request["num_ctx"] = settings.LLM_CONTEXT_TOKENS  # Ollama cuts longer prompts without a word at its default
    if base := (settings.LLM_API_BASE or _DEFAULT_BASES.get(provider, "")).rstrip("/"):
        # These two get their path added by litellm; people copy the address with it.
        request["api_base"] = base.removesuffix("/v1") if provider in _BASES_WITHOUT_PATH else base
    if settings.LLM_API_KEY:
        request["api_key"] = settings.LLM_API_KEY
    elif settings.LLM_API_BASE:
        request["api_key"] = "none"  # else a provider's key in the environment would go to this other host
    return request


def _response_format(schema: dict[str, Any]) -> dict[str, Any]:  # Any: JSON
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": _strict(schema), "strict": True}}


def _strict(schema: Any) -> Any:  # Any: JSON
    """As providers want it for a promise: every property required, no others, no defaults and titles."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {key: _strict(value) for key, value in schema.items() if key not in ("default", "title")}
    if "properties" in plain:
        plain["properties"] = {key: _strict(value) for key, value in schema["properties"].items()}
        plain |= {"required": list(plain["properties"]), "additionalProperties": False}
    return plain


# One attempt and the next.


def _ask(litellm: Any, request: dict[str, Any], seconds: float) -> Any:  # Any: litellm's values
    """One request; a model that refuses the schema is asked once more without it."""
    try:
        return _within(seconds, lambda: litellm.completion(**request, timeout=seconds))
    except Exception as error:
        if "response_format" not in request or not _is_refused_parameter(error):
            raise
    plain = {key: value for key, value in request.items() if key not in ("response_format", "temperature")}
    return _within(seconds, lambda: litellm.completion(**plain, timeout=seconds))


def _within(seconds: float, call: Callable[[], Reply]) -> Reply:
    """The clients' time-outs are per read: a server that drips a byte a second must not hold a question for ever."""
    future: Future[Reply] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001  handed to the caller whatever it is
            future.set_exception(error)

    threading.Thread(target=run, name="language model call", daemon=True).start()
    return future.result(timeout=seconds + 0.5)  # the client's own time-out comes first and frees the connection


def _attempt(call: Callable[[float], Reply], timeout_seconds: float, reranker: ModelPlace | None = None) -> Reply:
    """`call(seconds left)` until it works, cannot work, or the time is up. `reranker`: who is called then."""
    deadline = time.monotonic() + timeout_seconds
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            return call(deadline - time.monotonic())
        except Exception as error:  # noqa: BLE001  litellm lets anything through; all of it is explained
            wait = _retry_wait(error, attempt, deadline)
            if wait is None:
                # From None: the provider's message may quote the prompt or the key.
                raise _explained(error, timeout_seconds, reranker) from None
        time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


async def _open_stream(litellm: Any, request: dict[str, Any], timeout_seconds: float) -> Any:  # Any: litellm's values
    """`_attempt` for an answer that is read as it comes."""
    deadline = time.monotonic() + timeout_seconds
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await litellm.acompletion(**request, timeout=timeout_seconds)
        except Exception as error:  # noqa: BLE001  as above
            wait = _retry_wait(error, attempt, deadline)
            if wait is None:
                raise _explained(error, timeout_seconds) from None
        await asyncio.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def _retry_wait(error: BaseException, attempt: int, deadline: float) -> float | None:
    """Seconds until the next attempt; None when there is none: useless, too late or too many."""
    status = _status(error)
    attempts = MAX_NETWORK_ATTEMPTS if _is_network(error) else MAX_ATTEMPTS
    if attempt >= attempts or _is_timeout(error) or (status is not None and status != 429 and status < 500):
        return None
    asked = _retry_after(error)
    if asked is None:
        wait = min(BACKOFF_SECONDS * 2**attempt, MAX_BACKOFF_SECONDS) * random.uniform(0.5, 1)  # noqa: S311  jitter
    else:
        wait = min(asked, MAX_RETRY_AFTER_SECONDS) + random.uniform(0, 0.25)  # noqa: S311  jitter
    return wait if time.monotonic() + wait < deadline else None


def _retry_after(error: BaseException) -> float | None:
    """The Retry-After header in seconds, from either of its forms."""
    response = getattr(error, "response", None)
    for headers in (getattr(response, "headers", None), getattr(error, "litellm_response_headers", None)):
        value = (headers or {}).get("retry-after")
        if value is None:
            continue
        with contextlib.suppress(ValueError):
            return max(0.0, float(value))
        with contextlib.suppress(ValueError):
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


# What comes back.


def _completion(litellm: Any, response: Any, row: LLMCall, started: float) -> Completion:  # Any: litellm's values
    _note_usage(row, response)
    row.cost_usd = _cost(litellm, row)
    choice = response.choices[0] if response.choices else None
    text = json_reply.without_thoughts(_storable(choice.message.content or "")) if choice else ""
    if choice is None or not text:
        reason = choice.finish_reason if choice else None
        raise LLMBadReply(f"The model's reply is empty (it ended with {reason or 'no reason'}).")
    return Completion(
        text=text,
        model=row.model,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
        finish_reason=choice.finish_reason or "",
        milliseconds=_milliseconds_since(started),
        cost_usd=row.cost_usd,
    )


async def _parts(
    source: Any, row: LLMCall, timeout_seconds: float
) -> AsyncGenerator[StreamPart, None]:  # Any: litellm's
    """What arrives, as StreamParts. Usage is noted in `row`, estimated until the server tells it."""
    thoughts = _ThoughtFilter()
    finish_reason = ""
    async with contextlib.aclosing(_arrivals(source)) as arrivals:
        async for arrived in _in_time(arrivals, timeout_seconds):
            finish_reason = arrived.finish_reason or finish_reason
            content = _storable(arrived.text)
            if arrived.prompt_tokens:
                row.prompt_tokens, row.completion_tokens = arrived.prompt_tokens, arrived.completion_tokens
            elif content and not row.prompt_tokens:
                row.completion_tokens += count_tokens(content)
            if text := thoughts.feed(content):
                yield StreamPart(text, None)
    if text := thoughts.end():
        yield StreamPart(text, None)
    yield StreamPart("", finish_reason or "stop")


def _storable(text: str) -> str:
    """Models write NUL and halves of surrogate pairs; databases and UTF-8 take neither."""
    return _UNSTORABLE.sub("\ufffd", text)


async def _arrivals(source: Any) -> AsyncGenerator[Arrived, None]:  # Any: litellm's values
    """The parts of an opened stream. What OpenAI's library would read is read here, for a fraction of the work."""
    response = getattr(getattr(source, "completion_stream", None), "response", None)
    if response is None or source.custom_llm_provider != "openai":
        async for chunk in source:
            yield _arrived(chunk)
        return
    async with contextlib.aclosing(openai_stream.read(response)) as arrivals:
        async for arrived in arrivals:
            reason = arrived.finish_reason
            yield replace(arrived, finish_reason=_openai_reason(reason)) if reason else arrived


def _arrived(chunk: Any) -> Arrived:  # Any: litellm's values
    usage = getattr(chunk, "usage", None)
    choice = chunk.choices[0] if chunk.choices else None
    return Arrived(
        text=(choice.delta.content or "") if choice else "",
        finish_reason=(choice.finish_reason or "") if choice else "",
        prompt_tokens=(usage.prompt_tokens or 0) if usage else 0,
        completion_tokens=(usage.completion_tokens or 0) if usage else 0,
    )


def _openai_reason(reason: str) -> str:
    """In OpenAI's words: compatible servers have their own."""
    return str(_litellm().litellm_core_utils.core_helpers.map_finish_reason(reason))


async def _in_time(arrivals: AsyncGenerator[Arrived, None], timeout_seconds: float) -> AsyncIterator[Arrived]:
    """The arrivals, each within its time-out; errors are explained."""
    ends = time.monotonic() + MAX_STREAM_TIMEOUTS * timeout_seconds
    wait = timeout_seconds
    while True:
        try:
            async with asyncio.timeout(min(wait, ends - time.monotonic())):
                arrived = await anext(arrivals)
        except StopAsyncIteration:
            return
        except Exception as error:  # noqa: BLE001  litellm lets anything through; all of it is explained
            raise _explained(error, wait) from None
        yield arrived
        wait = min(timeout_seconds, IDLE_SECONDS)


class _ThoughtFilter:
    """Holds back a reply's opening `<think>...</think>`, however it is cut into parts."""

    _OPEN, _CLOSE = "<think>", "</think>"

    def __init__(self) -> None:
        self._held = ""
        self._passing = False

    def feed(self, text: str) -> str:
        if self._passing:
            return text
        self._held += text
        start = self._held.lstrip()
        if start.startswith(self._OPEN):
            _, closed, answer = start.partition(self._CLOSE)
            return self._pass(answer.lstrip()) if closed and answer.strip() else ""
        return "" if self._OPEN.startswith(start) else self._pass(self._held)

    def end(self) -> str:
        """What is still held when the reply is over, unless it is a thought."""
        return "" if self._passing or self._held.lstrip().startswith(self._OPEN) else self._held

    def _pass(self, text: str) -> str:
        self._passing = True
        return text


# What went wrong.


def _explained(error: BaseException, seconds: float, reranker: ModelPlace | None = None) -> LLMError:
    """The error as a sentence with the way out. Nothing of the provider's own message is repeated."""
    if isinstance(error, LLMError):
        return error
    place = reranker or model_place()
    where = f"The {'re-ranking' if reranker else 'language'} model at {place.host}"
    its = "RERANK" if reranker else "LLM"
    status = _status(error)
    if "LLM Provider NOT provided" in str(error):
        return LLMRefused(
            f"{its}_MODEL is {place.name!r}, which names no provider; write for example openai/{place.name}."
        )
    if type(error).__name__ == "ContextWindowExceededError" or _tells_long_prompt(error):
        return LLMRefused(f"{where} refused a prompt longer than its window: set LLM_CONTEXT_TOKENS to its real size.")
    if _is_timeout(error):
        return LLMUnavailable(f"{where} did not answer within {seconds:.0f} seconds.")
    if isinstance(error, BrokenOff) or type(error).__name__ == "MidStreamFallbackError":
        return LLMUnavailable(f"{where} broke off in the middle of its reply: try again.")
    if _is_network(error):
        return LLMUnavailable(f"{where} could not be reached: check that it runs, and {its}_API_BASE.")
    match status:
        case 401 | 403:
            return LLMRefused(f"{where} answered {status} (access refused): set {its}_API_KEY to a valid key.")
        case 402:
            return LLMRefused(f"{where} answered 402 (payment required): check the account of {its}_API_KEY.")
        case 404:
            return LLMRefused(f"{where} answered 404 (not found): check {its}_MODEL ({place.name}) and {its}_API_BASE.")
        case 429:
            return LLMUnavailable(f"{where} answered 429 (too many requests): try again later.")
        case int() if 400 <= status < 500:
            also = "" if reranker else " and LLM_CONTEXT_TOKENS"
            return LLMRefused(f"{where} answered {status} (bad request): check {its}_MODEL{also}.")
        case int():
            return LLMUnavailable(f"{where} answered {status} (its own error): try again later.")
    return LLMUnavailable(f"{where} failed with {type(error).__name__}: check {its}_MODEL and {its}_API_BASE.")


def _tells_long_prompt(error: BaseException) -> bool:
    """In the words of a stream that began well; litellm knows those of many servers."""
    if not isinstance(error, BrokenOff):
        return False
    known = _litellm().litellm_core_utils.exception_mapping_utils.ExceptionCheckers
    return bool(known.is_error_str_context_window_exceeded(str(error)))


def _status(error: BaseException) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) or _status(error) == 408


def _is_network(error: BaseException) -> bool:
    """litellm gives a refused connection the status 500; only the chain of causes tells."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) or type(cause).__name__ in ("ConnectError", "ReadError", "RemoteProtocolError"):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _is_refused_parameter(error: BaseException) -> bool:
    return _status(error) in (400, 422) and type(error).__name__ != "ContextWindowExceededError"


def _is_local(host: str) -> bool:
    """By its name alone: loopback, private address, or a name that only a private network knows."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return bool(host) and ("." not in host or host.endswith((".localhost", ".local", ".internal", ".lan")))
    return address.is_loopback or address.is_private or address.is_link_local


# The ledger.


def _note_usage(row: LLMCall, response: Any) -> None:  # Any: litellm's values
    usage = getattr(response, "usage", None)
    if usage is not None and usage.prompt_tokens:
        row.prompt_tokens = usage.prompt_tokens
        row.completion_tokens = usage.completion_tokens or 0


def _cost(litellm: Any, row: LLMCall) -> float:  # Any: litellm's values
    """US dollars by litellm's price list; 0 for a model that is not in it."""
    try:
        prices = litellm.cost_per_token(
            model=row.model, prompt_tokens=row.prompt_tokens, completion_tokens=row.completion_tokens
        )
    except Exception:  # noqa: BLE001  it raises a bare Exception for local and new models
        return 0.0
    return float(sum(prices))


def _save(row: LLMCall) -> None:
    counters.llm_calls.labels(row.purpose, row.error or "ok").inc()
    counters.llm_tokens.labels(row.purpose, "prompt").inc(row.prompt_tokens)
    counters.llm_tokens.labels(row.purpose, "completion").inc(row.completion_tokens)
    counters.llm_cost.labels(row.purpose).inc(row.cost_usd)
    counters.llm_seconds.labels(row.purpose).observe(row.milliseconds / 1000)
    try:
        row.save(force_insert=True)
    except DatabaseError:  # an answer is worth more than its entry
        logger.warning("could not write the ledger row of a %s call", row.purpose, exc_info=True)


def _save_and_close(row: LLMCall) -> None:
    """From a thread that no request tidies up: a connection left open there would be missing from the pool for good,
    and useless once the database was away."""
    try:
        _save(row)
    finally:
        let_go()


def _milliseconds_since(started: float) -> int:
    return round((time.monotonic() - started) * 1000)
