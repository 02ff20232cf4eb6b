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
    documents = np.array([len(postings.lengths) for postings in lists], np.int64)
    scores = np.zeros(int(documents.sum()), np.float32)
    if not len(scores) or not query:
        return scores
    starts, counts = _find(lists, sorted_terms(query))
    known = statistics or _statistics(lists, counts.sum(axis=0))
    weights = term_weights(query, known) * np.float32(k1 + 1)
    floor, slope = np.float32(k1 * (1 - b)), np.float32(k1 * b / max(1.0, known.average_length))
    owners, terms = np.nonzero(counts)  # of each window of postings: its list and its term
    sizes = counts[owners, terms]
    rows, freqs = _windows(lists, owners, starts[owners, terms], sizes)
    rows += (documents.cumsum() - documents)[owners].repeat(sizes)
    norms = np.concatenate([postings.lengths for postings in lists]).take(rows).astype(np.float32)
    norms *= slope
    norms += floor
    norms += freqs
    freqs *= weights[terms].repeat(sizes)
    freqs /= norms
    np.add.at(scores, rows, freqs)
    return scores


def _windows(
    lists: Sequence[Postings], owners: npt.NDArray[np.intp], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Rows and frequencies of some windows of postings, one behind the other."""
    rows, freqs = np.empty(int(sizes.sum()), np.int64), np.empty(int(sizes.sum()), np.float32)
    own_rows, own_freqs = [], []
    for owner, start, end in zip(owners.tolist(), starts.tolist(), (starts + sizes).tolist(), strict=True):
        postings = lists[owner]
        own_rows.append(postings.rows[start:end])
        own_freqs.append(postings.freqs[start:end])
    if own_rows:
        np.concatenate(own_rows, out=rows)
        np.concatenate(own_freqs, out=freqs)
    return rows, freqs


def sorted_terms(query: Mapping[int, float]) -> npt.NDArray[np.uint64]:
    return np.array(sorted(query), np.uint64)


def term_weights(query: Mapping[int, float], statistics: Statistics) -> npt.NDArray[np.float32]:
    """What each of the sorted terms counts: its weight in the query times its rarity."""
    df = statistics.frequencies
    rarity = np.log1p((statistics.documents - df + 0.5) / (df + 0.5))
    return (np.array([query[term] for term in sorted(query)]) * rarity).astype(np.float32)


def _statistics(lists: Sequence[Postings], frequencies: npt.NDArray[np.int64]) -> Statistics:
    documents = sum(len(postings.lengths) for postings in lists)
    return Statistics(documents, sum(postings.terms for postings in lists) / documents, frequencies)


def document_frequencies(lists: Sequence[Postings], terms: Sequence[int]) -> npt.NDArray[np.int64]:
    """(terms,) in how many documents of all lists each of the terms occurs."""
    counts: npt.NDArray[np.int64] = _find(lists, np.array(terms, np.uint64))[1].sum(axis=0)
    return counts


def _find(
    lists: Sequence[Postings], wanted: npt.NDArray[np.uint64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(lists, wanted) where each term's postings start in each list, and how many it has; 0 where it does not occur."""
    size = len(wanted)
    hashes, edges = np.zeros((len(lists), size), np.uint64), np.zeros((len(lists), 2 * size), np.int64)
    places = np.empty(2 * size, np.int64)
    for number, postings in enumerate(lists):
        if len(postings.hashes):
            places[:size] = postings.hashes.searchsorted(wanted)
            np.add(places[:size], 1, out=places[size:])
            hashes[number] = postings.hashes.take(places[:size], mode="clip")
            edges[number] = postings.starts.take(places, mode="clip")
    starts, ends = edges[:, :size], edges[:, size:]
    return starts, (ends - starts) * (hashes == wanted)
