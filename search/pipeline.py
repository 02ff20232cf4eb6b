"""search(): a question -> ranked, located code, with a trace of how it came about.

Reads top to bottom: who may read what, plan, choose repositories, embed, retrieve, rank, re-rank. Every step
that can fail has a fallback that is noted in the trace; only an empty question is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice
from posixpath import normpath
from time import perf_counter

import numpy as np
import numpy.typing as npt
from django.conf import settings
from prometheus_client import Histogram

from indexing import counters, embedding, llm
from indexing.access import Principal
from indexing.connections import let_go, return_to_pool
from indexing.context import shorten_path
from indexing.errors import EmbeddingError, VectorsUnavailable
from indexing.index_format import ModelInfo
from search import catalogue, reranking
from search.copies import Copies
from search.corpus import Corpus, Source
from search.errors import EmptyQuestion
from search.grep import Pattern, grep, read_pattern
from search.placing import place_frames
from search.planning import Turn, basic_plan, needs_model, plan
from search.questions import clean
from search.ranking import Ranked, rank
from search.readable import Library, holds, open_chosen, readable
from search.repo_selection import Choices, choose
from search.results import (
    Dropped,
    Hit,
    QueryPlan,
    RepositoryChoice,
    Scope,
    SearchOptions,
    SearchResult,
    Stage,
    Trace,
)
from search.retrieval import Pool, Query, retrieve
from search.snippets import read_snippets
from search.stack_traces import StackTrace, read_stack_trace
from search.wording import wording

logger = logging.getLogger(__name__)

# What the other two queries count beside the English one: measured on questions in four languages and on
# hypothetical code written without seeing the answer (docs/evaluation.md).
ORIGINAL_WEIGHT = 0.5
HYPOTHETICAL_WEIGHT = 0.7
MAX_QUESTION_CHARS = 20_000
OWN_HITS = 5  # the best for the person's own words, which stay candidates whatever a model planned
MAX_SAID_CHARS = 200  # of what a person typed
NARROWED_OVERCHOICE = 8  # times as many repositories are looked at: the catalogue knows no folders and languages

EVERYWHERE = Scope()
AS_ALWAYS = SearchOptions()

OnStage = Callable[[Stage], None]
OnHits = Callable[[tuple[Hit, ...]], None]


def warm_up() -> None:
    """What the first question of a process would wait for."""
    import faiss  # noqa: F401  half a second
    import numpy.ma  # noqa: F401  which numpy.unique imports when it is first called

    catalogue.current()


@cache
def _seconds_of_stage(name: str) -> Histogram:
    return counters.stage_seconds.labels(name)


@dataclass(slots=True)
class _Clock:
    """Measures stages against one start and reports them as they begin and end."""

    on_stage: OnStage | None
    started: float = field(default_factory=perf_counter)
    stages: list[Stage] = field(default_factory=list)

    def begin(self, name: str, *, llm: bool = False) -> float:
        at = perf_counter()
        self._report(Stage(name, 0, started_ms=_ms(at - self.started), llm=llm, state="now"))
        return at

    def end(self, name: str, begun: float, *, llm: bool = False, state: str = "done", note: str = "") -> None:
        now = perf_counter()
        stage = Stage(name, _ms(now - begun), _ms(begun - self.started), llm=llm, state=state, note=note)
        self.stages.append(stage)
        _seconds_of_stage(name).observe(now - begun)
        self._report(stage)

    def _report(self, stage: Stage) -> None:
        if self.on_stage is not None:
            self.on_stage(stage)


def search(
    question: str,
    *,
    principal: Principal,
    scope: Scope = EVERYWHERE,
    plan: QueryPlan | None = None,
    limit: int = 10,
    on_stage: OnStage | None = None,
    on_hits: OnHits | None = None,
    history: Sequence[Turn] = (),
    use_llm: bool = True,
    options: SearchOptions = AS_ALWAYS,
) -> SearchResult:
    """Rank the code that this principal may read for the question.

    `on_hits` gets a first ranking made from the person's own words while a model still plans; the result
    replaces it. Raises EmptyQuestion; anything else that goes wrong becomes a notice in the trace.
    """
    if not question.strip():
        raise EmptyQuestion("The question is empty. Type what you want to know about the code.")
    question = _encodable(question[:MAX_QUESTION_CHARS])
    clock = _Clock(on_stage)
    notices: list[str] = []
    with_llm = use_llm and llm.configured()
    library = readable(principal, scope, options, notices)
    return_to_pool()
    pattern = read_pattern(question) if plan is None else None
    if pattern is not None:
        lines = _search_lines(pattern, principal, scope, limit, _Clock(on_stage))
        if lines.hits or pattern.regex:
            return lines
        question = pattern.text  # whoever quotes a whole question still gets an answer
    pasted = read_stack_trace(question) if plan is None else None
    first_plan = plan or basic_plan(pasted.query if pasted else question, history)
    to_be_planned = with_llm and plan is None and bool(library.repositories) and needs_model(first_plan)
    begun = clock.begin("plan", llm=to_be_planned)
    planner = _Planner(question, history, principal.user_id) if to_be_planned else None
    if planner is None:
        clock.end("plan", begun, note=first_plan.notice)
        ranked = _rank_with(first_plan, library, scope, limit, clock, notices, options)
    else:
        ranked = _rank_with(first_plan, library, scope, limit, _Clock(None), notices, options)
        if on_hits is not None:
            on_hits(ranked.hits[:limit])
        final_plan = planner.wait(first_plan)
        failed = final_plan.source != "llm"
        clock.end("plan", begun, llm=True, state="failed" if failed else "done", note=final_plan.notice)
        notices.clear()
        library = readable(principal, scope, options, notices)
        return_to_pool()
        still_readable = {one.repository_id for one in library.repositories}
        own = [hit for hit in ranked.hits[:OWN_HITS] if hit.repository_id in still_readable]
        ranked = _rank_with(final_plan, library, scope, limit, clock, notices, options)
        if not first_plan.notice:
            ranked = replace(ranked, hits=_with_own(own, ranked.hits, max(limit, settings.RERANK_CANDIDATES)))
        first_plan = final_plan
    if pasted is not None:
        ranked = replace(ranked, hits=_with_frames_first(pasted, ranked.sources, scope, ranked.hits))
    hits: tuple[Hit, ...] = ranked.hits[:limit]
    dropped: tuple[Dropped, ...] = ()
    if use_llm and reranking.configured() and ranked.hits:
        hits, dropped = _rerank(question, ranked.hits, limit, principal, clock, notices)
    if first_plan.notice:
        notices.insert(0, first_plan.notice)
    if pattern is not None:
        instead = ", so these are the places that fit its words best" if hits else ""
        said = f'No line with "{pattern.text}" was found{instead}.'
        notices = [said, *lines.trace.notices, *notices]
    trace = Trace(
        plan=first_plan,
        repositories=tuple(ranked.choices),
        readable_repositories=library.count,
        candidates=ranked.hits,
        dropped=dropped,
        stages=tuple(sorted(clock.stages, key=lambda stage: stage.started_ms)),
        notices=tuple(dict.fromkeys(notices)),
    )
    return SearchResult(hits=tuple(hits), trace=trace)


def _search_lines(pattern: Pattern, principal: Principal, scope: Scope, limit: int, clock: _Clock) -> SearchResult:
    """Exact search: no model takes part, and only the repositories that fit the pattern's words best are read."""
    notices: list[str] = []
    library = readable(principal, scope, AS_ALWAYS, notices)
    asked = QueryPlan(english_query=pattern.text, question_class="symbol")
    begun = clock.begin("repositories")
    query = Query("english", 1.0, wording(pattern.text))
    chosen = _choose(library, [query], scope, settings.SEARCH_REPOSITORIES, notices)
    sources = open_chosen(chosen.repositories, notices)
    clock.end("repositories", begun)
    begun = clock.begin("retrieve")
    found = grep(sources, pattern, folder=_folder(scope.path_filter), languages=scope.languages)
    clock.end("retrieve", begun)
    known = len(library.repositories)
    if len(chosen.choices) < known:
        notices.append(f"Searched in {len(chosen.choices)} of {known} repositories. Name one with @ to search it.")
    return SearchResult(
        hits=found.hits[:limit],
        trace=Trace(
            plan=asked,
            repositories=chosen.choices,
            readable_repositories=library.count,
            candidates=found.hits[: max(limit, settings.RERANK_CANDIDATES)],
            dropped=(),
            stages=tuple(clock.stages),
            notices=(*notices, *found.notices),
        ),
    )


