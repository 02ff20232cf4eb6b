"""Question -> the steps of its answer: search, prompt, streamed text, checked citations. Stores nothing.

`write` yields what happens as it happens; who calls it stores the steps (`answering.py`) or prints them (the `ask`
command). Whatever the model does, the evidence comes first and is never lost: a model that fails before its first
word is replaced by ranked passages, with a sentence that says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field

from django.conf import settings
from django.db import connections

from assistant import citations, conversations, extractive, prompts
from assistant.citations import Mentions, Place
from assistant.conversations import Json, Turn
from assistant.sentences import ENGLISH, sentences_for
from assistant.summarising import summarise
from assistant.threads import in_thread
from indexing import llm
from indexing.access import Principal
from indexing.errors import LLMBadReply, LLMError
from indexing.models import Repository
from search import pipeline, snippets
from search.results import Hit, Scope, SearchResult, Stage

logger = logging.getLogger(__name__)

_SEARCHES = ThreadPoolExecutor(max_workers=8, thread_name_prefix="search")


@dataclass(frozen=True, slots=True)
class Found:
    """Passages that an answer is written from, and how they were found."""

    hits: tuple[Hit, ...]
    trace: Json


@dataclass(frozen=True, slots=True)
class Ask:
    """Everything that an answer depends on. `written` is what it goes on from, under the passages of `earlier`."""

    question: str
    principal: Principal
    scope: Scope = Scope()  # frozen
    mode: str = "explain"
    history: tuple[Turn, ...] = ()
    written: str = ""
    earlier: Found | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """Passages, numbered from 1. The first ranking may be replaced once by the `final` one, before any text."""

    hits: tuple[Hit, ...]
    final: bool
    trace: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The last step. `error` tells that the text before it broke off; `answered_by` is empty without a model."""

    mentions: Mentions
    verified: tuple[int, ...]
    trace: Json
    answered_by: str = ""
    finish_reason: str = ""
    error: str = ""


Step = Stage | Evidence | Text | Notice | Answer


@dataclass(frozen=True, slots=True)
class _Found:
    result: SearchResult
    hits: tuple[Hit, ...]
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Material:
    """What a model writes from. `looked`: what is said of an answer that cites nothing, and where the search looked."""

    hits: tuple[Hit, ...]
    texts: tuple[str, ...]
    trace: Json
    looked: str = ENGLISH.nothing_cited


async def write(ask: Ask) -> AsyncGenerator[Step, None]:
    """The steps of an answer as they happen; the last one is an `Answer`. Stores nothing.

    Raises SearchError and what a bug raises. A model that fails gives ranked passages and says why.
    """
    started = time.perf_counter()
    if ask.earlier is not None and llm.configured():
        going_on = _going_on(ask, ask.earlier, started)
        async with contextlib.aclosing(going_on):
            async for step in going_on:
                yield step
        return
    searching = _searching(ask)
    async with contextlib.aclosing(searching):
        async for news in searching:
            if isinstance(news, _Found):
                found = news
            else:
                yield news
    trace = found.result.trace.to_json()
    yield Evidence(found.hits, final=True, trace=trace)
    for notice in found.result.trace.notices:
        yield Notice(notice)
    writing = _written(ask, found, trace, started)
    async with contextlib.aclosing(writing):
        async for step in writing:
            yield step


async def _going_on(ask: Ask, earlier: Found, started: float) -> AsyncGenerator[Step, None]:
    """No search: the numbers in what was written stand for the passages it was written from."""
    stages = [stage for stage in earlier.trace.get("stages", []) if stage["name"] not in ("first_token", "write")]
    trace = earlier.trace | {"stages": stages}
    texts = await in_thread(snippets.read_snippets, earlier.hits, executor=_SEARCHES)
    yield Evidence(earlier.hits, final=True, trace=trace)
    yield Text(ask.written)
    writing = _modelled(ask, _Material(earlier.hits, tuple(texts), trace), started)
    async with contextlib.aclosing(writing):
        async for step in writing:
            yield step


async def _searching(ask: Ask) -> AsyncGenerator[Stage | Evidence | _Found, None]:
    """Search in a thread; its stages and first ranking come out as they happen, what was found last."""
    loop = asyncio.get_running_loop()
    steps: asyncio.Queue[Stage | Evidence | None] = asyncio.Queue()

    def report(step: Stage | Evidence) -> None:
        with contextlib.suppress(RuntimeError):  # the loop ended while the thread was still searching
            loop.call_soon_threadsafe(steps.put_nowait, step)

    finding = in_thread(_find, ask, report, executor=_SEARCHES)
    finding.add_done_callback(lambda _: steps.put_nowait(None))
    while (step := await steps.get()) is not None:
        yield step
    yield await finding


