"""Bytes of a stream in OpenAI's format -> what each read brought: text, why the reply ended, its tokens.

litellm and OpenAI's library build a dozen checked objects for each token, one token at a time. Here all that has
arrived is read together, so that a busy process does less for each token. Knows nothing of providers and requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]  # Any: JSON

DRAIN_SECONDS = 0.1  # for the end of a body after its last event, so that its connection can be used again
_FAILED = ("abort", "error")  # what servers give as a reason when a reply did not end


@dataclass(frozen=True, slots=True)
class Arrived:
    """`finish_reason` is empty and the counts are 0 until the server tells them."""

    text: str
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class BrokenOff(Exception):
    """The reply did not end. Says what the server told of it, which may quote the prompt."""


async def read(response: Any) -> AsyncGenerator[Arrived, None]:  # Any: of httpx or httpx2
    """What each read of an opened response brought. Raises BrokenOff and TimeoutError."""
    reply = _Reply()
    async with contextlib.aclosing(response.aiter_bytes()) as reads:
        while not reply.over:
            try:
                data = await anext(reads, b"")
            except Exception as error:  # noqa: BLE001  three libraries' errors come through here
                if reply.ended:
                    return
                raise (TimeoutError() if "Timeout" in type(error).__name__ else BrokenOff()) from None
            if (arrived := reply.feed(data or b"\n")) is not None:
                yield arrived
            if reply.failure is not None:
                raise reply.failure
            if not data:
                break
        if not reply.ended:
            raise BrokenOff
        await _drain(reads)


async def _drain(reads: AsyncGenerator[bytes, None]) -> None:
    with contextlib.suppress(Exception):  # the reply is whole
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in reads:
                pass


class _Reply:
    """A reply so far.

    `ended`: the server said why, or that it did; `over`: nothing comes after it; `failure`: why it cannot end.
    """

    def __init__(self) -> None:
        self.ended = self.over = False
        self.failure: BrokenOff | None = None
        self._rest = b""

    def feed(self, data: bytes) -> Arrived | None:
        """The lines that `data` completes, as one; None when no event is among them."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = []
        for payload in (line[5:].strip() for line in lines if line.startswith(b"data:")):
            self.over = payload.startswith(b"[DONE]")
            self.ended = self.ended or self.over  # some compatible servers never say why
            if self.over or (event := self._event(payload)) is None:
                break
            events.append(event)
        return self._merged(events) if events else None

    def _event(self, payload: bytes) -> Json | None:
        """None, and `failure`, for what is not an event or tells an error."""
        try:
            event = json.loads(payload)
        except ValueError:
            event = None
        if not isinstance(event, dict) or event.get("error"):
            self.failure = BrokenOff(str(event.get("error")) if isinstance(event, dict) else "")
            return None
        if any(choice.get("finish_reason") in _FAILED for choice in event.get("choices") or ()):
            self.failure = BrokenOff()
            return None
        return event

    def _merged(self, events: Sequence[Json]) -> Arrived:
        choices = [event["choices"][0] for event in events if event.get("choices")]
        contents = [(choice.get("delta") or {}).get("content") for choice in choices]
        reasons = [choice["finish_reason"] for choice in choices if choice.get("finish_reason")]
        usage: Json = next((event["usage"] for event in reversed(events) if event.get("usage")), {})
        self.ended = self.ended or bool(reasons)
        return Arrived(
            text="".join(content for content in contents if isinstance(content, str)),
            finish_reason=reasons[-1] if reasons else "",
            prompt_tokens=usage.get("prompt_tokens") or 0,
            completion_tokens=usage.get("completion_tokens") or 0,
        )
