"""First questions made from what is indexed, and what the composer offers while typing."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.completing import complete
from assistant.suggesting import suggestions
from indexing import embedding
from indexing.access import Principal
from indexing.building import build_now
from indexing.models import Repository
from tests.factories import make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

BODY = "\n".join(f"    x{n} = {n}" for n in range(20))
FILES: dict[str, str | bytes] = {
    "shop/orders.py": f"class OrderBook:\n{BODY}\n",
    "shop/stock.go": "package stock\n\nfunc TakeItem() {\n}\n",
    "tests/test_orders.py": f"def test_everything():\n{BODY}\n",
    "web/app.js": "function q(){}\n",
}


@pytest.fixture
def shop(db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    repository = make_repository("acme/shop", url=str(make_repo(tmp_path, FILES)), visibility="private")
    build_now(repository)
    repository.refresh_from_db()
    return repository


def tokens(typed: str, *chips: str, principal: Principal = Principal.operator()) -> list[str]:  # noqa: B008
    return [found.token for found in complete(typed, chips, principal)]


def test_it_asks_about_the_largest_public_definitions_outside_tests(shop: Repository) -> None:
    found = suggestions([shop])
    assert [item.text for item in found] == ["What is OrderBook responsible for?", "How does TakeItem work?"]
    assert (found[0].scope, found[0].place) == ("@acme/shop", "shop/orders.py")


def test_it_suggests_nothing_for_code_that_is_not_indexed(db: None) -> None:
    assert suggestions([make_repository()]) == []


def test_it_completes_names_folders_and_languages(shop: Repository) -> None:
    assert tokens("@sho") == ["@acme/shop"]
    assert tokens("path:s") == ["path:shop"]
    assert tokens("path!:") == ["path!:shop", "path!:tests", "path!:web"]
    assert tokens("lang:p", "@acme/shop") == ["lang:python"]
    assert tokens("cancel") == []


def test_it_completes_nothing_that_may_not_be_read(shop: Repository) -> None:
    anonymous = Principal(user_id=None)
    for typed in ("@sho", "path:s", "lang:p"):
        assert tokens(typed, principal=anonymous) == []
        assert tokens(typed, "@acme/shop", principal=anonymous) == []