def _with_own(own: Sequence[Hit], hits: Sequence[Hit], most: int) -> tuple[Hit, ...]:
    """A model may have planned something else than was asked: the best for the own words come last, if nowhere else."""
    known = {_place(hit) for hit in hits}
    lost = [hit for hit in own if _place(hit) not in known]
    if not hits or not lost:
        return tuple(hits or own)
    kept = hits[: max(1, most - len(lost))]
    return (*kept, *(replace(hit, score=kept[-1].score) for hit in lost))


def _place(hit: Hit) -> tuple[int, bytes, int]:
    return hit.repository_id, hit.path, hit.start_byte


def _with_frames_first(
    pasted: StackTrace, sources: Sequence[Source], scope: Scope, hits: Sequence[Hit]
) -> tuple[Hit, ...]:
    """The code that a pasted stack trace names, as sure as the best hit, then the others."""
    folder = _folder(scope.path_filter)
    best = max((hit.score for hit in hits), default=1.0)
    found = (hit for hit in place_frames(sources, pasted.frames) if _in_languages(hit, scope))
    placed = [replace(hit, score=best) for hit in found if _is_in(folder, hit.path)]
    places = {_place(hit) for hit in placed}
    others = [hit for hit in hits if _place(hit) not in places]
    return tuple(placed + others)


