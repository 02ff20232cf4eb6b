"""Code -> other code that means much the same, by vectors alone, in everything the person may read.

In: a passage's text. Out: hits at or above SIMILAR_MINIMUM_COSINE, most similar first; nothing rather than something
far-fetched. The threshold is on float16 cosines: scores of sign bits sit in a band too narrow to cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from django.conf import settings

from indexing import embedding
from indexing.access import Principal
from indexing.context import normalise
from indexing.errors import EmbeddingError, VectorsUnavailable
from indexing.index_format import ModelInfo
from search.corpus import Corpus
from search.pipeline import AS_ALWAYS, EVERYWHERE, hits_at
from search.readable import Library, Readable, open_chosen, readable
from search.results import Hit
from search.retrieval import Query, retrieve
from search.wording import wording

LIST = "vectors.code"
MOST_REPOSITORIES = 32


@dataclass(frozen=True, slots=True)
class Similar:
    """`notices` say what could not be compared."""

    hits: tuple[Hit, ...]
    notices: tuple[str, ...]


def similar(text: str, language: str, *, principal: Principal, limit: int = 10) -> Similar:
    """Hits for a piece of code; the piece itself is among them when it is indexed. Raises EmbeddingError."""
    notices: list[str] = []
    library = readable(principal, EVERYWHERE, AS_ALWAYS, notices)
    embedder = embedding.get_embedder()
    own = normalise(text, language)
    if not own or not library.repositories:
        return Similar((), tuple(notices))
    query = Query("passage", 1.0, wording(""), embedder.embed_queries([own])[0], code_only=True)
    sources = open_chosen(_nearest(library, query, embedder.info), notices)
    corpus = Corpus([source for source in sources if source.index.manifest.model == embedder.info])
    if not corpus.sources:
        return Similar((), tuple(notices))
    try:
        pool = retrieve(corpus, [query])
    except VectorsUnavailable as error:
        return Similar((), (*notices, str(error)))
    scores = pool.chunk_lists["passage", LIST]
    order = np.argsort(-scores, kind="stable")[:limit]
    near = [int(place) for place in order if scores[place] >= settings.SIMILAR_MINIMUM_COSINE]
    return Similar(tuple(hits_at(corpus, pool, near, scores[near].tolist())), tuple(notices))


def _nearest(library: Library, query: Query, model: ModelInfo) -> list[Readable]:
    """Those whose centroids are nearest to the passage; all when there are few."""
    assert query.vector is not None
    rows = np.array([one.row for one in library.repositories], np.int64)
    nearness = library.catalogue.nearness(query.vector, rows, model)
    return [library.repositories[i] for i in np.argsort(-nearness, kind="stable")[:MOST_REPOSITORIES]]


__all__ = ["EmbeddingError", "Similar", "similar"]
