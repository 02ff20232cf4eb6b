"""`manage.py evaluate_spans` indexes a copy without documentation, asks, and leaves nothing behind."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from indexing.models import Repository
from tests.factories import make_repo
from tests.indexing.stub_embedder import StubEmbedder

DOCUMENTED = '''def cancel_order(number, reason):
    """Cancel the order with this number and tell the customer the reason."""
    order = find_order(number)
    return order.cancel(reason)
'''


@pytest.fixture
def corpora(tmp_path: Path, db: None, embedder: StubEmbedder) -> Path:
    make_repo(tmp_path / "corpora", {"orders.py": DOCUMENTED, "README.md": "# Shop\n\nOrders.\n"}, name="shop")
    return tmp_path / "corpora"


def test_it_asks_for_functions_by_their_documentation(corpora: Path) -> None:
    out = StringIO()
    call_command("evaluate_spans", "--corpora", str(corpora), "--json", stdout=out, stderr=StringIO())
    document = json.loads(out.getvalue())
    assert (document["functions"], document["in_top_10"], document["median_span_ratio"]) == (1, 1.0, 1.0)
    assert document["per_repository"]["shop"]["first"] == 1.0
    assert not Repository.objects.exists()


def test_it_takes_other_functions_for_another_seed_and_tells_the_rank_of_each(corpora: Path) -> None:
    modules = {f"{name}.py": DOCUMENTED.replace("order", name) for name in ("invoice", "parcel", "refund")}
    make_repo(corpora, modules, name="many")

    def chosen(seed: int) -> list[tuple[str, str, int]]:
        out, options = StringIO(), ("--functions", "2", "--seed", str(seed), "--queries", "--json")
        call_command("evaluate_spans", "--corpora", str(corpora), *options, stdout=out, stderr=StringIO())
        return [(row["path"], row["function"], row["rank"]) for row in json.loads(out.getvalue())["queries"]]

    assert chosen(1) == chosen(1)
    assert len({tuple(chosen(seed)) for seed in range(1, 7)}) > 1
    assert ("invoice.py", "cancel_invoice", 1) in [row for seed in range(1, 7) for row in chosen(seed)]


def test_it_prints_for_people_and_knows_its_trees(corpora: Path) -> None:
    out = StringIO()
    call_command("evaluate_spans", "--corpora", str(corpora), "--queries", stdout=out, stderr=StringIO())
    assert "100.0%" in out.getvalue()
    assert out.getvalue().splitlines()[-1] == "  1 shop orders.py cancel_order"
    with pytest.raises(CommandError, match="no Git repository cafe") as caught:
        call_command("evaluate_spans", "--corpora", str(corpora), "--repo", "cafe")
    assert caught.value.returncode == 2