@dataclass(frozen=True, slots=True)
class _RankedHits:
    hits: tuple[Hit, ...]
    choices: tuple[RepositoryChoice, ...]
    sources: tuple[Source, ...]


def _rank_with(
    plan: QueryPlan,
    library: Library,
    scope: Scope,
    limit: int,
    clock: _Clock,
    notices: list[str],
    options: SearchOptions,
) -> _RankedHits:
    begun = clock.begin("embed")
    queries, model = make_queries(plan, library, scope, notices, with_vectors=options.vectors)
    clock.end("embed", begun)
    begun = clock.begin("repositories")
    most = options.repositories or settings.SEARCH_REPOSITORIES
    chosen = _choose(library, queries, scope, most, notices, model)
    sources = open_chosen(chosen.repositories, notices, comparable=options.vectors)
    sources = [_comparable(source, model, notices) for source in sources]
    corpus = Corpus(sources)
    queries = _without(chosen.names, queries)
    known = {} if chosen.names else chosen.stem_scores
    clock.end("repositories", begun)
    begun = clock.begin("retrieve")
    folder = _folder(scope.path_filter)
    try:
        pool = retrieve(corpus, queries, path_filter=folder, languages=scope.languages, stem_scores=known)
    except VectorsUnavailable as error:
        logger.warning("searching by words only: %s", error)
        notices.append(f"Searched by words only: {error}")
        queries = [replace(query, vector=None) for query in queries]
        pool = retrieve(corpus, queries, path_filter=folder, languages=scope.languages, stem_scores=known)
    clock.end("retrieve", begun)
    begun = clock.begin("rank")
    wanted = max(limit, settings.RERANK_CANDIDATES)
    shares = _fit(corpus, pool, chosen.choices) if len(sources) > 1 else None
    ranked = rank(corpus, pool, queries, limit=2 * wanted, shares=shares)
    hits = tuple(islice(_hits(corpus, pool, ranked, scope), wanted))
    clock.end("rank", begun)
    return _RankedHits(hits, chosen.choices, tuple(sources))


def _choose(
    library: Library,
    queries: Sequence[Query],
    scope: Scope,
    most: int,
    notices: list[str],
    model: ModelInfo | None = None,
) -> Choices:
    """With a folder or languages asked for, only repositories that have them; where none has, that is said."""
    folder = _folder(scope.path_filter)
    if not folder and not scope.languages:
        return choose(library, queries, scope=scope, limit=most, model=model)
    wide = choose(library, queries, scope=scope, limit=most * NARROWED_OVERCHOICE, model=model)
    kept = [number for number, one in enumerate(wide.repositories) if holds(one, folder, scope.languages)]
    kept = kept if scope.repository_ids else kept[:most]
    if wide.repositories and not kept:
        asked = [f"path!:{scope.path_filter}"] * bool(folder) + [f"lang:{name}" for name in scope.languages]
        notices.append(f"No indexed file fits {clean(' '.join(asked))[:MAX_SAID_CHARS]}, so nothing was searched.")
    return replace(
        wide,
        choices=tuple(wide.choices[number] for number in kept),
        repositories=tuple(wide.repositories[number] for number in kept),
    )


