from __future__ import annotations

import pytest

from search.comparing import compare, difference_interval, ratio_interval

BEFORE = {("shop", "a"): 1.0, ("shop", "b"): 0.5, ("cafe", "c"): 0.0, ("cafe", "gone"): 1.0}
AFTER = {("shop", "a"): 0.63, ("shop", "b"): 0.5, ("cafe", "c"): 1.0, ("cafe", "new"): 1.0}


def test_it_compares_the_questions_that_both_runs_have() -> None:
    found = compare(BEFORE, AFTER)
    assert found is not None
    assert (found.questions, found.wins, found.losses) == (3, 1, 1)
    assert found.before == pytest.approx(0.5)
    assert found.after == pytest.approx(0.71)
    assert [change.key for change in found.changes] == [("cafe", "c"), ("shop", "a")]
    assert found.to_json()["ties"] == 1


def test_it_has_nothing_to_say_about_other_questions() -> None:
    assert compare({("a", "x"): 1.0}, {("a", "y"): 1.0}) is None


def test_it_gives_the_same_interval_for_the_same_figures() -> None:
    before, after = [0.2, 0.4, 0.9, 1.0] * 5, [0.3, 0.5, 0.9, 1.0] * 5
    assert difference_interval(before, after) == difference_interval(before, after)


def test_it_pairs_questions_so_that_hard_ones_do_not_widen_the_interval() -> None:
    before = [0.0, 1.0] * 20
    low, high = difference_interval(before, [value + 0.1 for value in before])
    assert (low, high) == (pytest.approx(0.1), pytest.approx(0.1))
    low, high = ratio_interval(before, [0.9 * value for value in before])
    assert (low, high) == (pytest.approx(0.9), pytest.approx(0.9))
