from __future__ import annotations

from collections import Counter

import numpy as np

from indexing.index_format import Postings
from indexing.tokenizing import term_hash
from search.lexical import bm25, document_frequencies


def postings(*documents: str) -> Postings:
    """The term list of documents given as words with spaces between."""
    counts = [Counter(document.split()) for document in documents]
    words = sorted({word for count in counts for word in count}, key=term_hash)
    rows = [[row for row, count in enumerate(counts) if word in count] for word in words]
    return Postings(
        hashes=np.array([term_hash(word) for word in words], np.uint64),
        starts=np.cumsum([0] + [len(found) for found in rows]).astype(np.uint32),
        rows=np.array([row for found in rows for row in found], np.uint32),
        freqs=np.array([counts[row][word] for word, found in zip(words, rows, strict=True) for row in found], np.uint8),
        lengths=np.array([sum(count.values()) for count in counts], np.uint32),
    )


def query(*words: str) -> dict[int, float]:
    return {term_hash(word): 1.0 for word in words}


def test_it_scores_by_the_textbook_formula() -> None:
    # idf = ln(1 + (2 - 1 + 0.5) / (1 + 0.5)) = ln 2; both documents have the average length; tf 2: 2 * 2.2 / (2 + 1.2)
    scores = bm25([postings("session session", "cookie cookie")], query("session"))
    assert np.allclose(scores, [np.log(2) * 2 * 2.2 / 3.2, 0])


def test_it_prefers_the_rarer_word() -> None:
    scores = bm25([postings("get session", "get cookie", "get path")], query("get", "cookie"))
    assert scores.argmax() == 1
    assert scores[0] > 0


def test_it_compares_documents_of_several_segments_by_one_statistic() -> None:
    together = bm25([postings("a b", "a a c", "d")], query("a", "d"))
    apart = bm25([postings("a b"), postings("a a c", "d")], query("a", "d"))
    assert np.allclose(together, apart)


def test_it_prefers_the_shorter_of_two_documents_with_the_word() -> None:
    scores = bm25([postings("session", "session and much more than that")], query("session"))
    assert scores[0] > scores[1]


def test_it_counts_a_query_terms_weight() -> None:
    weighted = bm25([postings("a", "b")], {term_hash("a"): 0.5, term_hash("b"): 1.0})
    assert np.isclose(weighted[0] * 2, weighted[1])


def test_it_finds_nothing_for_unknown_words_and_in_no_lists() -> None:
    assert bm25([postings("a")], query("zebra")).tolist() == [0]
    assert bm25([], query("a")).size == 0
    assert bm25([postings("a")], {}).tolist() == [0]


def test_it_counts_documents() -> None:
    assert document_frequencies([postings("a b", "a"), postings("a", "c")], [term_hash("a"), 1]).tolist() == [3, 0]
