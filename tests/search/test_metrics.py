from __future__ import annotations

import pytest

from search.metrics import Place, Target, found_ranks, ndcg, recall, reciprocal_rank

PLACES = [Place("src/a.py", 1, 10), Place("src/a.py", 30, 40), Place("b.py", 1, 5)]


def test_it_finds_a_file_at_its_first_chunk() -> None:
    assert found_ranks(PLACES, [Target("src/a.py"), Target("b.py"), Target("c.py")]) == [1, 3, 0]


def test_it_finds_a_span_at_the_first_chunk_that_overlaps_it() -> None:
    assert found_ranks(PLACES, [Target("src/a.py", 40, 60), Target("src/a.py", 11, 29)]) == [2, 0]


def test_it_takes_paths_that_end_with_each_other_as_the_same_file() -> None:
    assert found_ranks(PLACES, [Target("a.py"), Target("repo/b.py"), Target("xb.py")]) == [1, 3, 0]


def test_it_scores_one_target_at_rank_three_as_a_half() -> None:
    assert ndcg(PLACES, [Target("b.py")]) == pytest.approx(0.5)


def test_it_divides_by_what_was_possible() -> None:
    # Found at 1 and 3 of an ideal 1 and 2: (1 + 0.5) / (1 + 0.6309)
    assert ndcg(PLACES, [Target("src/a.py"), Target("b.py")]) == pytest.approx(0.91972, abs=1e-5)


def test_it_ignores_places_below_the_depth() -> None:
    assert ndcg(PLACES, [Target("b.py")], depth=2) == 0
    assert recall(PLACES, [Target("b.py"), Target("src/a.py")], depth=2) == 0.5
    assert reciprocal_rank(PLACES, [Target("b.py")], depth=3) == pytest.approx(1 / 3)


def test_it_gives_zero_without_targets_or_places() -> None:
    assert (ndcg(PLACES, []), recall([], [Target("a")]), reciprocal_rank([], [Target("a")])) == (0, 0, 0)
