from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from search.fusion import scale, top


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_it_gives_the_best_one_and_keeps_the_distances() -> None:
    assert scale(floats(4, 8, 0), depth=3).tolist() == [0.5, 1.0, 0.0]


def test_it_gives_nothing_to_what_is_below_the_depth() -> None:
    assert scale(floats(10, 9, 8, 6, 4), depth=3).tolist() == [1.0, 0.5, 0.0, 0.0, 0.0]


def test_it_gives_nothing_when_nothing_was_found() -> None:
    assert scale(floats(0, 0), depth=3).tolist() == [0.0, 0.0]


def test_it_gives_equals_the_same() -> None:
    assert scale(floats(2, 2, 2), depth=2).tolist() == [1.0, 1.0, 1.0]


def test_it_breaks_ties_by_the_lower_row() -> None:
    assert top(floats(1, 3, 0, 3), 2).tolist() == [1, 3]


def test_it_leaves_out_rows_without_a_score() -> None:
    assert top(floats(0, 2, 0), 5).tolist() == [1]


@given(st.integers(0, 20_000), st.integers(1, 100), st.integers(1, 500), st.integers(0, 99))
def test_it_finds_the_same_best_among_many_as_sorting_all_would(rows: int, k: int, values: int, zeros: int) -> None:
    random = np.random.default_rng(rows)
    scores = random.integers(0, values, rows).astype(np.float32)
    scores[random.integers(0, 100, rows) < zeros] = 0
    by_sorting = [row for row in np.argsort(-scores, kind="stable").tolist() if scores[row] > 0]
    assert top(scores, k).tolist() == by_sorting[:k]


@given(st.lists(st.floats(0, 100, width=32), min_size=1, max_size=40), st.randoms())
def test_it_does_not_depend_on_the_order_of_its_input(values: list[float], random: object) -> None:
    order = list(range(len(values)))
    random.shuffle(order)  # type: ignore[attr-defined]
    straight = scale(floats(*values), depth=10)
    shuffled = scale(floats(*(values[i] for i in order)), depth=10)
    assert np.array_equal(straight[order], shuffled)
    assert straight.max() <= 1
    assert straight.min() >= 0
