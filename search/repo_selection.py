"""Readable repositories -> the few worth opening for this question.

Evidence for a repository: its best chunk by BM25 (one statistic over all readable repositories, so scores
compare), the nearest centroid of its profile, its name in the question, and an operator of the question that it
defines. The catalogue says how much the best chunk can be worth at most; it is looked up for those that could still be
among the best. Pinned repositories are always and alone chosen. Golden: a golden repository, or one of a golden set
whose topic the question names, gets `GOLDEN_BONUS` of the best score, enough to win among near equals and too little to
push aside one that is clearly better.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from indexing.errors import IndexFormatError
from indexing.index_format import ModelInfo, Postings, Segment
from indexing.tokenizing import stems, term_hash, terms
from search.catalogue import TERM_LIST
from search.fusion import scale
from search.index_cache import opened
from search.lexical import Statistics, bm25
from search.readable import Library, Readable
from search.results import RepositoryChoice, Scope
from search.retrieval import Query, StemScores

Floats = npt.NDArray[np.float32]

GOLDEN_BONUS = 0.1
OPERATOR_BONUS = 1.0  # as the best of a list: no list has signs
NAME_BONUS = 2.0  # more than the best of both lists: whoever names a repository means it
CENTROID_WEIGHT = 0.7
# Best chunks are looked up for three times as many repositories as are chosen: the bounds leave the right one out of
# those for less than one question in a hundred.
LOOKED_UP = 3


@dataclass(frozen=True, slots=True)
class Choices:
    """`choices` for people, and `repositories` to open, in the same order: best first, ties by name.

    `names`: the last parts of names, in lower case, that say where to search and nothing about what. `stem_scores`:
    what was looked up on the way, so that nobody has to do it twice.
    """

    choices: tuple[RepositoryChoice, ...]
    repositories: tuple[Readable, ...]
    names: frozenset[str] = frozenset()
    stem_scores: StemScores = field(default_factory=dict)


def choose(
    library: Library, queries: Sequence[Query], *, scope: Scope, limit: int, model: ModelInfo | None = None
) -> Choices:
    """At most `limit`; pinned ones all, by name. `model`: what made the queries' vectors."""
    found = library.repositories
    if scope.repository_ids:
        choices = tuple(_choice(one, 1.0, _pins(one, scope), pinned=True) for one in found)
        return Choices(choices, found, _names(found) if len(found) == 1 else frozenset())
    if not found:
        return Choices((), ())
    named = _named(found, queries)
    about = [_topic(one, queries) if one.topics else "" for one in found]
    preferred = np.array([one.golden or bool(topic) for one, topic in zip(found, about, strict=True)])
    meaning = scale(_nearest_centroid(library, queries, model), depth=len(found))
    looked_up = _look_up(library, queries, meaning, named | preferred, limit)
    lexical = scale(looked_up.best, depth=len(found))
    defines = looked_up.defines
    scores = lexical + CENTROID_WEIGHT * meaning
    unit = float(scores.max()) or 1.0
    scores = scores + unit * (NAME_BONUS * named + OPERATOR_BONUS * defines + GOLDEN_BONUS * preferred)
    order = np.argsort(-scores, kind="stable")[:limit].tolist()
    top = float(scores[order[0]]) or 1.0
    chosen = tuple(found[i] for i in order)
    choices = tuple(
        _choice(
            found[i],
            float(scores[i]) / top,
            ([about[i]] if about[i] else []) + _reasons(found[i], named[i], defines[i], lexical[i], meaning[i]),
        )
        for i in order
    )
    names = _names(chosen if len(chosen) == 1 else [found[i] for i in order if named[i]])
    return Choices(choices, chosen, names, looked_up.stem_scores)


def _choice(one: Readable, score: float, reasons: list[str], *, pinned: bool = False) -> RepositoryChoice:
    return RepositoryChoice(
        repository_id=one.repository_id,
        name=one.name,
        golden=one.golden,
        pinned=pinned,
        score=round(score, 3),
        reasons=tuple(reasons + (["golden"] if one.golden and pinned else [])),
    )


def _reasons(one: Readable, named: bool, defines: bool, lexical: float, meaning: float) -> list[str]:
    reasons = []
    if named:
        reasons.append("named in the question")
    if defines:
        reasons.append("defines the operator")
    if one.golden:
        reasons.append("golden")
    if lexical > 0:
        reasons.append(f"words {lexical:.2f}")
    if meaning > 0:
        reasons.append(f"topic {meaning:.2f}")
    return reasons or ["no better one"]


