"""Question (and conversation) -> QueryPlan: the three queries that retrieval runs.

`plan` asks the language model and checks every field of its reply; `basic_plan` needs no model, always gives the same
plan, and is what `plan` falls back to, with a notice that says why. Neither ever raises.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from django.conf import settings
from pydantic import BaseModel, BeforeValidator, Field

from indexing import llm
from indexing.errors import LLMBadReply, LLMError
from search.language import is_english
from search.questions import CLASSES, clean, names_in, question_class, shortened, standalone, without_controls
from search.results import QueryPlan

Turn = tuple[str, str]  # question, summary of its answer

MAX_QUERY_CHARS = 500
MAX_DOCUMENT_LINES = 15
MAX_DOCUMENT_CHARS = 1500
MAX_TURNS = 4
MAX_TURN_CHARS = 400
MAX_REPLY_TOKENS = 500

BAD_PLAN = "The model did not return a valid plan, so a basic plan was used. Results may be broader."
NOT_ENGLISH_NO_PLAN = "The question is not in English: results rely on names in it."
NOT_ENGLISH = (
    f"{NOT_ENGLISH_NO_PLAN} For more, a language model has to plan the search (LLM_MODEL), or a multilingual model has"
    " to embed the code (EMBEDDING_MODEL)."
)


def basic_plan(question: str, history: Sequence[Turn] = ()) -> QueryPlan:
    """The plan without a model: the question without politeness, a follow-up with the words it refers to."""
    query = standalone(question, [turn[0] for turn in history])
    if is_english(question):
        return QueryPlan(english_query=query, question_class=question_class(query))
    names = " ".join(names_in(question))
    return QueryPlan(english_query=names or query, origin_language_query=query if names else "", notice=NOT_ENGLISH)


def plan(question: str, history: Sequence[Turn] = (), *, user_id: int | None = None) -> QueryPlan:
    """The model's plan; `basic_plan` without a model, or with a notice when the model fails."""
    if not llm.configured() or not question.strip():
        return basic_plan(question, history)
    messages = _messages(question, history)
    key = _key(messages)
    if (known := _remembered(key)) is not None:
        return known
    try:
        reply = llm.structured(
            messages,
            _PlanReply,
            purpose="plan",
            max_tokens=MAX_REPLY_TOKENS,
            timeout_seconds=settings.LLM_PLAN_TIMEOUT_SECONDS,
            user_id=user_id,
        )
        return _remember(key, _checked(reply, question))
    except LLMBadReply:
        return _fallback(question, history, BAD_PLAN)
    except LLMError as error:
        return _fallback(question, history, f"{error} A basic plan was used; results may be broader.")


def needs_model(basic: QueryPlan) -> bool:
    """Whether a model's plan can be better than this one: a question for a name is searched as it is."""
    return basic.question_class != "symbol" or bool(basic.notice)


# Plans that were made before, of this process only: a prompt is not kept, only what stands for it.

MOST_REMEMBERED = 1000
_plans: OrderedDict[bytes, QueryPlan] = OrderedDict()
_plans_lock = threading.Lock()


def _key(messages: Sequence[llm.Message]) -> bytes:
    """Of everything that the reply depends on: the model, where it runs, and each word of the prompt."""
    inputs = [settings.LLM_MODEL, settings.LLM_API_BASE, MAX_REPLY_TOKENS, *messages]
    return hashlib.sha256(json.dumps(inputs).encode()).digest()


def _remembered(key: bytes) -> QueryPlan | None:
    with _plans_lock:
        if key in _plans:
            _plans.move_to_end(key)
        return _plans.get(key)


def _remember(key: bytes, made: QueryPlan) -> QueryPlan:
    with _plans_lock:
        _plans[key] = made
        while len(_plans) > MOST_REMEMBERED:
            _plans.popitem(last=False)
    return made


def forget() -> None:
    with _plans_lock:
        _plans.clear()


# The model's plan.


def _as_text(value: object) -> object:
    """Models write null for nothing, and code as a list of lines."""
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return "" if value is None else value


_Text = Annotated[str, BeforeValidator(_as_text)]


