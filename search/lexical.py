"""BM25 over the postings of index segments.

A term list (code stems, plain code terms, descriptions, files) is one `Postings` a segment. Statistics are
those of all given segments together, so that scores of several repositories can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from indexing.index_format import Postings

# Robertson et al. 1994 give 1.2-2.0 and 0.75. Code chunks repeat a name without being more about it, and
# their length says little, hence the low end.
K1 = 1.2
B = 0.75


def bm25(
    lists: Sequence[Postings], query: Mapping[int, float], *, k1: float = K1, b: float = B
) -> npt.NDArray[np.float32]:
    """Scores of every document of every list, in order: (sum of documents,) float32, 0 where no term occurs.

    query: term hash -> weight. The inverse document frequency is Lucene's, always positive:
    log(1 + (N - df + 0.5) / (df + 0.5)).
    """
    documents = [len(postings.lengths) for postings in lists]
    total = sum(documents)
    scores = np.zeros(total, np.float32)
    if not total or not query:
        return scores
    average = max(1.0, sum(int(postings.lengths.sum()) for postings in lists) / total)
    wanted = np.array(sorted(query), np.uint64)
    weights = [query[int(term)] for term in wanted]
    found = [_find(postings, wanted) for postings in lists]
    frequencies = [sum(end - start for start, end in spans) for spans in zip(*found, strict=True)]
    idf = [math.log(1 + (total - df + 0.5) / (df + 0.5)) for df in frequencies]
    first = 0
    for postings, spans, count in zip(lists, found, documents, strict=True):
        part = scores[first : first + count]
        for (start, end), weight, rarity in zip(spans, weights, idf, strict=True):
            if start == end:
                continue
            rows = postings.rows[start:end]
            freqs = postings.freqs[start:end].astype(np.float32)
            norm = (k1 * (1 - b + b / average * postings.lengths[rows])).astype(np.float32)
            # A row occurs once per term, so this adds without losing any.
            part[rows] += (weight * rarity * (k1 + 1)) * (freqs / (freqs + norm))
        first += count
    return scores


def document_frequency(lists: Sequence[Postings], term: int) -> int:
    """In how many documents of all lists the term occurs."""
    wanted = np.array([term], np.uint64)
    return sum(end - start for postings in lists for start, end in _find(postings, wanted))


def _find(postings: Postings, wanted: npt.NDArray[np.uint64]) -> list[tuple[int, int]]:
    """The [start, end) span of each wanted term's postings; empty spans for terms that do not occur."""
    hashes = postings.hashes
    if not len(hashes):
        return [(0, 0)] * len(wanted)
    places = np.minimum(np.searchsorted(hashes, wanted), len(hashes) - 1)
    hit = hashes[places] == wanted
    starts, ends = postings.starts[places], postings.starts[places + 1]
    return [
        (int(start), int(end)) if present else (0, 0) for start, end, present in zip(starts, ends, hit, strict=True)
    ]
