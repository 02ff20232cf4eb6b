"""Asking in the API: answers at once, as a stream or by polling; conversations, code by coordinates, feedback.

A conversation belongs to the person of the token. A token that is restricted to some repositories sees only the
conversations that were begun with it, and their answers read nothing else.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

from asgiref.sync import sync_to_async
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse
from ninja import Field, Header, Query, Router, Schema, Status
from ninja.errors import HttpError

from assistant import answering, callbacks, citations, conversations, following, source_view, tokens
from assistant.citations import Evidence
from assistant.code_pane import requested_path
from assistant.conversations import MAX_QUESTION_CHARS
from assistant.errors import AlreadyAsked
from assistant.exchanges import citation_url
from assistant.models import ApiToken, Callback, Conversation, Message
from assistant.rendering import WITHHELD
from assistant.threads import in_thread
from indexing.access import Caller
from indexing.api import Cursor, Limit
from indexing.connections import let_go
from indexing.models import Repository
from indexing.paging import PAGE_SIZE, page
from search.api import ScopeIn, scope_of

ENDED_MEANWHILE = "This token was revoked or has expired while the answer was written."
RIGHTS_ENDED = "This token was revoked, has expired, or may no longer read a repository of this answer."
EVENT_STREAM, JSON_LINES = "text/event-stream", "application/jsonl"

router = Router(tags=["answers"])


@dataclass(frozen=True)
class TokenCaller(Caller):
    """`token` is None for the person at the server's shell, who needs none."""

    token: ApiToken | None


class AskIn(ScopeIn):
    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARS)
    conversation_id: uuid.UUID | None = Field(None, description="Follow up in this conversation")
    mode: Literal["explain", "how-to", "fix", "diagram"] = "explain"
    wait: bool = Field(True, description="False: answer 202 at once; poll `/messages/{id}`")
    callback_url: str = Field(
        "", max_length=callbacks.MAX_URL_CHARS, description="Gets the answer by a signed POST; implies `wait: false`"
    )


class CitationOut(Schema):
    """A passage behind an answer. Coordinates are null when the token may not read it (any more)."""

    number: int = Field(description="The n of [n]")
    state: str = Field(description="ok, pending, broken, removed or hidden")
    cited: bool
    verified: bool = Field(description="The bytes exist in that file at that commit")
    repository_id: int | None = None
    repository: str | None = None
    commit: str | None = None
    path: str | None = None
    path_encoded: str | None = Field(default=None, description="The exact bytes of the path, percent-encoded")
    symbol: str | None = None
    start_byte: int | None = None
    end_byte: int | None = None
    start_line: int | None = None
    end_line: int | None = None
    url: str | None = None


class CallbackOut(Schema):
    state: str = Field(description="queued, running, done or failed")
    attempts: int
    status: int | None = Field(description="What the receiver answered last")
    error: str


class AnswerOut(Schema):
    message_id: uuid.UUID
    conversation_id: uuid.UUID
    state: str = Field(description="queued, running, done, stopped or error")
    question: str
    answer: str = Field(description="Markdown with [n] markers. Without a model: sentences about the passages")
    answered_by: str = Field(description="The model; empty when there was none")
    citations: list[CitationOut]
    notices: list[str]
    error: str
    created_at: datetime
    finished_at: datetime | None = None
    callback: CallbackOut | None = Field(None, description="How far its delivery is, when it was asked for")


class CallbackSecretOut(Schema):
    secret: str


class ConversationOut(Schema):
    id: uuid.UUID
    title: str
    pinned: bool
    created_at: datetime
    updated_at: datetime


class ConversationPage(Schema):
    items: list[ConversationOut]
    next_cursor: str = Field(description="Empty on the last page")


class ConversationDetail(ConversationOut):
    messages: list[AnswerOut]


class FeedbackIn(Schema, extra="forbid"):
    helpful: bool
    reason: Literal["", "wrong_lines", "wrong_repository", "incomplete", "too_long", "out_of_date"] = ""
    comment: str = Field("", max_length=1000)


class CodeOut(Schema):
    """A range of a file at a commit. Secrets are masked, character for character."""

    repository_id: int
    repository: str
    commit: str
    path: str
    blob_id: str
    language: str
    size_bytes: int
    start_byte: int
    end_byte: int = Field(description="Where the text ends; before what was asked for when that was too large")
    start_line: int
    end_line: int
    text: str


STREAMS = {
    "responses": {
        200: {
            "content": {
                EVENT_STREAM: {"schema": {"type": "string", "description": "Server-sent events, see docs"}},
                JSON_LINES: {"schema": {"type": "string", "description": "One JSON object a line"}},
            }
        }
    }
}


