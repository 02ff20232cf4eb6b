"""A judge of any quality can be scripted, and none of them ruins the order."""

from __future__ import annotations

import pytest

from search.metrics import Place, Target, ndcg
from search.reranking import blend
from search.scripted_judges import JUDGES, judged

RELEVANT = [False, True, *[False] * 18]


@pytest.mark.parametrize("judge", JUDGES)
def test_it_gives_the_same_grades_for_the_same_question(judge: str) -> None:
    assert judged(judge, RELEVANT, question="a") == judged(judge, RELEVANT, question="a")


def test_it_grades_as_well_as_the_judge_is() -> None:
    many = RELEVANT * 100
    perfect, noisy = judged("perfect", many, question="a"), judged("noisy", many, question="a")
    assert [position for position, grade in perfect.items() if grade] == [i for i, is_one in enumerate(many) if is_one]
    assert len(noisy) / len(many) == pytest.approx(0.9, abs=0.05)
    assert sum(noisy[i] != perfect[i] for i in noisy) / len(noisy) == pytest.approx(0.2, abs=0.05)
    assert set(judged("random", many, question="a").values()) == {0.0, 1.0, 2.0, 3.0}
    assert set(judged("drop-all", many, question="a").values()) == {0.0}


def test_it_helps_with_a_good_judge_and_cannot_ruin_with_a_bad_one() -> None:
    figures = {judge: _mean_ndcg(judge) for judge in JUDGES}
    without = figures["drop-all"]
    assert figures["perfect"] > without
    assert figures["perfect"] - figures["noisy"] <= 0.01
    assert figures["random"] >= 0.75 * without


def _mean_ndcg(judge: str) -> float:
    """Questions whose answer search has first, mostly by far, or further down: as often as in the benchmark."""
    total = 0.0
    for number in range(200):
        answer = 0 if number % 20 < 17 else 1 + number % 3
        margin = 0.02 if number % 5 == 0 else 0.3
        scores = [1.0, *(1.0 - margin - 0.04 * place for place in range(1, 20))]
        grades = judged(judge, [place == answer for place in range(20)], question=str(number))
        order = blend(scores, grades, trust=0.05).order
        total += ndcg([Place(str(place), 1, 1) for place in order], [Target(str(answer))])
    return total / 200
