"""`manage.py evaluate` indexes what it needs, reports and stores each run."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from search.models import EvaluationRun, QuestionSet
from tests.factories import make_repo
from tests.indexing.stub_embedder import StubEmbedder
from tests.search.conftest import Indexed

QUESTIONS = [
    {"query": "how is an order cancelled", "relevant": ["orders.py"], "category": "semantic"},
    {"query": "Stock", "relevant": ["stock.py"], "secondary": ["orders.py"], "category": "symbol"},
]


@pytest.fixture
def corpora(tmp_path: Path, db: None, embedder: StubEmbedder) -> Path:
    for name in ("shop", "cafe"):
        make_repo(
            tmp_path / "corpora",
            {
                f"{name}.md": f"# {name}\n\nAll about {name}.\n",
                "orders.py": f"def cancel_order(number):\n    '''Cancel an order ({name}).'''\n    return number\n",
                "stock.py": f"class Stock:\n    '''Has {name}.'''\n    def take(self, item):\n        return item\n",
            },
            name=name,
        )
        (tmp_path / f"{name}.json").write_text(json.dumps(QUESTIONS))
    return tmp_path


def evaluate(corpora: Path, *arguments: str) -> str:
    out = StringIO()
    call_command(
        "evaluate",
        *("--annotations", str(corpora), "--corpora", str(corpora / "corpora"), *arguments),
        stdout=out,
        stderr=StringIO(),
    )
    return out.getvalue()


def evaluated(corpora: Path, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(evaluate(corpora, "--json", *arguments))
    return document


def test_it_stores_a_run_and_compares_the_next_with_it(corpora: Path) -> None:
    first = evaluated(corpora, "--repo", "shop")
    assert first["overall"]["queries"] == 2
    assert first["cost"]["peak_megabytes"] > 1
    second = evaluated(corpora, "--repo", "shop", "--no-vectors", "--compare", "last")
    assert second["comparison"]["run"] == first["run"]
    assert second["comparison"]["questions"] == 2
    assert EvaluationRun.objects.get(pk=second["run"]).options["no_vectors"] is True
    assert f"against run {first['run']}" in evaluate(corpora, "--repo", "shop", "--compare", str(first["run"]))


def test_it_asks_all_repositories_at_once(corpora: Path) -> None:
    document = evaluated(corpora, "--pooled", "--golden", "shop")
    assert document["pooled"]["repositories"] == 2
    assert document["pooled"]["not_naming"]["queries"] == 4
    assert document["pooled"]["all"]["right_among_5"] == 1.0
    assert "all 2 repositories together" in evaluate(corpora, "--pooled", "--no-golden")


def test_it_searches_with_given_plans(corpora: Path) -> None:
    plans = corpora / "plans" / "plans.json"
    plans.parent.mkdir()
    plans.write_text(json.dumps([{"repo": "shop", "query_index": 0, "english_query": "cancel an order"}]))
    document = evaluated(corpora, "--repo", "shop", "--plans", str(plans))
    assert set(document["plans"]) == {"english", "english+hypothetical", "all"}
    assert "ratio to the English query" in evaluate(corpora, "--repo", "shop", "--plans", str(plans))


def test_it_asks_a_question_set_of_the_admin(corpora: Path, indexed: Indexed) -> None:
    shop = indexed("acme/shop", {"orders.py": "def cancel_order(number):\n    return number\n"})
    questions = QuestionSet.objects.create(name="ours").questions
    questions.create(repository=shop, query="cancel_order", relevant="orders.py:1-2\n")
    out = StringIO()
    call_command("evaluate", "--set", "ours", "--json", stdout=out)
    assert json.loads(out.getvalue())["per_repository"]["acme/shop"]["ndcg_at_10"] == 1.0
    with pytest.raises(CommandError, match="no question set theirs"):
        call_command("evaluate", "--set", "theirs")
    with pytest.raises(CommandError, match="Say what to ask"):
        call_command("evaluate")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--compare", "last"), "no stored run last"),
        (("--compare", "x"), "no stored run x"),
        (("--repo", "none"), "no questions for none"),
        (("--repo", "shop", "--golden", "other"), "other is not among"),
        (("--plans", "/nowhere.json"), "not a list of plans"),
        (("--plans",), "has no plan for a question of these repositories"),
    ],
)
def test_it_refuses_what_makes_no_sense(corpora: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        evaluate(corpora, *arguments)
    assert caught.value.returncode == 2