@router.post(
    "/ask",
    response={200: AnswerOut, 202: AnswerOut},
    summary="Ask a question",
    operation_id="ask",
    openapi_extra=STREAMS,
)
async def ask(
    request: HttpRequest,
    response: HttpResponse,
    body: AskIn,
    idempotency_key: Annotated[
        str, Header(alias="Idempotency-Key", max_length=200, description="The same key asks once")
    ] = "",
) -> HttpResponseBase | Status[AnswerOut]:
    """`Accept` chooses: JSON when the answer is complete, `text/event-stream` or `application/jsonl` as it is written.

    The answer goes on when the connection breaks; `/messages/{id}` has it.
    """
    caller = _caller(request)
    if body.callback_url:
        await sync_to_async(callbacks.check_url, thread_sensitive=False)(body.callback_url)  # asks the DNS
    message = await sync_to_async(stored_question)(body, caller, idempotency_key)
    if message.state == Message.State.QUEUED:
        answering.start_answer(message.pk)
    if body.callback_url and caller.token is not None:
        row = await sync_to_async(callbacks.register)(message, caller.token, body.callback_url, _origin(request))
        callbacks.follow(message, row)
    response.headers["Location"] = reverse("api-v1:get_answer", args=[message.pk])
    return await _reply(request, message, caller, after=0, wait=body.wait and not body.callback_url)


@router.get(
    "/callback-secret",
    response=CallbackSecretOut,
    summary="What signs this token's callbacks",
    operation_id="get_callback_secret",
)
def get_callback_secret(request: HttpRequest) -> CallbackSecretOut:
    """HMAC-SHA256 over `X-Callback-Timestamp`, a dot and the body is `X-Callback-Signature`."""
    caller = _caller(request)
    assert caller.token is not None  # the API's authentication
    return CallbackSecretOut(secret=callbacks.secret_of(caller.token))


@router.get("/messages/{uuid:message_id}", response=AnswerOut, summary="Get an answer", operation_id="get_answer")
def get_answer(request: HttpRequest, message_id: uuid.UUID) -> AnswerOut:
    return _answer_out(request, message_of(_caller(request), message_id), _caller(request))


@router.get(
    "/messages/{uuid:message_id}/events",
    response={200: AnswerOut},
    summary="Follow an answer",
    operation_id="follow_answer",
    openapi_extra=STREAMS,
)
async def follow_answer(
    request: HttpRequest,
    message_id: uuid.UUID,
    after: Annotated[int, Query(ge=0, le=10**9, description="Only events after this sequence number")] = 0,
) -> HttpResponseBase | Status[AnswerOut]:
    """As a stream, or as one JSON answer when it is complete: `Accept` chooses. `Last-Event-ID` is `after`."""
    caller = _caller(request)
    message = await sync_to_async(message_of)(caller, message_id)
    seen = request.headers.get("Last-Event-ID", "")
    return await _reply(request, message, caller, after=int(seen) if seen.isdecimal() and len(seen) < 10 else after)


@router.post(
    "/messages/{uuid:message_id}/stop", response={202: AnswerOut}, summary="Stop an answer", operation_id="stop_answer"
)
def stop_answer(request: HttpRequest, message_id: uuid.UUID) -> Status[AnswerOut]:
    caller = _caller(request)
    message = message_of(caller, message_id)
    conversations.request_stop(message)
    answering.signal_stop(message.pk)
    return Status(202, _answer_out(request, message, caller))


@router.post(
    "/messages/{uuid:message_id}/feedback", response={204: None}, summary="Rate an answer", operation_id="rate_answer"
)
def rate_answer(request: HttpRequest, message_id: uuid.UUID, body: FeedbackIn) -> Status[None]:
    """One opinion a person; a later one replaces it."""
    caller = _caller(request)
    message = message_of(caller, message_id)
    conversations.save_feedback(message, caller.user, helpful=body.helpful, reason=body.reason, comment=body.comment)
    return Status(204, None)


@router.get(
    "/conversations", response=ConversationPage, summary="List conversations", operation_id="list_conversations"
)
def list_conversations(request: HttpRequest, cursor: Cursor = "", limit: Limit = PAGE_SIZE) -> ConversationPage:
    """Newest first."""
    rows, next_cursor = page(
        _conversations(_caller(request)), cursor, limit, by=("created_at", "pk"), newest_first=True
    )
    items = [ConversationOut.model_validate(row, from_attributes=True) for row in rows]
    return ConversationPage(items=items, next_cursor=next_cursor)


