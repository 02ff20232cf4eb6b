"""Readable repositories -> the few worth opening for this question.

Evidence for a repository: its best chunk by BM25 (one statistic over all readable repositories, so scores
compare), the nearest centroid of its profile, and its name in the question. Pinned repositories are always and
alone chosen. Golden: a golden repository, or one of a golden set whose topic the question names, gets `GOLDEN_BONUS`
of the best score, enough to win among near equals and too little to push aside one that is clearly better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from indexing.tokenizing import stems, terms
from search.corpus import Corpus, Source
from search.fusion import scale
from search.lexical import bm25
from search.results import RepositoryChoice, Scope
from search.retrieval import Query

Floats = npt.NDArray[np.float32]

GOLDEN_BONUS = 0.1
NAME_BONUS = 2.0  # more than the best of both lists: whoever names a repository means it
CENTROID_WEIGHT = 0.7


def choose(sources: Sequence[Source], queries: Sequence[Query], *, scope: Scope, limit: int) -> list[RepositoryChoice]:
    """At most `limit` choices, best first, ties by name; pinned ones all, in the order given."""
    if scope.repository_ids:
        return [_choice(source, 1.0, _pins(source, scope), pinned=True) for source in sources]
    if not sources:
        return []
    lexical = scale(_best_chunk(sources, queries), depth=len(sources))
    meaning = scale(_nearest_centroid(sources, queries), depth=len(sources))
    scores = lexical + CENTROID_WEIGHT * meaning
    named = np.array([_is_named(source.name, queries) for source in sources])
    golden = np.array([source.golden for source in sources])
    about = [_topic(source, queries) for source in sources]
    unit = float(scores.max()) or 1.0
    preferred = golden | np.array([bool(topic) for topic in about])
    scores = scores + unit * (NAME_BONUS * named + GOLDEN_BONUS * preferred)
    order = sorted(range(len(sources)), key=lambda i: (-float(scores[i]), sources[i].name))[:limit]
    top = float(scores[order[0]]) or 1.0
    reasons = [_reasons(i, lexical, meaning, named, golden) for i in order]
    return [
        _choice(sources[i], float(scores[i]) / top, ([about[i]] if about[i] else []) + why)
        for i, why in zip(order, reasons, strict=True)
    ]


def _choice(source: Source, score: float, reasons: list[str], *, pinned: bool = False) -> RepositoryChoice:
    return RepositoryChoice(
        repository_id=source.repository_id,
        name=source.name,
        golden=source.golden,
        pinned=pinned,
        score=round(score, 3),
        reasons=tuple(reasons + (["golden"] if source.golden and pinned else [])),
    )


def _reasons(
    i: int, lexical: Floats, meaning: Floats, named: npt.NDArray[np.bool_], golden: npt.NDArray[np.bool_]
) -> list[str]:
    reasons = []
    if named[i]:
        reasons.append("named in the question")
    if golden[i]:
        reasons.append("golden")
    if lexical[i] > 0:
        reasons.append(f"words {lexical[i]:.2f}")
    if meaning[i] > 0:
        reasons.append(f"topic {meaning[i]:.2f}")
    return reasons or ["no better one"]


def _best_chunk(sources: Sequence[Source], queries: Sequence[Query]) -> Floats:
    """(sources,) the best chunk's BM25 over the stems of all queries."""
    corpus = Corpus(sources)
    best = np.zeros(len(sources), np.float32)
    place = {source.repository_id: i for i, source in enumerate(sources)}
    for query in queries:
        scores = bm25(corpus.postings("code_stems"), query.wording.stems)
        for part in corpus.parts:
            window = scores[part.first_chunk : part.first_chunk + part.segment.info.chunks]
            if part.segment.live_chunks is not None:
                window = window[part.segment.live_chunks]
            if window.size:
                i = place[part.source.repository_id]
                best[i] = max(best[i], query.weight * float(window.max()))
    return best


def _nearest_centroid(sources: Sequence[Source], queries: Sequence[Query]) -> Floats:
    """(sources,) cosine to the nearest centroid of the profile; 0 without vectors."""
    best = np.zeros(len(sources), np.float32)
    for i, source in enumerate(sources):
        profile = source.index.profile
        if profile is None or not source.comparable or not len(profile.floats):
            continue
        for query in queries:
            if query.vector is not None and not query.code_only:
                best[i] = max(best[i], float((profile.floats.astype(np.float32) @ query.vector).max()))
    return best


def _pins(source: Source, scope: Scope) -> list[str]:
    """Why a repository is among the pinned ones: the sets it is in, else its own name."""
    sets = [f"in @set/{part.name}" for part in scope.sets if source.repository_id in part.repository_ids]
    return sets or ["pinned with @"]


def _topic(source: Source, queries: Sequence[Query]) -> str:
    """The set that the repository is in, when the question has all words of one of the set's topics."""
    if not source.topics or not queries:
        return ""
    asked = set(stems(terms(queries[0].wording.text)))
    words = ((topic, name, set(stems(terms(topic)))) for topic, name in source.topics)
    return next((f"@set/{name} is about {topic}" for topic, name, wanted in words if wanted and wanted <= asked), "")


def _is_named(name: str, queries: Sequence[Query]) -> bool:
    """The last part of the repository's name, as a word of the question: `flask` of pallets/flask."""
    wanted = name.rsplit("/", 1)[-1].lower()
    words = set(queries[0].wording.text.lower().split()) if queries else set()
    return wanted in words or (len(terms(wanted)) == 1 and wanted in set(terms(queries[0].wording.text)))
