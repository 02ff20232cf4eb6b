from __future__ import annotations

import json
from pathlib import Path

import pytest

from search.errors import EvaluationError
from search.evaluation import Question
from search.given_plans import OWN_PLANS, combinations, plans_report, read_plans
from search.language import is_english

QUESTIONS = [Question("shop", "cancel an order", (), "semantic"), Question("shop", "Stock", (), "symbol")]
CHINESE = {
    "repo": "shop",
    "query_index": 0,
    "english_query": "cancel an order",
    "origin_language_query": "如何取消 order",
    "hypothetical_document": "def cancel(order): ...",
}
ENGLISH = {"repo": "shop", "query_index": 1, "english_query": "Stock", "origin_language_query": "Stock"}


def test_it_combines_the_queries_of_each_plan(tmp_path: Path) -> None:
    file = tmp_path / "plans.json"
    file.write_text(json.dumps([CHINESE, ENGLISH, {"repo": "elsewhere", "query_index": 9}]))
    given = read_plans(file, QUESTIONS)
    named = combinations(given)
    assert [len(plans) for plans in named.values()] == [2, 2, 1, 1, 2, 1]
    question, stock = given[0].question, given[1].question
    assert (question.query, stock.query) == ("如何取消 order", "Stock")
    assert named["english"][question].hypothetical_document == ""
    assert named["original"][question].english_query == "order"  # what is left without a model
    assert named["original+hypothetical"][question].hypothetical_document == "def cancel(order): ..."
    assert named["all"][question].source == "given"


def test_it_sets_each_combination_beside_english_on_the_same_questions() -> None:
    english = {("shop", "a"): 0.8, ("shop", "b"): 0.4}
    rows = plans_report({"english": english, "original": {("shop", "a"): 0.4}, "all": {}})
    assert rows["original"] == {
        "ndcg_at_10": 0.4,
        "queries": 1,
        "english_ndcg_at_10": 0.8,
        "ratio_to_english": 0.5,
        "ratio_interval_95": [0.5, 0.5],
    }
    assert "all" not in rows


@pytest.mark.parametrize(
    "entries", ["{", "[1]", json.dumps([{**CHINESE, "query_index": 7}]), json.dumps([{**CHINESE, "repo": "cafe"}])]
)
def test_it_refuses_plans_for_no_question(tmp_path: Path, entries: str) -> None:
    file = tmp_path / "plans.json"
    file.write_text(entries)
    with pytest.raises(EvaluationError, match=r"plans\.json"):
        read_plans(file, QUESTIONS)


def test_it_brings_plans_in_four_languages() -> None:
    plans = json.loads(OWN_PLANS.read_text())
    scripts = [("\u4e00", "\u9fff"), ("\u0400", "\u04ff"), ("\u0600", "\u06ff")]
    questions = [plan["origin_language_query"] for plan in plans]
    by_script = [sum(any(low <= mark <= high for mark in text) for text in questions) for low, high in scripts]
    assert (len(plans), by_script) == (60, [15, 15, 15])  # the others are German
    assert not any(is_english(text) for text in questions)
    assert len({(plan["repo"], plan["query_index"]) for plan in plans}) == 60
    assert all(5 <= len(plan["hypothetical_document"].splitlines()) <= 10 for plan in plans)
