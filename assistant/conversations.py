"""The only writer of Conversation, Message, AnswerEvent, Citation, Feedback and ConversationShare.

Transactions are short and every step of an answer is a conditional update on (attempt, running), so that a process
that lost its lease can write nothing more. Reads are narrowed to one person: `visible_to`, `evidence`,
`visible_trace` apply today's rights to yesterday's rows.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import chain
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import IntegrityError, transaction
from django.db.models import F, Max, Q, QuerySet
from django.utils import timezone

from assistant import citations, tokens
from assistant.citations import Evidence, Place
from assistant.errors import AssistantError, InvalidQuestion
from assistant.models import AnswerEvent, ApiToken, Citation, Conversation, ConversationShare, Feedback, Message
from indexing import llm
from indexing.access import Principal
from indexing.models import Repository
from search.results import Hit, Scope, ScopedSet

MAX_QUESTION_CHARS = 20_000
MAX_TITLE_CHARS = 80
FORGOTTEN_SECONDS = 60  # after the end of its lease
LEASE_SECONDS = 30  # a process renews every few seconds; a dead one is noticed after this
MODES = {"explain": "Explain", "how-to": "How to", "fix": "Suggest a fix", "diagram": "Draw a diagram"}
FEEDBACK_REASONS = {
    "wrong_lines": "Wrong lines",
    "wrong_repository": "Wrong repository",
    "incomplete": "Incomplete",
    "too_long": "Too long",
    "out_of_date": "Out of date",
}
UNFINISHED = (Message.State.QUEUED, Message.State.RUNNING)
FINISHED = (Message.State.DONE, Message.State.STOPPED, Message.State.FAILED)
ORPHANED = "The server restarted while this answer was being written."
TEXT_IS_SAVED = "The text above is saved."
STOPPED = "Stopped. What was written is kept."
RIGHTS_ENDED = "You may no longer read a repository that this answer draws on, so it ends here."

Turn = tuple[str, str]  # question, answer
Json = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Event:
    """One step of an answer.

    `sequence` counts one for each step and one for each character of text, so several text steps can be stored as
    one row and a reader can still resume in the middle of it.
    """

    sequence: int
    name: str  # stage, evidence, text, notice, done, stopped, error
    data: Json

    def after(self, sequence: int) -> Event:
        """This event without the part of its text that `sequence` already covers."""
        if self.name != "text":
            return self
        seen = sequence - (self.sequence - len(self.data["text"]))
        return Event(self.sequence, "text", {"text": self.data["text"][seen:]}) if seen > 0 else self


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended; `events` are the last ones, its single terminal event included."""

    state: Message.State
    events: Sequence[Event]
    answer: str = ""
    answered_by: str = ""
    notices: Sequence[str] = ()
    trace: Json | None = None
    error: str = ""
    finish_reason: str = ""
    cited: Collection[int] = ()
    verified: Collection[int] = ()


# --- what a person sees


def visible_to(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Conversation]:
    """A person's own conversations; nobody else's, whatever their role."""
    if not user.is_authenticated or not user.is_active:
        return Conversation.objects.none()
    return Conversation.objects.filter(owner_id=user.pk)


def principal_of(conversation: Conversation) -> Principal:
    """Who its answers read as: its owner, no further than the token it was begun with."""
    if conversation.token is not None:
        return tokens.principal_of(conversation.token)
    return principal_for(conversation.owner, for_everyone=conversation.for_everyone)


def principal_for(user: User, *, for_everyone: bool) -> Principal:
    """What a person may read; or, of that, what everyone may read who can see the answer."""
    whole = Principal.of_user(user)
    if not for_everyone:
        return whole
    public = Repository.objects.visible_to(whole).filter(visibility=Repository.Visibility.PUBLIC)
    ids = frozenset(public.values_list("pk", flat=True))
    return Principal(user_id=whole.user_id, sees_all=whole.sees_all, repository_ids=ids)


