"""Figures come from the places that search returns, in the right repository only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pytest_django import Settings

from search.errors import EvaluationError
from search.evaluation import Question, Way, figures, pooled, read_questions, report, run
from search.metrics import Target
from search.results import QueryPlan, SearchOptions
from tests.search.conftest import Indexed

SHOP: dict[str, str | bytes] = {
    "shop/orders.py": "def cancel_order(number):\n    '''Cancel an order, refund it.'''\n    return number\n",
    "shop/stock.py": "class Stock:\n    def take(self, item):\n        self.items.remove(item)\n        return item\n",
}
CAFE: dict[str, str | bytes] = {"shop/orders.py": "def serve_coffee(guest):\n    return guest.cup.fill()\n"}

CANCEL = Question("shop", "how is an order cancelled", (Target("shop/orders.py"),), "semantic")
COFFEE = Question("cafe", "who serves coffee", (Target("shop/orders.py"),), "semantic")


def test_it_asks_each_question_in_its_own_repository(indexed: Indexed) -> None:
    repositories = {"shop": indexed("acme/shop", SHOP), "cafe": indexed("acme/cafe", CAFE)}
    outcomes = run([CANCEL, COFFEE], repositories)
    assert figures(outcomes) == {("shop", CANCEL.query): 1.0, ("cafe", COFFEE.query): 1.0}
    document = report(outcomes)
    assert document["overall"]["candidate_recall_at_50"] == 1.0
    assert document["per_repository"]["cafe"]["queries"] == 1


def test_it_counts_a_pooled_hit_only_in_the_right_repository(indexed: Indexed) -> None:
    repositories = {"shop": indexed("acme/shop", SHOP), "cafe": indexed("acme/cafe", CAFE)}
    pool = frozenset(repository.pk for repository in repositories.values())
    wrong = Question("cafe", CANCEL.query, CANCEL.targets, "semantic")  # the path exists in both
    right_outcome, wrong_outcome = run([CANCEL, wrong], repositories, way=Way(pool=pool))
    assert (right_outcome.ndcg, right_outcome.choice_rank) == (1.0, 1)
    assert wrong_outcome.ndcg < 1
    assert pooled([right_outcome])["all"]["right_among_5"] == 1.0


def test_it_searches_nothing_outside_the_pool(indexed: Indexed) -> None:
    shop = indexed("acme/shop", SHOP)
    indexed("acme/other", CAFE)
    (outcome,) = run([CANCEL], {"shop": shop}, way=Way(pool=frozenset({shop.pk})))
    assert outcome.choice_rank == 1


def test_it_tells_apart_questions_that_name_the_repository() -> None:
    assert Question("acme/shop", "Where does Shop cancel?", (), "").names_repository
    assert not CANCEL.names_repository


def test_it_marks_golden_for_the_run_only(indexed: Indexed) -> None:
    shop, cafe = indexed("acme/shop", SHOP), indexed("acme/cafe", {"menu.py": SHOP["shop/orders.py"]})
    pool = frozenset({shop.pk, cafe.pk})
    for golden, rank in ((shop, 1), (cafe, 2)):
        way = Way(SearchOptions(golden=frozenset({golden.pk})), pool)
        (outcome,) = run([CANCEL], {"shop": shop}, way=way)
        assert outcome.choice_rank == rank
    shop.refresh_from_db()
    assert not shop.golden


def test_it_asks_with_a_given_plan(indexed: Indexed) -> None:
    shop = indexed("acme/shop", SHOP)
    way = Way(SearchOptions(vectors=False)).with_plans({CANCEL: QueryPlan("zebra")})
    (outcome,) = run([CANCEL], {"shop": shop}, way=way)
    assert outcome.ndcg == 0


def test_it_reranks_by_a_scripted_judge(indexed: Indexed, settings: Settings) -> None:
    settings.RERANK_TRUST = 3.0
    shop = {"shop": indexed("acme/shop", SHOP)}
    wrong = Question("shop", "cancel_order of an item", (Target("shop/stock.py"),), "semantic")
    assert [run([wrong], shop, way=Way(judge=judge))[0].ndcg for judge in ("", "perfect")] == [
        pytest.approx(0.63, abs=0.01),
        1.0,
    ]


def test_it_reads_targets_with_and_without_lines(tmp_path: Path) -> None:
    entries = [{"query": "q", "relevant": ["a.py", {"path": "b.py", "start_line": 2, "end_line": 3}]}]
    (tmp_path / "shop.json").write_text(json.dumps(entries))
    (question,) = read_questions(tmp_path)
    assert question.targets == (Target("a.py"), Target("b.py", 2, 3))


@pytest.mark.parametrize("content", ["{", "[1]", '[{"query": "q"}]', '[{"query": "q", "relevant": [{}]}]'])
def test_it_refuses_what_is_not_a_list_of_questions(tmp_path: Path, content: str) -> None:
    (tmp_path / "shop.json").write_text(content)
    with pytest.raises(EvaluationError, match=r"shop\.json"):
        read_questions(tmp_path)


def test_it_says_which_repository_has_no_questions(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="shop"):
        read_questions(tmp_path, ["shop"])