def make_queries(
    plan: QueryPlan, library: Library, scope: Scope, notices: list[str], *, with_vectors: bool
) -> tuple[list[Query], ModelInfo | None]:
    """The plan's queries with their vectors, and the model that made these; None without vectors."""
    texts = [("english", 1.0, plan.english_query, False)]
    if plan.origin_language_query and plan.origin_language_query != plan.english_query:
        texts.append(("original", ORIGINAL_WEIGHT, plan.origin_language_query, False))
    if plan.hypothetical_document:
        texts.append(("hypothetical", HYPOTHETICAL_WEIGHT, plan.hypothetical_document, True))
    scoped = [_scoped(text, scope) for _, _, text, _ in texts]
    vectors, model = _embed(scoped, library, notices) if with_vectors else ([None] * len(texts), None)
    queries = [
        Query(name, weight, wording(_scoped_words(text, scope)), vector, code_only)
        for (name, weight, text, code_only), vector in zip(texts, vectors, strict=True)
    ]
    return queries, model


def _comparable(source: Source, model: ModelInfo | None, notices: list[str]) -> Source:
    """Vectors of two models are never compared: such an index is searched by words until it is rebuilt."""
    theirs = source.index.manifest.model
    if model is None or theirs is None or theirs == model:
        return source
    notices.append(
        f"{source.name} was embedded with another model; update it. Until then it is searched by words only."
    )
    return replace(source, comparable=False)


def _scoped(text: str, scope: Scope) -> str:
    """A folder scope in the shape of an indexed chunk: shortened path, then the text. It steers the vector there."""
    if not scope.path:
        return text
    return f"{shorten_path(_encodable(scope.path.strip('/')), settings.EMBEDDED_PATH_CHARS)}\n{text}"


def _encodable(text: str) -> str:
    """Half of a surrogate pair, as a cut text may have it, is nothing that Git or a model can be given."""
    return text.encode("utf-8", "replace").decode()


def _scoped_words(text: str, scope: Scope) -> str:
    return f"{text} {scope.path}" if scope.path else text


def _folder(path: str) -> bytes:
    """`src/flask` means that folder, also as `./src/flask/`, and `src/flask/app.py` that file."""
    place = normpath(path.strip("/"))
    return b"" if place == "." else place.encode("utf-8", "surrogateescape")


def _is_in(folder: bytes, path: bytes) -> bool:
    return not folder or path == folder or path.startswith(folder + b"/")


def _embed(
    texts: Sequence[str], library: Library, notices: list[str]
) -> tuple[list[npt.NDArray[np.float32] | None], ModelInfo | None]:
    rows = np.array([one.row for one in library.repositories], np.int64)
    if not library.catalogue.has_vectors(rows):
        return [None] * len(texts), None
    try:
        embedder = embedding.get_embedder()
        return list(embedder.embed_queries(list(texts))), embedder.info
    except EmbeddingError as error:
        logger.warning("searching by words only: %s", error)
        notices.append(f"Searched by words only: {error}")
        return [None] * len(texts), None


def _without(names: Collection[str], queries: Sequence[Query]) -> list[Query]:
    """In pallets/flask every file is about flask: the word only adds noise there."""
    if not names:
        return list(queries)
    return [
        query if query.code_only else replace(query, wording=wording(query.wording.text, without=names))
        for query in queries
    ]


def _fit(corpus: Corpus, pool: Pool, choices: Sequence[RepositoryChoice]) -> npt.NDArray[np.float32]:
    """(p,) what was found in a repository counts as much as the repository fits the question: worth .008 NDCG@10 where
    100 repositories are searched together.
    """
    fit = {choice.repository_id: choice.score for choice in choices}
    shares = np.array([fit[source.repository_id] for source in corpus.sources], np.float32)
    return shares[corpus.chunk_sources(pool.chunks)]


def _hits(corpus: Corpus, pool: Pool, ranked: Ranked, scope: Scope) -> Iterator[Hit]:
    """Best first. Identical code is one hit, where it ranked best, with the number of places it is in."""
    copies = Copies(corpus, pool)
    taken = ((copies.take(position), position) for position in ranked.order.tolist())
    shown = [(copy, position) for copy, position in taken if copy is not None]
    scores = [ranked.scores.item(position) for _, position in shown]
    found = hits_at(corpus, pool, [copy.position for copy, _ in shown], scores)
    defines = ranked.parts["definition"] > 0
    for hit, (copy, position) in zip(found, shown, strict=True):
        if (defines[position] or _is_relevant(hit)) and _in_languages(hit, scope):
            yield replace(hit, copies=copy.places) if copy.places > 1 else hit


