"""`manage.py search`: the shape of its document, and what it refuses."""

from __future__ import annotations

import io
import json

import pytest
from django.core.management import CommandError, call_command

from tests.search.conftest import Indexed

FILES: dict[str, str | bytes] = {"shop/orders.py": "def cancel_order(number):\n    return number\n"}
PLACE = {"repository", "commit", "path", "language", "kind", "symbol"}
RANGE = {"start_byte", "end_byte", "start_line", "end_line", "score", "legs"}


def test_it_gives_hits_and_the_trace_as_one_json_document(indexed: Indexed) -> None:
    indexed("acme/shop", FILES)
    out = io.StringIO()
    call_command("search", "how is an order cancelled?", "--repo", "acme/shop", "--json", stdout=out)
    document = json.loads(out.getvalue())
    assert set(document) == {"hits", "trace"}
    hit = document["hits"][0]
    assert set(hit) >= PLACE | RANGE
    assert (hit["repository"], hit["path"], hit["symbol"]) == ("acme/shop", "shop/orders.py", "cancel_order")


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", [["x", "--limit", "0"], ["x", "--limit", "-3"], ["x", "--repo", "gone"], [" "]])
def test_it_refuses_wrong_use(arguments: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("search", *arguments)
