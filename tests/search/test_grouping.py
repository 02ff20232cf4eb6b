from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from search.grouping import Groups, distinct

KEYS = st.lists(st.integers(0, 9), max_size=60)


@given(KEYS)
def test_it_gives_each_row_once_and_in_order(keys: list[int]) -> None:
    assert distinct(np.array(keys, np.int64)).tolist() == sorted(set(keys))


@given(KEYS)
def test_it_says_where_runs_begin_and_which_one_each_is_of(keys: list[int]) -> None:
    ordered = sorted(keys)
    groups = Groups.of_sorted(np.array(ordered, np.int64))
    assert groups.starts.tolist() == [ordered.index(key) for key in sorted(set(keys))]
    assert [ordered[groups.starts[group]] for group in groups.of] == ordered


def test_it_takes_the_first_of_equally_good_ones() -> None:
    groups = Groups.of_sorted(np.array([4, 4, 4, 7, 9, 9]))
    assert groups.best(np.array([1, 3, 3, 0, -2, -1], np.float32)).tolist() == [1, 3, 5]


def test_it_finds_no_best_of_nothing() -> None:
    assert Groups.of_sorted(np.empty(0, np.int64)).best(np.empty(0, np.float32)).tolist() == []
