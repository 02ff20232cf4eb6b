"""Runs answers and lets browsers follow them, however often they reconnect.

An answer is an asyncio task of the web process that lives apart from any connection: there is one model call and
one stored message. Its steps are stored in batches under rising sequence numbers; readers in this process get them
at once, readers elsewhere poll the table. A lease tells other processes that the task is alive. Whatever fails, the
evidence stays and the message ends in exactly one of done, stopped, error.

No database connection is held while anything waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import time
import uuid
from bisect import bisect_right
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from functools import partial

from asgiref.sync import sync_to_async
from django.db import DatabaseError

from assistant import citations, conversations
from assistant.conversations import Ending, Event, Json
from assistant.errors import AssistantError
from assistant.models import Message
from assistant.threads import in_thread
from assistant.writing import Answer, Ask, Evidence, Found, Notice, Step, Text, verified_numbers, write
from indexing import counters, llm
from indexing.connections import let_go
from indexing.errors import IndexingError
from search.errors import SearchError
from search.results import Hit, Stage

logger = logging.getLogger(__name__)

STORE_SECONDS = 0.2  # text is stored this long after it came at the latest,
STORE_CHARS = 1024  # or when this much of it waits;
STORES_A_SECOND = 50  # of this process: where many answers are written at once, each is stored less often,
MOST_STORE_SECONDS = 2.0  # but not less often than this
WATCH_SECONDS = 1.0  # between looks at the stop flags
RENEW_SECONDS = 5.0
POLL_SECONDS = 0.3  # for readers of an answer that another process writes
HEARTBEAT_SECONDS = 10.0
STORE_ATTEMPTS = 5
HISTORY_TURNS = 60
HISTORY_ANSWER_CHARS = 700
UNEXPECTED = "The answer failed because of an error in this program; the server's log has it. Retry, or ask again."
TERMINAL = frozenset({"done", "stopped", "error"})


def start_answer(message_id: uuid.UUID) -> None:
    """Answer a queued message in a task of the running event loop. A second call for it changes nothing.

    To be called from an async view: the task outlives the request, so it needs the loop of the server.
    """
    loop = asyncio.get_running_loop()
    if (known := _live.get(message_id)) is not None and known.loop is loop:
        return
    live = _Live(message_id, loop)
    _live[message_id] = live
    # A context of its own: the request's would tie the task to the request's database thread.
    live.task = loop.create_task(_answer(live), context=contextvars.Context())


def signal_stop(message_id: uuid.UUID) -> None:
    """Stop an answer that this process writes, at once. From any thread; the stored flag is for other processes."""
    if (live := _live.get(message_id)) is not None:
        with contextlib.suppress(RuntimeError):  # its loop has ended
            live.loop.call_soon_threadsafe(live.stop)


def end_orphans() -> int:
    """At start-up: end what a process that died left unfinished."""
    return conversations.end_orphans()


async def event_stream(message: Message, after_sequence: int = 0) -> AsyncGenerator[tuple[int, str, Json], None]:
    """(sequence, name, data) of the message's attempt after `after_sequence`, live, up to its terminal event.

    Ends an answer whose process has died. Between events a ("heartbeat", {}) comes every HEARTBEAT_SECONDS.
    """
    await sync_to_async(let_go)()
    with counters.streams.track_inprogress():
        live = _live.get(message.pk)
        if live is not None and live.attempt in (None, message.attempt):
            async for event in live.follow(after_sequence):
                after_sequence = event.sequence
                yield event.sequence, event.name, event.data
                if event.name in TERMINAL:
                    return
        async for event in _stored(message, after_sequence):
            yield event.sequence, event.name, event.data


class _Live:
    """An answer that this process writes: what was published, what is stored, who waits."""

    def __init__(self, message_id: uuid.UUID, loop: asyncio.AbstractEventLoop) -> None:
        self.message_id = message_id
        self.loop = loop
        self.attempt: int | None = None  # known once the message is claimed
        self.task: asyncio.Task[None] | None = None
        self.work: asyncio.Task[None] | None = None
        self.stopping = self.forbidden = self.lost = self.closed = False
        self.text = ""
        self.written = ""  # by an attempt before, and kept if this one ends before it has begun
        self.notices: list[str] = []
        self.hits: tuple[Hit, ...] = ()
        self.trace: Json = {}
        self.answer: Answer | None = None
        self.events: list[Event] = []
        self.unstored: list[Event] = []
        self.storing: asyncio.Future[bool] | None = None
        self.changed = asyncio.Event()
        self.started = time.perf_counter()

    def publish(self, name: str, data: Json) -> None:
        event = self.next_event(name, data)
        self.events.append(event)
        self.unstored.append(event)
        self.wake()

    def next_event(self, name: str, data: Json) -> Event:
        last = self.events[-1].sequence if self.events else 0
        return Event(last + (len(data["text"]) if name == "text" else 1), name, data)

    def wake(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def stop(self) -> None:
        self.stopping = True
        self.cancel_work()

    def forbid(self) -> None:
        """Its asker lost the right to what it is written from."""
        self.forbidden = True
        self.cancel_work()

    def lose(self) -> None:
        """Another process ended this attempt: nothing of ours may be written any more."""
        self.lost = True
        self.cancel_work()

    def cancel_work(self) -> None:
        if self.work is not None and not self.work.done():
            self.work.cancel()

    def close(self) -> None:
        """Nothing more will be published."""
        self.closed = True
        self.wake()
        if _live.get(self.message_id) is self:
            del _live[self.message_id]

    async def follow(self, after_sequence: int) -> AsyncGenerator[Event, None]:
        while True:
            changed = self.changed
            start = bisect_right(self.events, after_sequence, key=lambda event: event.sequence)
            for event in self.events[start:]:
                yield event.after(after_sequence)
                after_sequence = event.sequence
            if changed.is_set():
                continue  # more came while those were read
            if self.closed:
                return
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield Event(after_sequence, "heartbeat", {})


_live: dict[uuid.UUID, _Live] = {}
_watchers: set[asyncio.Task[None]] = set()


async def _answer(live: _Live) -> None:
    """Claim, write, finish. Whatever happens in between, the message gets its one terminal event."""
    try:
        claimed = await in_thread(_claim, live.message_id)
        if claimed is None:
            return
        message, ask = claimed
        live.attempt, live.written, live.trace = message.attempt, message.written, message.trace
        live.stopping = live.stopping or message.stop_requested
        ending = await _run(live, ask)
        if not live.lost:
            await _finish(live, ending)
    finally:
        live.close()


def _claim(message_id: uuid.UUID) -> tuple[Message, Ask] | None:
    message = conversations.claim(message_id)
    if message is None:
        return None
    principal = conversations.principal_of(message.conversation)
    turns = conversations.history(message, principal)[-HISTORY_TURNS:]
    ask = Ask(
        question=message.question,
        principal=principal,
        scope=conversations.scope_of(message),
        mode=message.mode,
        history=tuple((asked, answered[:HISTORY_ANSWER_CHARS]) for asked, answered in turns),
        written=message.written,
        earlier=Found(conversations.earlier_hits(message), message.trace) if message.written else None,
    )
    return message, ask


async def _run(live: _Live, ask: Ask) -> Ending:
    """Take every step until the end, a stop, a loss or a failure; what was written until then is in `live`."""
    _watch()
    storing = asyncio.create_task(_store(live))
    live.work = asyncio.create_task(_take_steps(live, ask))
    if live.stopping:
        live.work.cancel()
    try:
        await live.work
        return _ending(live)
    except asyncio.CancelledError:
        if live.forbidden:
            return await _broken_off(live, Message.State.FAILED, conversations.RIGHTS_ENDED)
        if live.stopping:
            return await _broken_off(live, Message.State.STOPPED, conversations.STOPPED)
        return await _broken_off(live, Message.State.FAILED, conversations.ORPHANED)
    except (AssistantError, SearchError, IndexingError) as error:
        return await _broken_off(live, Message.State.FAILED, str(error))
    except Exception:  # a bug must not leave a message that runs for ever
        logger.exception("answer %s failed", live.message_id)
        return await _broken_off(live, Message.State.FAILED, UNEXPECTED)
    finally:
        storing.cancel()


async def _take_steps(live: _Live, ask: Ask) -> None:
    steps = write(ask)
    async with contextlib.aclosing(steps):
        async for step in steps:
            await _take(live, step)


async def _take(live: _Live, step: Step) -> None:
    match step:
        case Stage():
            live.publish("stage", _stage_data(step))
        case Evidence():
            live.hits, live.trace = step.hits, step.trace
            await in_thread(conversations.store_evidence, live.message_id, live.attempt, step.hits, step.trace)
            live.publish("evidence", {"citations": evidence_data(step.hits), "final": step.final})
        case Text():
            live.text += step.text
            live.publish("text", {"text": step.text})
        case Notice():
            live.notices.append(step.text)
            live.publish("notice", {"text": step.text})
        case Answer():
            live.answer = step


def _stage_data(stage: Stage) -> Json:
    return {"name": stage.name, "state": stage.state, "milliseconds": stage.milliseconds, "note": stage.note}


def evidence_data(hits: Sequence[Hit]) -> list[Json]:
    """Coordinates as JSON, numbered from 1."""
    return [
        {
            "number": number,
            "repository_id": hit.repository_id,
            "repository": hit.repository,
            "commit": hit.commit,
            "path": hit.display_path,
            "language": hit.language,
            "kind": hit.kind,
            "symbol": hit.symbol,
            "start_byte": hit.start_byte,
            "end_byte": hit.end_byte,
            "start_line": hit.start_line,
            "end_line": hit.end_line,
            "score": hit.score,
        }
        for number, hit in enumerate(hits, start=1)
    ]


def _ending(live: _Live) -> Ending:
    answer = live.answer
    assert answer is not None  # the last step of `write`
    data = {
        "answered_by": answer.answered_by,
        "finish_reason": answer.finish_reason,
        "cited": len(answer.mentions.cited) + len(answer.mentions.unknown),
        "verified": len(set(answer.mentions.cited) & set(answer.verified)),
        "milliseconds": round((time.perf_counter() - live.started) * 1000),
    }
    last = live.next_event("error", {"text": answer.error}) if answer.error else live.next_event("done", data)
    return Ending(
        state=Message.State.FAILED if answer.error else Message.State.DONE,
        events=[last],
        answer=live.text,
        answered_by=answer.answered_by,
        notices=live.notices,
        trace=answer.trace,
        error=answer.error,
        finish_reason=answer.finish_reason,
        cited=answer.mentions.cited,
        verified=answer.verified,
    )


async def _broken_off(live: _Live, state: Message.State, sentence: str) -> Ending:
    """An ending for an answer that did not reach its own; the text so far is kept and its citations are checked."""
    stopped = state == Message.State.STOPPED
    text = live.text or live.written
    if not stopped and text and not live.forbidden:
        sentence = f"{sentence} {conversations.TEXT_IS_SAVED}"
    return Ending(
        state=state,
        events=[live.next_event("stopped" if stopped else "error", {"text": sentence})],
        answer=text,
        answered_by=llm.model_name() if text and llm.configured() else "",
        notices=live.notices,
        trace=live.trace,
        error="" if stopped else sentence,
        finish_reason="stopped" if stopped else "",
        cited=citations.mentions(text, range(1, len(live.hits) + 1)).cited,
        verified=await verified_numbers(live.hits),
    )


async def _finish(live: _Live, ending: Ending) -> None:
    """Store the rest and the ending in one transaction, then tell the readers."""
    for attempt in range(STORE_ATTEMPTS):
        if live.storing is not None:
            await asyncio.wait([live.storing])
        whole = [*_merged(live.unstored), *ending.events]
        try:
            mine = await in_thread(conversations.finish, live.message_id, live.attempt, replace(ending, events=whole))
        except DatabaseError as error:
            logger.warning("end of answer %s not stored yet: %s", live.message_id, type(error).__name__)
            await asyncio.sleep(STORE_SECONDS * 2**attempt)
            continue
        if mine:
            live.events.extend(ending.events)
            counters.answers.labels(ending.state).inc()
        return
    logger.error("end of answer %s could not be stored; its lease will end it", live.message_id)


async def _store(live: _Live) -> None:
    """Store what was published, in batches, until cancelled. A batch that is on its way is not lost by that."""
    while True:
        if not live.unstored:
            await live.changed.wait()
            continue
        await _until_batch_is_due(live)
        batch = list(live.unstored)
        live.storing = in_thread(conversations.append_events, live.message_id, live.attempt, _merged(batch))
        live.storing.add_done_callback(partial(_stored_batch, live, len(batch)))
        await asyncio.wait([live.storing])
        if live.storing.exception() is not None:
            await asyncio.sleep(1)


async def _until_batch_is_due(live: _Live) -> None:
    deadline = live.loop.time() + max(STORE_SECONDS, min(len(_live) / STORES_A_SECOND, MOST_STORE_SECONDS))
    while (left := deadline - live.loop.time()) > 0:
        if sum(len(event.data.get("text", "")) for event in live.unstored) >= STORE_CHARS:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):  # `wait_for` of Python 3.11 can swallow the cancellation at the end
                await live.changed.wait()


def _stored_batch(live: _Live, size: int, done: asyncio.Future[bool]) -> None:
    if (error := done.exception()) is not None:
        logger.warning("steps of answer %s not stored yet: %s", live.message_id, type(error).__name__)
    elif done.result():
        del live.unstored[:size]
    else:
        live.lose()


def _merged(events: Sequence[Event]) -> list[Event]:
    """Neighbouring texts as one: its sequence is that of the last."""
    merged: list[Event] = []
    for event in events:
        if event.name == "text" and merged and merged[-1].name == "text":
            text = merged[-1].data["text"] + event.data["text"]
            merged[-1] = Event(event.sequence, "text", {"text": text})
        else:
            merged.append(event)
    return merged


def _watch() -> None:
    """One watcher for all answers of this loop looks after stop flags, rights and leases."""
    if not any(not task.done() and task.get_loop() is asyncio.get_running_loop() for task in _watchers):
        task = asyncio.create_task(_watching(), context=contextvars.Context())
        _watchers.add(task)
        task.add_done_callback(_watchers.discard)


async def _watching() -> None:
    loop = asyncio.get_running_loop()
    renewed = loop.time()
    while mine := [live for live in _live.values() if live.loop is loop]:
        await asyncio.sleep(WATCH_SECONDS)
        numbers = [live.message_id for live in mine]
        try:
            stopped = await in_thread(conversations.stop_requested, numbers)
            sources = {live.message_id: {hit.repository_id for hit in live.hits} for live in mine if live.hits}
            forbidden = await in_thread(conversations.rights_ended, sources) if sources else set()
            if loop.time() - renewed >= RENEW_SECONDS:
                await in_thread(conversations.renew, numbers)
                renewed = loop.time()
        except DatabaseError as error:
            logger.warning("leases of %d answers not renewed: %s", len(numbers), type(error).__name__)
            continue
        for live in mine:
            if live.message_id in forbidden:
                live.forbid()
            elif live.message_id in stopped and not live.stopping:
                live.stop()


# --- reading what another process writes, or what is finished


async def _stored(message: Message, after_sequence: int) -> AsyncGenerator[Event, None]:
    """Events from the table until the terminal one; what its reader may not read any more is left out."""
    quiet_since = time.monotonic()
    while True:
        events = await in_thread(_poll, message, after_sequence)
        withheld = bool(events) and await in_thread(_is_withheld, message)
        for event in events:
            after_sequence = event.sequence
            if event.name in TERMINAL or not withheld:
                quiet_since = time.monotonic()
                yield event
            if event.name in TERMINAL:
                return
        if time.monotonic() - quiet_since >= HEARTBEAT_SECONDS:
            quiet_since = time.monotonic()
            yield Event(after_sequence, "heartbeat", {})
        await asyncio.sleep(POLL_SECONDS)


def _is_withheld(message: Message) -> bool:
    fresh = Message.objects.select_related("conversation__owner", "conversation__token__user").get(pk=message.pk)
    return citations.withheld(conversations.evidence(message, conversations.principal_of(fresh.conversation)))


def _poll(message: Message, after_sequence: int) -> list[Event]:
    events = conversations.events_after(message.pk, message.attempt, after_sequence)
    if events:
        return events
    conversations.end_orphans(message.pk)
    return conversations.ending_event(message.pk, message.attempt, after_sequence)