@router.get(
    "/conversations/{uuid:conversation_id}",
    response=ConversationDetail,
    summary="Get a conversation",
    operation_id="get_conversation",
)
def get_conversation(request: HttpRequest, conversation_id: uuid.UUID) -> ConversationDetail:
    caller = _caller(request)
    row = _conversation(caller, conversation_id)
    thread = list(row.messages.select_related("conversation", "callback").order_by("position"))
    sources = conversations.evidence_of(thread, caller.principal)
    answers = [_answer_with(_origin(request), message, sources[message.pk]) for message in thread]
    plain = ConversationOut.model_validate(row, from_attributes=True)
    return ConversationDetail(**plain.dict(), messages=answers)


@router.delete(
    "/conversations/{uuid:conversation_id}",
    response={204: None},
    summary="Delete a conversation",
    operation_id="delete_conversation",
)
def delete_conversation(request: HttpRequest, conversation_id: uuid.UUID) -> Status[None]:
    conversations.delete(_conversation(_caller(request), conversation_id))
    return Status(204, None)


@router.get(
    "/repositories/{int:repository_id}/code",
    response=CodeOut,
    summary="Read code by its coordinates",
    operation_id="read_code",
)
def read_code(
    request: HttpRequest,
    repository_id: int,
    commit: Annotated[str, Query(max_length=64)],
    path: Annotated[str, Query(max_length=5000, description="Percent-encoded bytes of the path")],
    start_byte: Annotated[int, Query(ge=0, le=2**40)] = 0,
    end_byte: Annotated[int, Query(ge=0, le=2**40)] = 0,
    start_line: Annotated[int, Query(ge=0, le=2**31)] = 0,
    end_line: Annotated[int, Query(ge=0, le=2**31)] = 0,
) -> CodeOut:
    """A range of bytes, else of lines, else the beginning of the file. Commits that were indexed or cited only."""
    return code_of(
        _caller(request), repository_id, commit, requested_path(request), (start_byte, end_byte), (start_line, end_line)
    )


def code_of(
    caller: Caller,
    repository_id: int,
    commit: str,
    path: bytes,
    byte_range: tuple[int, int],
    line_range: tuple[int, int],
) -> CodeOut:
    """Raises Http404 and SourceNotFound."""
    readable = Repository.objects.visible_to(caller.principal).select_related("mirror")
    repository = readable.filter(pk=repository_id).first()
    if repository is None:
        raise Http404("There is no such repository, or this token may not read it.")
    found = source_view.read_snippet(repository, commit, path, byte_range, line_range)
    return CodeOut(
        repository_id=repository.pk,
        repository=repository.name,
        commit=commit,
        path=path.decode("utf-8", "backslashreplace"),
        blob_id=found.blob_id,
        language=found.language,
        size_bytes=found.size_bytes,
        start_byte=found.start_byte,
        end_byte=found.end_byte,
        start_line=found.start_line,
        end_line=found.end_line,
        text=found.text,
    )


def stored_question(body: AskIn, caller: TokenCaller, key: str = "") -> Message:
    """The message of this question. The same idempotency key gives the same one; for another question it is refused."""
    conversation = _conversation(caller, body.conversation_id) if body.conversation_id else None
    scope = scope_of(body, caller.principal)
    message = conversations.start_message(
        caller.user,
        body.question,
        request_id=uuid.uuid5(uuid.NAMESPACE_URL, f"token:{caller.token.pk if caller.token else 0}:{key}")
        if key
        else uuid.uuid4(),
        conversation=conversation,
        mode=body.mode,
        scope=scope,
        token=caller.token,
    )
    same_place = conversation is None or message.conversation_id == conversation.pk
    if key and not (same_place and message.question == body.question.strip() and message.mode == body.mode):
        raise AlreadyAsked("This idempotency key was used for another question. Use a new key for each question.")
    let_go()  # whoever asks has to wait for the event loop before anything else
    return message