def _nearest_centroid(library: Library, queries: Sequence[Query], model: ModelInfo | None) -> Floats:
    """(repositories,) cosine to the nearest centroid; 0 without vectors of that model."""
    rows = _rows(library)
    best = np.zeros(len(rows), np.float32)
    for query in queries:
        if query.vector is not None and not query.code_only and model is not None:
            best = np.maximum(best, library.catalogue.nearness(query.vector, rows, model))
    return best


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """best: (repositories,) the best chunk's BM25 over the stems of all queries; 0 for those that it cannot bring
    forward. defines: (repositories,) whether an operator of a query is defined there.
    """

    best: Floats
    defines: npt.NDArray[np.bool_]
    stem_scores: StemScores


def _look_up(
    library: Library, queries: Sequence[Query], meaning: Floats, wanted: npt.NDArray[np.bool_], limit: int
) -> _LookedUp:
    """In the most promising repositories, and in the wanted ones."""
    rows = _rows(library)
    known = [(query, library.catalogue.statistics(query.wording.stems, rows)) for query in queries]
    bounds = np.zeros(len(rows), np.float32)
    for query, statistics in known:
        most = query.weight * library.catalogue.most(query.wording.stems, rows, statistics)
        bounds = np.maximum(bounds, most)
    promise = bounds / (float(bounds.max()) or 1.0) + CENTROID_WEIGHT * meaning
    promising = np.argsort(-promise, kind="stable")[: LOOKED_UP * limit]
    segments = list(_segments(library, np.union1d(promising, np.flatnonzero(wanted)[:limit])))
    found = _LookedUp(np.zeros(len(rows), np.float32), np.zeros(len(rows), bool), {})
    for query, statistics in known:
        for (owner, segment, _), scores in zip(segments, _scored(segments, query, statistics), strict=True):
            found.stem_scores[query.name, segment] = scores
            found.best[owner] = max(found.best[owner], query.weight * scores.max())
    operators = {name for query in queries for name in query.wording.names if name.is_operator}
    hashes = [term_hash(spelling) for operator in operators for spelling in operator.spellings]
    for owner, segment, _ in segments:
        found.defines[owner] |= any(segment.definitions_named(one).size for one in hashes)
    return found


_Searched = tuple[int, Segment, Postings]  # which repository, and what of it


def _segments(library: Library, repositories: npt.NDArray[np.int64]) -> Iterator[_Searched]:
    """Those with chunks."""
    for i in repositories.tolist():
        try:
            index = opened(library.repositories[i].index_path)
        except IndexFormatError:  # said when it is opened to be searched
            continue
        for segment in index.segments:
            if segment.info.chunks and (postings := segment.postings(TERM_LIST)) is not None:
                yield i, segment, postings


def _scored(segments: Sequence[_Searched], query: Query, statistics: Statistics) -> Iterator[Floats]:
    """(chunks,) BM25 of each segment's chunks, 0 for deleted ones."""
    scores = bm25([postings for _, _, postings in segments], query.wording.stems, statistics=statistics)
    first = 0
    for _, segment, _ in segments:
        own = scores[first : first + segment.info.chunks]
        if segment.live_chunks is not None:
            own *= segment.live_chunks
        yield own
        first += len(own)


def _rows(library: Library) -> npt.NDArray[np.int64]:
    return np.array([one.row for one in library.repositories], np.int64)


def _pins(one: Readable, scope: Scope) -> list[str]:
    """Why a repository is among the pinned ones: the sets it is in, else its own name."""
    sets = [f"in @set/{part.name}" for part in scope.sets if one.repository_id in part.repository_ids]
    return sets or ["pinned with @"]


def _topic(one: Readable, queries: Sequence[Query]) -> str:
    """The set that the repository is in, when the question has all words of one of the set's topics."""
    if not one.topics or not queries:
        return ""
    asked = set(stems(terms(queries[0].wording.text)))
    words = ((topic, name, set(stems(terms(topic)))) for topic, name in one.topics)
    return next((f"@set/{name} is about {topic}" for topic, name, wanted in words if wanted and wanted <= asked), "")


def _named(found: Sequence[Readable], queries: Sequence[Query]) -> npt.NDArray[np.bool_]:
    """Whether the last part of the name is a word of the question: `flask` of pallets/flask."""
    text = queries[0].wording.text if queries else ""
    words, single = set(text.lower().split()), set(terms(text))
    names = (_last_name(one.name) for one in found)
    return np.array([name in words or (is_word and name in single) for name, is_word in names], bool)


def _names(repositories: Iterable[Readable]) -> frozenset[str]:
    return frozenset(_last_name(one.name)[0] for one in repositories)


@lru_cache(maxsize=1 << 14)
def _last_name(name: str) -> tuple[str, bool]:
    """`Flask` of `pallets/Flask` in lower case, and whether it is one word."""
    last = name.rsplit("/", 1)[-1].lower()
    return last, len(terms(last)) == 1