def _find(ask: Ask, report: Callable[[Stage | Evidence], None]) -> _Found:
    limit = settings.EVIDENCE_PASSAGES
    result = pipeline.search(
        ask.question,
        principal=ask.principal,
        scope=ask.scope,
        limit=limit,
        history=ask.history,
        on_stage=report,
        on_hits=lambda hits: report(Evidence(hits[:limit], final=False)),
    )
    hits = result.hits[:limit]
    texts = snippets.read_snippets(hits)
    present = [(hit, text) for hit, text in zip(hits, texts, strict=True) if text]
    return _Found(result, tuple(hit for hit, _ in present), tuple(text for _, text in present))


async def _written(ask: Ask, found: _Found, trace: Json, started: float) -> AsyncGenerator[Step, None]:
    """From evidence to the end: say that nothing was found, or rank only, or let the model write."""
    minimum = settings.SEARCH_MINIMUM_COSINE
    names = [] if llm.configured() else extractive.missing_names(ask.question, found.hits, found.texts)
    asked = f"{ask.question} {found.result.trace.plan.english_query}"
    said = sentences_for(ask.question)
    looked = extractive.looked(found.result.trace, minimum_cosine=minimum, said=said)
    if names or not extractive.is_supported(asked, found.hits, found.texts, minimum_cosine=minimum):
        nothing = found.result.trace.readable_repositories == 0
        yield Text(said.no_repository if nothing else extractive.not_found(names, said))
        if not nothing:
            yield Notice(looked)
        yield Answer(Mentions((), ()), await verified_numbers(found.hits), trace, finish_reason="not_found")
    elif not llm.configured():
        yield Notice(extractive.LABEL)
        async for step in _ranked(found.hits, trace):
            yield step
    else:
        looked = f"{said.nothing_cited} {looked}"
        writing = _modelled(ask, _Material(found.hits, found.texts, trace, looked), started)
        async with contextlib.aclosing(writing):
            async for step in writing:
                yield step


async def _ranked(hits: tuple[Hit, ...], trace: Json) -> AsyncGenerator[Step, None]:
    text = extractive.compose(hits)
    yield Text(text)
    mentions = citations.mentions(text, range(1, len(hits) + 1))
    verified = await verified_numbers(hits)
    for notice in _doubts(mentions, verified):
        yield Notice(notice)
    yield Answer(mentions, verified, trace, finish_reason="extractive")


async def _modelled(ask: Ask, material: _Material, started: float) -> AsyncGenerator[Step, None]:
    """The model's text as it comes. A model that fails before its first word is replaced by ranked passages."""
    hits, trace = material.hits, material.trace
    prompt = _prompt(ask, hits, material.texts)
    if prompt.forgotten:
        clock = _WritingClock(trace, started)
        yield clock.begin("summarise")
        summary = await in_thread(_summary, ask, prompt.forgotten)
        yield clock.end("summarise", failed=not summary)
        if summary:
            prompt = _prompt(ask, hits, material.texts, summary)
            trace["history"] = {"turns": prompt.forgotten, "summary": summary}
    for notice in prompt.notices:
        yield Notice(notice)
    clock = _WritingClock(trace, started)
    yield clock.begin()
    written: list[str] = [ask.written]
    finish_reason, failure = "", None
    parts = llm.stream(
        prompt.messages,
        purpose="answer",
        max_tokens=prompts.answer_room(settings.LLM_CONTEXT_TOKENS, settings.LLM_MAX_ANSWER_TOKENS),
        timeout_seconds=settings.LLM_TIMEOUT_SECONDS,
        user_id=ask.principal.user_id,
    )
    try:
        async with contextlib.aclosing(parts):
            async for part in parts:
                finish_reason = part.finish_reason or finish_reason
                if part.text:
                    clock.wrote()
                    written.append(part.text)
                    yield Text(part.text)
        if not "".join(written[1:]).strip():
            raise LLMBadReply(f"{llm.model_name()} returned an empty answer.")
    except LLMError as error:
        failure = error
    yield clock.end(failed=failure is not None)
    if failure is not None and not "".join(written).strip():
        logger.warning("answered without the model: %s", type(failure).__name__)
        yield Notice(f"{failure} {extractive.RANKED_ONLY}")
        async for step in _ranked(hits, trace):
            yield step
        return
    mentions = citations.mentions("".join(written), prompt.used)
    verified = await verified_numbers(hits)
    for notice in _afterthoughts(material.looked, mentions, verified, finish_reason):
        yield Notice(notice)
    error_text = f"{failure} {conversations.TEXT_IS_SAVED}" if failure is not None else ""
    yield Answer(mentions, verified, trace, llm.model_name(), finish_reason, error_text)


