"""Merging the postings of segments: slice by slice, whatever words are common."""

from __future__ import annotations

import numpy as np
import pytest

from indexing import postings
from indexing.index_format import Postings


def _list(*rows_of_terms: int) -> Postings:
    """Terms whose hashes are neighbours, with so many rows each."""
    hashes = np.arange(1, len(rows_of_terms) + 1, dtype=np.uint64)
    starts = np.concatenate([[0], np.cumsum(rows_of_terms)]).astype(np.uint32)
    rows = np.concatenate([np.arange(count, dtype=np.uint32) for count in rows_of_terms])
    return Postings(hashes, starts, rows, np.ones(len(rows), np.uint8), np.full(10, 3, np.uint32))


def test_it_takes_common_words_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings, "SLICE_ITEMS", 10)
    lists = [_list(8, 9, 1, 1, 9), _list(8, 1, 1)]
    slices = list(postings.term_slices(lists))
    sizes = [
        sum(int(one.starts[window.stop] - one.starts[window.start]) for one, window in zip(lists, windows, strict=True))
        for windows in slices
    ]
    assert [size for size in sizes if size] == [16, 10, 2, 10]  # the first word alone is too much
    for number, one in enumerate(lists):
        assert [row for windows in slices for row in one.hashes[windows[number]]] == one.hashes.tolist()