def hits_at(corpus: Corpus, pool: Pool, positions: Sequence[int], scores: Sequence[float]) -> Iterator[Hit]:
    """Some of the pool's chunks with the given scores; each is read when its turn comes."""
    places = np.array(positions, np.int64)
    rows = zip(pool.chunks[places].tolist(), scores, _legs(pool, places), _best_cosines(pool, places), strict=True)
    for row, score, legs, cosine in rows:
        source, record = corpus.record(row)
        yield Hit(
            repository_id=source.repository_id,
            repository=source.name,
            commit=source.index.manifest.commit,
            path=record.path,
            blob_id=record.blob_id,
            encoding=record.encoding,
            language=record.language,
            kind=record.kind,
            symbol=record.symbol,
            start_byte=record.start_byte,
            end_byte=record.end_byte,
            start_line=record.start_line,
            end_line=record.end_line,
            score=round(score, 4),
            legs=legs,
            cosine=cosine,
            description=record.description,
        )


def _legs(pool: Pool, positions: npt.NDArray[np.int64]) -> list[dict[str, float]]:
    """For each position the best raw score of each list over the queries; lists that did not find it are left out."""
    file_places, has_lists = pool.places_of_files(positions)
    best: dict[str, npt.NDArray[np.float32]] = {}
    found = [(name, scores[positions]) for (_, name), scores in pool.chunk_lists.items()]
    if has_lists.any():
        found += [(name, scores[file_places] * has_lists) for (_, name), scores in pool.file_lists.items()]
    for name, scores in found:
        best[name] = np.maximum(best[name], scores) if name in best else scores
    columns = [scores.astype(np.float64).round(3).tolist() for scores in best.values()]
    return [
        {name: score for name, score in zip(best, row, strict=True) if score > 0} for row in zip(*columns, strict=True)
    ]


def _best_cosines(pool: Pool, positions: npt.NDArray[np.int64]) -> list[float] | list[None]:
    lists = [scores[positions] for (_, name), scores in pool.chunk_lists.items() if name.startswith("vectors.")]
    if not lists:
        return [None] * len(positions)
    cosines: list[float] = np.max(lists, axis=0).astype(np.float64).round(4).tolist()
    return cosines


def _is_relevant(hit: Hit) -> bool:
    """The cut-off is on float scores only, and never against a word match: binary scores sit in a narrow band."""
    if hit.cosine is None or any(name.startswith("terms.") for name in hit.legs):
        return True
    return hit.cosine >= settings.SEARCH_MINIMUM_COSINE


def _in_languages(hit: Hit, scope: Scope) -> bool:
    return not scope.languages or hit.language in scope.languages


def _rerank(
    question: str, candidates: Sequence[Hit], limit: int, principal: Principal, clock: _Clock, notices: list[str]
) -> tuple[tuple[Hit, ...], tuple[Dropped, ...]]:
    shown = candidates[: settings.RERANK_CANDIDATES]
    by_llm = not settings.RERANK_MODEL
    begun = clock.begin("rerank", llm=by_llm)
    result = reranking.rerank(question, shown, read_snippets(shown), keep=limit, user_id=principal.user_id)
    failed = result.state in ("failed", "partial")
    clock.end("rerank", begun, llm=by_llm, state="failed" if failed else "done", note=result.notice or result.state)
    if result.notice:
        notices.append(result.notice)
    return result.hits, result.dropped


class _Planner:
    """The model's plan, made in a thread while the person's own words are already searched."""

    def __init__(self, question: str, history: Sequence[Turn], user_id: int | None) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._future: Future[QueryPlan] = self._pool.submit(_plan_and_close, question, history, user_id)

    def wait(self, fallback: QueryPlan) -> QueryPlan:
        """The plan, or the fallback with the reason once the time limit has passed."""
        let_go()
        try:
            return self._future.result(timeout=settings.LLM_PLAN_TIMEOUT_SECONDS + 1)
        except FutureTimeout:
            return replace(fallback, notice="The model took too long to plan, so a basic plan was used.")
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _plan_and_close(question: str, history: Sequence[Turn], user_id: int | None) -> QueryPlan:
    try:
        return plan(question, history, user_id=user_id)
    finally:
        let_go()


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