def messages_visible_to(user: AbstractBaseUser | AnonymousUser) -> QuerySet[Message]:
    return Message.objects.filter(conversation__in=visible_to(user))


def evidence(message: Message, principal: Principal) -> list[Evidence]:
    return evidence_of([message], principal)[message.pk]


def evidence_of(messages: Sequence[Message], principal: Principal) -> dict[uuid.UUID, list[Evidence]]:
    """The passages behind the current attempt of each message, as far as `principal` may read them now."""
    by_pk = {message.pk: message for message in messages}
    found: dict[uuid.UUID, list[Evidence]] = {pk: [] for pk in by_pk}
    rows = list(
        Citation.objects.filter(message__in=by_pk, attempt=F("message__attempt"))
        .select_related("repository__mirror", "repository__current_index")
        .order_by("number")
    )
    readable = _readable(principal, {row.repository_id for row in rows})
    for row in rows:
        found[row.message_id].append(_evidence(row, by_pk[row.message_id], readable, principal))
    return found


def withheld_of(messages: Sequence[Message], principal: Principal) -> set[uuid.UUID]:
    """Those of the messages whose evidence is `citations.withheld`, by the repositories alone: cheap enough to ask
    while hundreds stream."""
    by_pk = {message.pk: message for message in messages}
    cited = set(
        Citation.objects.filter(message__in=by_pk, attempt=F("message__attempt"))
        .order_by()
        .values_list("message_id", "repository_id")
        .distinct()
    )
    readable = _readable(principal, {repository_id for _, repository_id in cited})
    return {
        pk
        for pk, repository_id in cited
        if repository_id not in readable and (repository_id is not None or not _has_asked(by_pk[pk], principal))
    }


def visible_trace(message: Message, principal: Principal) -> Json:
    """How the answer came about, without what `principal` may not read (any more)."""
    trace: Json = message.trace
    if not trace:
        return {}
    listed = {item["repository_id"] for item in _trace_items(trace)}
    readable = _readable(principal, listed)
    if "history" in trace and not _may_read_all_before(message, principal):
        trace = {name: part for name, part in trace.items() if name != "history"}
    if listed <= readable:
        return trace
    return {
        **trace,
        "repositories": [item for item in trace["repositories"] if item["repository_id"] in readable],
        "candidates": [hit for hit in trace["candidates"] if hit["repository_id"] in readable],
        "dropped": [drop for drop in trace["dropped"] if drop["hit"]["repository_id"] in readable],
        "stages": [{**stage, "note": ""} for stage in trace["stages"]],
        "notices": [],
    }


def history(message: Message, principal: Principal) -> tuple[Turn, ...]:
    """The finished turns before `message`, oldest first; answers that may not be read any more are left empty."""
    earlier = list(
        Message.objects.filter(
            conversation_id=message.conversation_id, position__lt=message.position, state__in=FINISHED
        ).order_by("position")
    )
    sources = evidence_of(earlier, principal)
    return tuple((turn.question, "" if citations.withheld(sources[turn.pk]) else turn.answer) for turn in earlier)


def _may_read_all_before(message: Message, principal: Principal) -> bool:
    """A summary of earlier turns tells of the code that they were about."""
    earlier = list(Message.objects.filter(conversation=message.conversation_id, position__lt=message.position))
    return not any(citations.withheld(sources) for sources in evidence_of(earlier, principal).values())


def scope_of(message: Message) -> Scope:
    stored = message.scope
    return Scope(
        repository_ids=tuple(stored.get("repository_ids", ())),
        path=stored.get("path", ""),
        path_filter=stored.get("path_filter", ""),
        languages=tuple(stored.get("languages", ())),
        sets=tuple(ScopedSet(row["name"], tuple(row["repository_ids"])) for row in stored.get("sets", ())),
    )


# --- what a person does


