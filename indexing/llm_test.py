"""One small request to the language model, for people who set it up: what was asked, what came back, how long it took.

Sends nothing but the sentences below, never code.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from indexing import llm
from indexing.errors import LLMError

QUESTION = (
    {"role": "system", "content": "You check a connection. Answer in one short sentence."},
    {"role": "user", "content": "Which language is this line of code written in? print('hello')"},
)
MAX_TOKENS = 200
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """`error` is empty when it worked, else a sentence that says what to change."""

    model: str
    host: str
    local: bool
    asked: tuple[dict[str, str], ...]
    answer: str
    error: str
    milliseconds: int
    tokens: str = ""
    cost_usd: float = 0.0


def try_model(*, user_id: int | None) -> Outcome:
    """Raises LLMNotConfigured."""
    place = llm.model_place()
    begun = time.monotonic()
    try:
        reply = llm.complete(
            list(QUESTION), purpose="test", max_tokens=MAX_TOKENS, timeout_seconds=SECONDS, user_id=user_id
        )
    except LLMError as error:
        milliseconds = round((time.monotonic() - begun) * 1000)
        return Outcome(place.name, place.host, place.local, QUESTION, "", str(error), milliseconds)
    return Outcome(
        place.name,
        place.host,
        place.local,
        QUESTION,
        reply.text,
        "",
        reply.milliseconds,
        tokens=f"{reply.prompt_tokens} asked, {reply.completion_tokens} answered",
        cost_usd=reply.cost_usd,
    )
