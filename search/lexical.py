"""BM25 over the postings of index segments.

A term list (code stems, plain code terms, descriptions, files) is one `Postings` a segment. Statistics are
those of all given segments together, so that scores of several repositories can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexing.index_format import Postings

# Robertson et al. 1994 give 1.2-2.0 and 0.75. Code chunks repeat a name without being more about it, and
# their length says little, hence the low end.
K1 = 1.2
B = 0.75


@dataclass(frozen=True, slots=True)
class Statistics:
    """Of the documents that scores shall be comparable over: how many, their mean length, and how many have each term.

    `frequencies` is aligned with the sorted terms of the query.
    """

    documents: int
    average_length: float
    frequencies: npt.NDArray[np.int64]


def bm25(
    lists: Sequence[Postings],
    query: Mapping[int, float],
    *,
    statistics: Statistics | None = None,
    k1: float = K1,
    b: float = B,
) -> npt.NDArray[np.float32]:
    """Scores of every document of every list, in order: (sum of documents,) float32, 0 where no term occurs.

    query: term hash -> weight. `statistics`: of these lists, unless given. The inverse document frequency is
    Lucene's, always positive: log(1 + (N - df + 0.5) / (df + 0.5)).
    """
    scores = np.zeros(sum(len(postings.lengths) for postings in lists), np.float32)
    if not len(scores) or not query:
        return scores
    wanted = sorted_terms(query)
    found = [_find(postings, wanted) for postings in lists]
    known = statistics or _statistics(lists, found)
    weights = term_weights(query, known) * np.float32(k1 + 1)
    floor, slope = np.float32(k1 * (1 - b)), np.float32(k1 * b / max(1.0, known.average_length))
    first = 0
    for postings, (starts, counts) in zip(lists, found, strict=True):
        documents = len(postings.lengths)
        present = np.flatnonzero(counts)
        if present.size:
            windows = [slice(int(starts[i]), int(starts[i] + counts[i])) for i in present]
            rows = np.concatenate([postings.rows[window] for window in windows])
            freqs = np.concatenate([postings.freqs[window] for window in windows]).astype(np.float32)
            values = np.repeat(weights[present], counts[present]) * freqs
            values /= freqs + (floor + slope * postings.lengths[rows])
            scores[first : first + documents] = np.bincount(rows, values, minlength=documents)
        first += documents
    return scores


def sorted_terms(query: Mapping[int, float]) -> npt.NDArray[np.uint64]:
    return np.array(sorted(query), np.uint64)


def term_weights(query: Mapping[int, float], statistics: Statistics) -> npt.NDArray[np.float32]:
    """What each of the sorted terms counts: its weight in the query times its rarity."""
    df = statistics.frequencies
    rarity = np.log1p((statistics.documents - df + 0.5) / (df + 0.5))
    return (np.array([query[term] for term in sorted(query)]) * rarity).astype(np.float32)


def _statistics(
    lists: Sequence[Postings], found: Sequence[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]
) -> Statistics:
    documents = sum(len(postings.lengths) for postings in lists)
    terms = sum(int(postings.lengths.sum()) for postings in lists)
    return Statistics(documents, terms / documents, np.sum([counts for _, counts in found], axis=0))


def document_frequencies(lists: Sequence[Postings], terms: Sequence[int]) -> npt.NDArray[np.int64]:
    """(terms,) in how many documents of all lists each of the terms occurs."""
    wanted = np.array(terms, np.uint64)
    return sum((_find(postings, wanted)[1] for postings in lists), np.zeros(len(wanted), np.int64))


def _find(postings: Postings, wanted: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where each wanted term's postings start, and how many it has; 0 for terms that do not occur."""
    hashes = postings.hashes
    if not len(hashes):
        return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64)
    places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    starts = postings.starts[places].astype(np.int64)
    return starts, np.where(hashes[places] == wanted, postings.starts[places + 1] - starts, 0)