def start_message(
    user: User,
    question: str,
    *,
    request_id: uuid.UUID,
    conversation: Conversation | None = None,
    mode: str = "explain",
    scope: Scope = Scope(),  # noqa: B008  # frozen
    token: ApiToken | None = None,
    for_everyone: bool = False,
) -> Message:
    """Store a question, in a new conversation (begun with `token`, or `for_everyone`) when none is given.

    The same `request_id` gives the same message. Raises InvalidQuestion, which keeps what was typed.
    """
    text = _checked_question(question)
    for _attempt in range(5):
        if (existing := Message.objects.filter(request_id=request_id).first()) is not None:
            return _own(existing, user)
        try:
            row = conversation or Conversation(
                owner=user, token=token, for_everyone=for_everyone, title=shorten_title(text)
            )
            return _create_message(row, text, request_id, mode if mode in MODES else "explain", scope)
        except IntegrityError:
            continue  # another request took the request id (found at the top) or the position (one later)
    raise AssistantError("Too many questions arrived in this conversation at once. Ask again.")


def is_used_up(request_id: uuid.UUID, user: User, question: str) -> bool:
    """Whether a form was sent before with another question: a page that the browser kept is used for a second one."""
    sent = Message.objects.filter(request_id=request_id, conversation__owner=user)
    return sent.exclude(question=_clean(question).strip()).exists()


def retry(message: Message) -> Message:
    """Queue a new attempt. A message that is still being answered stays as it is."""
    _requeue(message, trace={}, written="")
    return message


def go_on(message: Message) -> Message:
    """Queue an attempt that keeps what was written, and the passages under it, and lets the model write the rest.

    An answer that is whole, or whose passages are not all readable any more, is begun anew.
    """
    sources = evidence(message, principal_of(message.conversation))
    if not message.continuable or any(item.citation is None or item.citation.repository is None for item in sources):
        return retry(message)
    attempt = message.attempt
    with transaction.atomic():
        if _requeue(message, trace=message.trace, written=message.answer):
            _carry_citations(message, attempt)
    return message


def edit(message: Message, question: str) -> Message:
    """Ask the last question of a conversation in other words: its answer is made anew. Raises InvalidQuestion."""
    text = _checked_question(question)
    if message.conversation.messages.filter(position__gt=message.position).exists():
        raise InvalidQuestion("Only the last question can be edited. Ask this one as a new question.", question)
    if not message.finished:
        raise InvalidQuestion("The answer is still being written. Stop it first, then edit the question.", question)
    conversation = message.conversation
    if conversation.title == shorten_title(message.question):
        rename(conversation, shorten_title(text))
    Message.objects.filter(pk=message.pk, state__in=FINISHED).update(question=text)
    return retry(message)


def share(conversation: Conversation) -> ConversationShare:
    """The link to the conversation; made when there is none."""
    found, _created = ConversationShare.objects.get_or_create(
        conversation=conversation, defaults={"token": secrets.token_urlsafe(24)}
    )
    return found


def end_share(conversation: Conversation) -> None:
    """Whoever opens the link from now on finds nothing; a new share gets another link."""
    ConversationShare.objects.filter(conversation=conversation).delete()


def request_stop(message: Message) -> None:
    Message.objects.filter(pk=message.pk, state__in=UNFINISHED).update(stop_requested=True)


def rename(conversation: Conversation, title: str) -> None:
    """An empty title keeps the old one."""
    if short := shorten_title(title, 200):
        conversation.title = short
        conversation.save(update_fields=["title"])


def set_pinned(conversation: Conversation, pinned: bool) -> None:
    conversation.pinned = pinned
    conversation.save(update_fields=["pinned"])


def delete(conversation: Conversation) -> None:
    conversation.delete()