class _PlanReply(BaseModel):
    english_query: _Text
    origin_language_query: _Text = ""
    hypothetical_document: _Text = ""
    question_class: _Text = Field(default="", json_schema_extra={"enum": list(CLASSES)})


# Examples as data, so that their JSON is valid whatever is edited.
_EXAMPLES = (
    (
        "Question: Wo werden abgelaufene Tokens gelöscht?",
        {
            "english_query": "delete expired tokens",
            "origin_language_query": "abgelaufene Tokens löschen",
            "hypothetical_document": "def purge_expired_tokens(now):\n"
            "    expired = Token.objects.filter(expires_at__lt=now)\n"
            "    count = expired.count()\n"
            "    expired.delete()\n"
            "    return count",
            "question_class": "behaviour",
        },
    ),
    (
        "Conversation: How are sessions stored? (SessionStore.save writes them to a file.)\nQuestion: and in Redis?",
        {
            "english_query": "SessionStore save sessions in Redis",
            "origin_language_query": "",
            "hypothetical_document": "func (s *RedisStore) Save(ctx context.Context, session *Session) error {\n"
            "    data, err := json.Marshal(session)\n"
            "    if err != nil {\n"
            "        return err\n"
            "    }\n"
            "    return s.client.Set(ctx, session.ID, data, s.ttl).Err()\n"
            "}",
            "question_class": "behaviour",
        },
    ),
)
_EXAMPLE_QUERIES = {str(reply["english_query"]) for _, reply in _EXAMPLES}

_SYSTEM = f"""You turn a developer's question about source code into queries for a code search engine.
Answer with one JSON object and nothing else:
{{"english_query": "what to search for, in English, one line, with every name the question holds",
"origin_language_query": "the same in the question's own language; empty if that is English",
"hypothetical_document": "5 to 10 lines of source code that could be the answer",
"question_class": "one of {", ".join(CLASSES)}"}}
If the question continues the conversation, write queries that make sense without it: replace "it", "one", "that" by
what they stand for. If it starts a new subject, leave the conversation out. Keep names from code as they are written.
"""


def _messages(question: str, history: Sequence[Turn]) -> list[llm.Message]:
    turns = "\n".join(
        f"Conversation: {clean(asked)[:MAX_TURN_CHARS]} ({clean(answer)[:MAX_TURN_CHARS]})"
        for asked, answer in history[-MAX_TURNS:]
    )
    examples = "\n\n".join(f"{asked}\n{json.dumps(reply, ensure_ascii=False)}" for asked, reply in _EXAMPLES)
    return [
        {"role": "system", "content": f"{_SYSTEM}\n{examples}"},
        {"role": "user", "content": f"{turns}\nQuestion: {shortened(question.strip())}".strip()},
    ]


def _checked(reply: _PlanReply, question: str) -> QueryPlan:
    """Raises LLMBadReply without a usable English query; everything else that does not fit is left out or cut."""
    query = clean(reply.english_query)[:MAX_QUERY_CHARS]
    if not re.search(r"\w", query) or (query in _EXAMPLE_QUERIES and query not in question):
        raise LLMBadReply("The plan has no English query of its own.")
    origin = clean(reply.origin_language_query)[:MAX_QUERY_CHARS]
    return QueryPlan(
        english_query=query,
        origin_language_query="" if is_english(question) or origin.lower() == query.lower() else origin,
        hypothetical_document=_document(reply.hypothetical_document),
        question_class=reply.question_class if reply.question_class in CLASSES else question_class(query),
        source="llm",
    )


def _document(written: str) -> str:
    lines = [line.rstrip() for line in without_controls(written).splitlines()]
    lines = [line for line in lines if line and not line.lstrip().startswith("```")]
    return "\n".join(lines[:MAX_DOCUMENT_LINES])[:MAX_DOCUMENT_CHARS]


def _fallback(question: str, history: Sequence[Turn], notice: str) -> QueryPlan:
    basic = basic_plan(question, history)
    return replace(basic, notice=f"{notice} {NOT_ENGLISH_NO_PLAN}" if basic.notice else notice)