def _summary(ask: Ask, forgotten: int) -> str:
    connections.close_all()  # the model may take a while
    return summarise(ask.history[:forgotten], user_id=ask.principal.user_id)


def _prompt(ask: Ask, hits: Sequence[Hit], texts: Sequence[str], summary: str = "") -> prompts.Prompt:
    passages = [
        prompts.Passage(
            number, hit.repository, hit.display_path, hit.start_line, hit.end_line, hit.symbol, hit.language, text
        )
        for number, (hit, text) in enumerate(zip(hits, texts, strict=True), start=1)
    ]
    return prompts.build(
        ask.question,
        passages,
        ask.history,
        mode=ask.mode,
        mark=secrets.token_hex(8),
        context_tokens=settings.LLM_CONTEXT_TOKENS,
        answer_tokens=settings.LLM_MAX_ANSWER_TOKENS,
        written=ask.written,
        summary=summary,
    )


class _WritingClock:
    """The stages that the model's writing, and what comes before it, add to the trace."""

    def __init__(self, trace: Json, started: float) -> None:
        self._stages: list[Json] = trace["stages"]
        self._started = started
        self._begun = time.perf_counter()
        self._first: float | None = None

    def begin(self, name: str = "write") -> Stage:
        """Says which model begins: that is stored at once, the rest of what it does only as it happens."""
        return Stage(name, 0, self._offset(self._begun), llm=True, state="now", note=llm.model_name())

    def wrote(self) -> None:
        if self._first is None:
            self._first = time.perf_counter()
            self._add("first_token", self._begun, self._first)

    def end(self, name: str = "write", *, failed: bool) -> Stage:
        return self._add(name, self._first or self._begun, time.perf_counter(), "failed" if failed else "done")

    def _add(self, name: str, begun: float, ended: float, state: str = "done") -> Stage:
        stage = Stage(name, round((ended - begun) * 1000, 1), self._offset(begun), llm=True, state=state)
        self._stages.append(asdict(stage))
        return stage

    def _offset(self, moment: float) -> float:
        return round((moment - self._started) * 1000, 1)


def _afterthoughts(looked: str, mentions: Mentions, verified: Sequence[int], finish_reason: str) -> list[str]:
    notices = _doubts(mentions, verified)
    if not mentions.cited:
        notices.append(looked)
    if finish_reason == "length":
        notices.append(f"The answer reached the length limit of {llm.model_name()}.")
    return notices


def _doubts(mentions: Mentions, verified: Sequence[int]) -> list[str]:
    doubtful = [*mentions.unknown, *(number for number in mentions.cited if number not in verified)]
    if not doubtful:
        return []
    if len(doubtful) == 1:
        return [f"Citation {doubtful[0]} could not be verified and is not linked."]
    return [f"Citations {', '.join(map(str, sorted(doubtful)))} could not be verified and are not linked."]


async def verified_numbers(hits: Sequence[Hit]) -> tuple[int, ...]:
    return await in_thread(_verify, hits)


def _verify(hits: Sequence[Hit]) -> tuple[int, ...]:
    """The numbers of the hits whose bytes are in the mirror."""
    repositories = Repository.objects.select_related("mirror").in_bulk({hit.repository_id for hit in hits})
    numbers = [number for number, hit in enumerate(hits, start=1) if hit.repository_id in repositories]
    connections.close_all()  # Git may take a while
    places = [_place(hits[number - 1], repositories[hits[number - 1].repository_id]) for number in numbers]
    return tuple(number for number, exists in zip(numbers, citations.verify(places), strict=True) if exists)


def _place(hit: Hit, repository: Repository) -> Place:
    return Place(
        mirror_path=repository.mirror.path,
        commit=hit.commit,
        blob_id=hit.blob_id,
        path=hit.path,
        encoding=hit.encoding,
        start_byte=hit.start_byte,
        end_byte=hit.end_byte,
        start_line=hit.start_line,
        end_line=hit.end_line,
    )