def save_feedback(message: Message, user: User, *, helpful: bool, reason: str = "", comment: str = "") -> Feedback:
    """One opinion a person; a later one replaces it."""
    values = {
        "helpful": helpful,
        "reason": reason if not helpful and reason in FEEDBACK_REASONS else "",
        "comment": _clean(comment).strip()[:1000],
    }
    feedback, _created = Feedback.objects.update_or_create(message=message, user=user, defaults=values)
    return feedback


def shorten_title(question: str, limit: int = MAX_TITLE_CHARS) -> str:
    """The question on one line, cut at a word."""
    line = " ".join(_clean(question).split())
    if len(line) <= limit:
        return line
    cut = line[: limit - 1]
    head, space, _rest = cut.rpartition(" ")
    return (head if space and len(head) > limit // 2 else cut).rstrip(" ,;:") + "…"


# --- what an answering process does


def claim(message_id: uuid.UUID) -> Message | None:
    """Take a queued message; None when it is gone or another process has it."""
    claimed = Message.objects.filter(pk=message_id, state=Message.State.QUEUED).update(
        state=Message.State.RUNNING, leased_until=_lease_end()
    )
    return (
        Message.objects.select_related("conversation__owner", "conversation__token__user").get(pk=message_id)
        if claimed
        else None
    )


def renew(message_ids: Collection[uuid.UUID]) -> None:
    """Keep the leases of running messages."""
    Message.objects.filter(pk__in=message_ids, state=Message.State.RUNNING).update(leased_until=_lease_end())


def stop_requested(message_ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Those of the messages that a person has stopped."""
    return set(Message.objects.filter(pk__in=message_ids, stop_requested=True).values_list("pk", flat=True))


def rights_ended(sources: Mapping[uuid.UUID, Collection[int]]) -> set[uuid.UUID]:
    """Those of the messages (id -> repositories they draw on) whose asker may not read all of them any more.

    A repository that was removed took no right away.
    """
    rows = Message.objects.filter(pk__in=sources).select_related("conversation__owner", "conversation__token__user")
    drawn_on = set(chain.from_iterable(sources.values()))
    askers: dict[tuple[int, int | None], list[Message]] = {}
    for row in rows:
        askers.setdefault((row.conversation.owner_id, row.conversation.token_id), []).append(row)
    unreadable: dict[uuid.UUID, set[int]] = {}
    for theirs in askers.values():
        readable = _readable(principal_of(theirs[0].conversation), drawn_on)
        unreadable |= {row.pk: set(sources[row.pk]) - readable for row in theirs}
    # Looked up last: one that is removed in between was not readable above.
    left = set(Repository.objects.filter(pk__in=drawn_on).values_list("pk", flat=True))
    return {pk for pk, repositories in unreadable.items() if repositories & left}


def store_evidence(message_id: uuid.UUID, attempt: int, hits: Sequence[Hit], trace: Json | None = None) -> None:
    """Number the passages from 1 in the order given, in place of what was stored before. Coordinates only.

    `trace` tells how they were found; stored with them, so that an answer can go on whose process dies.
    """
    with transaction.atomic():
        if not _running(message_id, attempt).update(trace=_clean_json(trace or {})):
            return
        Citation.objects.filter(message_id=message_id, attempt=attempt).delete()
        kept = set(Repository.objects.filter(pk__in={hit.repository_id for hit in hits}).values_list("pk", flat=True))
        Citation.objects.bulk_create(
            _citation(message_id, attempt, number, hit, kept) for number, hit in enumerate(hits, start=1)
        )


def earlier_hits(message: Message) -> tuple[Hit, ...]:
    """The passages that `written` refers to, in their order; `go_on` has carried them into this attempt."""
    rows = Citation.objects.filter(message=message, attempt=message.attempt).select_related("repository")
    return tuple(_hit(row, row.repository) for row in rows.order_by("number") if row.repository is not None)


def append_events(message_id: uuid.UUID, attempt: int, events: Sequence[Event]) -> bool:
    """Store a batch in one short transaction; False when the attempt is no longer ours."""
    with transaction.atomic():
        if not _running(message_id, attempt).exists():
            return False
        _create_events(message_id, attempt, events)
    return True


def finish(message_id: uuid.UUID, attempt: int, ending: Ending) -> bool:
    """End an attempt once, with its last events; False when it has ended already or is no longer ours."""
    with transaction.atomic():
        updated = _running(message_id, attempt).update(
            state=ending.state,
            answer=_clean(ending.answer),
            answered_by=ending.answered_by[:200],
            notices=[_clean(notice) for notice in ending.notices],
            trace=_clean_json(ending.trace or {}),
            error=_clean(ending.error),
            finish_reason=ending.finish_reason[:20],
            leased_until=None,
            finished_at=timezone.now(),
        )
        if not updated:
            return False
        _create_events(message_id, attempt, ending.events)
        mine = Citation.objects.filter(message_id=message_id, attempt=attempt)
        mine.filter(number__in=ending.cited).update(cited=True)
        mine.filter(number__in=ending.verified).update(verified=True)
        Conversation.objects.filter(messages=message_id).update(updated_at=timezone.now())
    return True


def events_after(message_id: uuid.UUID, attempt: int, sequence: int) -> list[Event]:
    """Stored events after `sequence`, the first one cut when it is a text that `sequence` lies within."""
    rows = AnswerEvent.objects.filter(message_id=message_id, attempt=attempt, sequence__gt=sequence)
    return [Event(row.sequence, row.name, row.data).after(sequence) for row in rows.order_by("sequence")]


def ending_event(message_id: uuid.UUID, attempt: int, sequence: int) -> list[Event]:
    """What lets a reader that has seen everything up to `sequence` stop: nothing while the attempt still runs."""
    message = Message.objects.filter(pk=message_id).only("state", "attempt", "error").first()
    if message is None or message.attempt != attempt:
        return [Event(sequence + 1, "error", {"text": "This answer was deleted or replaced. Reload the page."})]
    if not message.finished:
        return []
    last = AnswerEvent.objects.filter(message_id=message_id, attempt=attempt).order_by("sequence").last()
    if last is None:  # removed with age, see retention.py
        return [Event(sequence + 1, message.state, {"text": message.error})]
    return [Event(last.sequence, last.name, last.data)]


def abandon(message: Message) -> None:
    """End an attempt whose process is known to be gone, without waiting for its lease."""
    Message.objects.filter(pk=message.pk, state=Message.State.RUNNING).update(leased_until=timezone.now())
    end_orphans(message.pk)
    message.refresh_from_db()


def end_orphans(message_id: uuid.UUID | None = None) -> int:
    """End what a process that died left unfinished (one message, or all): its text stays, it can be retried."""
    orphans = _orphans() if message_id is None else _orphans().filter(pk=message_id)
    return sum(_end_orphan(message) for message in orphans)


def end_forgotten() -> int:
    """For schedulers: end what nobody follows and whose process died, or could not store its end without a database.

    Later than `end_orphans`, because a busy process may be slow to begin.
    """
    before = timezone.now() - timedelta(seconds=FORGOTTEN_SECONDS)
    return sum(_end_orphan(message) for message in _orphans().filter(leased_until__lt=before))


# --- helpers


def _requeue(message: Message, *, trace: Json, written: str) -> bool:
    """The next attempt of a finished message; False for one that is being answered, which stays as it is."""
    updated = Message.objects.filter(pk=message.pk, state__in=FINISHED).update(
        attempt=F("attempt") + 1,
        state=Message.State.QUEUED,
        answer="",
        written=written,
        answered_by="",
        notices=[],
        trace=trace,
        error="",
        finish_reason="",
        stop_requested=False,
        leased_until=_lease_end(),
        finished_at=None,
    )
    message.refresh_from_db()
    return bool(updated)


def _carry_citations(message: Message, attempt: int) -> None:
    """The passages of `attempt`, into the message's current one: whatever happens to that, its text keeps them."""
    rows = list(Citation.objects.filter(message=message, attempt=attempt))
    for row in rows:
        row.pk, row.attempt, row._state.adding = None, message.attempt, True
    Citation.objects.bulk_create(rows)


def _readable(principal: Principal, repository_ids: Collection[int | None]) -> set[int]:
    if not repository_ids:
        return set()
    visible = Repository.objects.visible_to(principal).filter(pk__in=[pk for pk in repository_ids if pk is not None])
    return set(visible.values_list("pk", flat=True))


def _evidence(row: Citation, message: Message, readable: set[int], principal: Principal) -> Evidence:
    gone = row.repository_id is None and _has_asked(message, principal)
    if row.repository_id not in readable and not gone:
        return Evidence(row.number, None, "hidden", f"[{row.number}]", "You cannot read this passage.")
    if row.repository_id is None:
        state = "removed"
    elif row.verified:
        state = "ok"
    else:
        state = "broken" if message.finished else "pending"
    name = row.repository.name if row.repository is not None else row.repository_name
    return Evidence(
        row.number,
        row,
        state,
        citations.place_label(row.file_name, row.start_line, row.end_line),
        citations.place_title(name, row.display_path, (row.start_line, row.end_line), (row.start_byte, row.end_byte)),
    )


def _has_asked(message: Message, principal: Principal) -> bool:
    """Who could read a repository that is gone is not known any more, but who asked has read the answer."""
    asked = principal.sees_all or message.conversation.owner_id == principal.user_id
    return asked and principal.repository_ids is None


def _trace_items(trace: Json) -> Iterable[Json]:
    yield from trace["repositories"]
    yield from trace["candidates"]
    yield from (drop["hit"] for drop in trace["dropped"])


def _checked_question(question: str) -> str:
    text = _clean(question).strip()
    if not text:
        raise InvalidQuestion("Type a question first.", question)
    if len(text) > MAX_QUESTION_CHARS:
        raise InvalidQuestion(
            f"The question has {len(text):,} characters; at most {MAX_QUESTION_CHARS:,} can be asked at once. "
            "Keep the part that matters and ask again.",
            question,
        )
    return text


def _own(message: Message, user: User) -> Message:
    if message.conversation.owner_id != user.pk:
        raise AssistantError("This form was sent already. Reload the page and ask again.")
    return message


def _create_message(
    conversation: Conversation, question: str, request_id: uuid.UUID, mode: str, scope: Scope
) -> Message:
    with transaction.atomic():
        if conversation._state.adding:
            conversation.save()
        else:
            Conversation.objects.filter(pk=conversation.pk).update(updated_at=timezone.now())
        last = conversation.messages.aggregate(last=Max("position"))["last"]
        return Message.objects.create(
            conversation=conversation,
            position=0 if last is None else last + 1,
            request_id=request_id,
            question=question,
            mode=mode,
            scope=_clean_json(asdict(scope)),
            leased_until=_lease_end(),
        )


def _running(message_id: uuid.UUID, attempt: int) -> QuerySet[Message]:
    return Message.objects.filter(pk=message_id, attempt=attempt, state=Message.State.RUNNING)


def _lease_end() -> Any:  # Any: django-stubs types the fields with combined expressions
    return timezone.now() + timedelta(seconds=LEASE_SECONDS)


def _create_events(message_id: uuid.UUID, attempt: int, events: Sequence[Event]) -> None:
    AnswerEvent.objects.bulk_create(
        AnswerEvent(
            message_id=message_id,
            attempt=attempt,
            sequence=event.sequence,
            name=event.name,
            data=_clean_json(event.data),
        )
        for event in events
    )


def _citation(message_id: uuid.UUID, attempt: int, number: int, hit: Hit, kept: set[int]) -> Citation:
    return Citation(
        message_id=message_id,
        attempt=attempt,
        number=number,
        repository_id=hit.repository_id if hit.repository_id in kept else None,
        repository_name=hit.repository,
        commit=hit.commit,
        blob=hit.blob_id,
        path=hit.path,
        encoding=hit.encoding,
        language=hit.language[:40],
        kind=hit.kind[:20],
        symbol=_clean(hit.symbol)[:500],
        start_byte=hit.start_byte,
        end_byte=hit.end_byte,
        start_line=hit.start_line,
        end_line=hit.end_line,
        score=hit.score,
    )


def _hit(row: Citation, repository: Repository) -> Hit:
    return Hit(
        repository_id=repository.pk,
        repository=repository.name,
        commit=row.commit,
        path=bytes(row.path),
        blob_id=row.blob,
        encoding=row.encoding,
        language=row.language,
        kind=row.kind,
        symbol=row.symbol,
        start_byte=row.start_byte,
        end_byte=row.end_byte,
        start_line=row.start_line,
        end_line=row.end_line,
        score=row.score,
    )


def _orphans() -> QuerySet[Message]:
    expired = Q(leased_until__lt=timezone.now()) | Q(leased_until=None)
    return Message.objects.filter(expired, state__in=UNFINISHED)


def _end_orphan(message: Message) -> bool:
    mine = _orphans().filter(pk=message.pk, attempt=message.attempt)
    if not mine.update(state=Message.State.RUNNING, leased_until=_lease_end()):
        return False  # another sweep has it
    rows = AnswerEvent.objects.filter(message=message, attempt=message.attempt).order_by("sequence")
    text = "".join(row.data["text"] for row in rows if row.name == "text") or message.written
    last = rows.last()
    sequence = last.sequence + 1 if last is not None else 1
    error = "" if message.stop_requested else f"{ORPHANED} {TEXT_IS_SAVED}" if text else ORPHANED
    event = Event(sequence, "stopped", {"text": STOPPED}) if not error else Event(sequence, "error", {"text": error})
    sources = list(
        Citation.objects.filter(message=message, attempt=message.attempt).select_related("repository__mirror")
    )
    ending = Ending(
        state=Message.State.FAILED if error else Message.State.STOPPED,
        events=[event],
        answer=text,
        answered_by=_writer(rows) or (llm.model_name() if message.written else ""),
        trace=message.trace,
        error=error,
        cited=citations.mentions(text, {row.number for row in sources}).cited,
        verified=verified_numbers(sources),
    )
    return finish(message.pk, message.attempt, ending)


def _writer(rows: Iterable[AnswerEvent]) -> str:
    """The model that was writing when its process died; empty when none had begun, or it had failed."""
    writing = [row.data for row in rows if row.name == "stage" and row.data["name"] == "write"]
    failed = any(stage["state"] == "failed" for stage in writing)
    return "" if failed else next((str(stage["note"]) for stage in writing if stage["state"] == "now"), "")


def verified_numbers(rows: Sequence[Citation]) -> list[int]:
    """The numbers of those citations whose bytes are in the mirror, read now."""
    present = [row for row in rows if row.repository is not None]
    verdicts = citations.verify([_place(row, row.repository) for row in present if row.repository is not None])
    return [row.number for row, exists in zip(present, verdicts, strict=True) if exists]


def _place(row: Citation, repository: Repository) -> Place:
    return Place(
        mirror_path=repository.mirror.path,
        commit=row.commit,
        blob_id=row.blob,
        path=bytes(row.path),
        encoding=row.encoding,
        start_byte=row.start_byte,
        end_byte=row.end_byte,
        start_line=row.start_line,
        end_line=row.end_line,
    )


def _clean(text: str) -> str:
    """Text that every database stores: no NUL (PostgreSQL refuses it), no lone surrogate (UTF-8 has none)."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _clean_json(value: Any) -> Any:  # Any: JSON
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {key: _clean_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean_json(item) for item in value]
    return value
