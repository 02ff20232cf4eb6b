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


def test_it_prints_for_people_and_knows_its_trees(corpora: Path) -> None:
    out = StringIO()
    call_command("evaluate_spans", "--corpora", str(corpora), stdout=out, stderr=StringIO())
    assert "100.0%" in out.getvalue()
    with pytest.raises(CommandError, match="no Git repository cafe") as caught:
        call_command("evaluate_spans", "--corpora", str(corpora), "--repo", "cafe")
    assert caught.value.returncode == 2