async def _reply(
    request: HttpRequest, message: Message, caller: TokenCaller, *, after: int, wait: bool = True
) -> HttpResponseBase | Status[AnswerOut]:
    accepted = request.headers.get("Accept", "")
    if EVENT_STREAM in accepted or JSON_LINES in accepted:
        kind = EVENT_STREAM if EVENT_STREAM in accepted else JSON_LINES
        return StreamingHttpResponse(
            _lines(request, message, caller, after, as_sse=kind == EVENT_STREAM),
            content_type=kind,
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
    if wait:
        async for _event in answering.event_stream(message, after):
            pass
        await in_thread(check_token, caller)
    return Status(200 if wait else 202, await sync_to_async(_fresh_answer)(request, message, caller))


async def _lines(
    request: HttpRequest, message: Message, caller: TokenCaller, after: int, *, as_sse: bool
) -> AsyncIterator[bytes]:
    """The events, then the whole answer as `answer`. Ends with an error once the token's rights have ended."""
    checked, sequence = time.monotonic(), after
    start = {"message_id": str(message.pk), "conversation_id": str(message.conversation_id)}
    yield _encoded(after, "message", start, as_sse=as_sse)
    async for sequence, name, data in answering.event_stream(message, after):
        if name == "evidence" or time.monotonic() - checked > following.RECHECK_SECONDS:
            if not await following.may_follow(message, caller.token):
                yield _encoded(sequence, "error", {"text": RIGHTS_ENDED}, as_sse=as_sse)
                return
            checked = time.monotonic()
        if name == "heartbeat":
            yield b": still here\n\n" if as_sse else b"\n"
            continue
        yield _encoded(sequence, name, data, as_sse=as_sse)
    if await following.may_follow(message, caller.token):
        answer = await in_thread(_fresh_answer, request, message, caller)
        yield _encoded(sequence, "answer", json.loads(answer.json()), as_sse=as_sse)


def _encoded(sequence: int, name: str, data: Any, *, as_sse: bool) -> bytes:  # Any: JSON
    if as_sse:
        return f"id: {sequence}\nevent: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
    return json.dumps({"sequence": sequence, "event": name, "data": data}, ensure_ascii=False).encode() + b"\n"


def check_token(caller: TokenCaller) -> None:
    """After a wait. Raises HttpError when the caller's token was revoked, or has expired, meanwhile."""
    if caller.token is not None and not tokens.valid().filter(pk=caller.token.pk).exists():
        raise HttpError(401, ENDED_MEANWHILE)


def callback_body(row: Callback) -> bytes | None:
    """The answer as the token may read it now; None when it may not read all of it."""
    caller = TokenCaller(user=row.token.user, principal=tokens.principal_of(row.token), is_staff=False, token=row.token)
    evidence = conversations.evidence(row.message, caller.principal)
    if citations.withheld(evidence):
        return None
    return _answer_with(row.origin, row.message, evidence).model_copy(update={"callback": None}).json().encode()


def _fresh_answer(request: HttpRequest, message: Message, caller: TokenCaller) -> AnswerOut:
    return _answer_out(request, message_of(caller, message.pk), caller)


def _answer_out(request: HttpRequest, message: Message, caller: TokenCaller) -> AnswerOut:
    return _answer_with(_origin(request), message, conversations.evidence(message, caller.principal))


def _origin(request: HttpRequest) -> str:
    return request.build_absolute_uri("/").rstrip("/")


def _answer_with(origin: str, message: Message, evidence: list[Evidence]) -> AnswerOut:
    withheld = citations.withheld(evidence)
    callback = getattr(message, "callback", None)
    return AnswerOut(
        message_id=message.pk,
        conversation_id=message.conversation_id,
        state=message.state,
        question=message.question,
        answer=WITHHELD if withheld else message.answer,
        answered_by=message.answered_by,
        citations=[_citation_out(origin, message, item) for item in evidence],
        notices=[] if withheld else message.notices,
        error=message.error,
        created_at=message.created_at,
        finished_at=message.finished_at,
        callback=CallbackOut.model_validate(callback, from_attributes=True) if callback else None,
    )


def _citation_out(origin: str, message: Message, item: Evidence) -> CitationOut:
    row = item.citation
    found = CitationOut(number=item.number, state=item.state, cited=item.cited, verified=item.verified)
    if row is None:
        return found
    url = citation_url(message, item)
    place = {
        "repository_id": row.repository_id,
        "repository": row.repository.name if row.repository else row.repository_name,
        "commit": row.commit,
        "path": row.display_path,
        "path_encoded": quote(bytes(row.path), safe="/"),
        "symbol": row.symbol,
        "start_byte": row.start_byte,
        "end_byte": row.end_byte,
        "start_line": row.start_line,
        "end_line": row.end_line,
        "url": f"{origin}{url}" if url else None,
    }
    return found.model_copy(update=place)


def _conversations(caller: TokenCaller) -> QuerySet[Conversation]:
    """Those of the token's person; of a restricted token, those begun with it."""
    mine = conversations.visible_to(caller.user)
    return mine.filter(token=caller.token) if caller.token is not None and caller.token.restricted else mine


def _conversation(caller: TokenCaller, conversation_id: uuid.UUID) -> Conversation:
    row = _conversations(caller).filter(pk=conversation_id).first()
    if row is None:
        raise Http404("There is no such conversation, or this token may not see it.")
    return row


def message_of(caller: TokenCaller, message_id: uuid.UUID) -> Message:
    """Raises Http404."""
    mine = Message.objects.filter(conversation__in=_conversations(caller)).select_related("conversation", "callback")
    row = mine.filter(pk=message_id).first()
    if row is None:
        raise Http404("There is no such message, or this token may not see it.")
    return row


def _caller(request: HttpRequest) -> TokenCaller:
    caller = request.auth  # type: ignore[attr-defined]  # set by the API's authentication
    assert isinstance(caller, TokenCaller)
    return caller
