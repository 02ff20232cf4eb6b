"""The search page: ranked passages grouped by file, filters, and nothing that may not be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from indexing import embedding
from indexing.building import build_now
from indexing.models import Repository
from tests.factories import commit_files, make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

ORDERS = '''"""Orders."""


class OrderBook:
    def cancel_order(self, number):
        """Cancel an order and refund the payment."""
        order = self.orders[number]
        return order.refund()
'''
FILES: dict[str, str | bytes] = {
    "shop/orders.py": ORDERS,
    "web/orders.js": "// refund it\nexport function refundOrder(number) {\n  return fetch('/refund/' + number)\n}\n",
    "README.md": "# Shop\n\nHow an order is refunded.\n",
}


@pytest.fixture
def shop(user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A private, indexed repository of `user`."""
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    url = str(make_repo(tmp_path, FILES, name="shop"))
    repository = make_repository("acme/shop", url=url, owner=user, visibility="private")
    build_now(repository)
    return repository


def names(client: Client, query: str) -> list[str]:
    return [file.name for file in client.get(f"/search/?q={query}").context["files"]]


def test_it_invites_to_search_before_anything_was_typed(user_client: Client) -> None:
    assert "Type words, a name, an operator or a whole question" in user_client.get("/search/").content.decode()


def test_it_groups_passages_by_file_with_matching_lines_marked(user_client: Client, shop: Repository) -> None:
    response = user_client.get("/search/?q=cancel_order")
    first = response.context["files"][0]
    assert (first.name, first.folder, first.repository) == ("orders.py", "shop", "acme/shop")
    marked = [line.number for passage in first.passages for line in passage.lines if line.hit]
    assert 5 in marked
    assert f"/r/{shop.pk}/acme-shop/blob/" in response.content.decode()


def test_it_keeps_the_indentation_of_the_first_line(user_client: Client, shop: Repository) -> None:
    file = user_client.get("/search/?q=cancel_order").context["files"][0]
    line = next(line for passage in file.passages for line in passage.lines if line.number == 5)
    assert line.html.startswith("    ")


def test_it_filters_by_language_and_kind(user_client: Client, shop: Repository) -> None:
    assert set(names(user_client, "refund order")) == {"orders.py", "orders.js", "README.md"}
    assert names(user_client, "refund order&language=javascript") == ["orders.js"]
    assert names(user_client, "refund order&kind=Documentation") == ["README.md"]
    assert names(user_client, "refund order&path=shop") == ["orders.py"]


def test_it_counts_facets_over_all_passages_whatever_is_chosen(user_client: Client, shop: Repository) -> None:
    facets = user_client.get("/search/?q=refund order&language=javascript").context["facets"]
    languages = {entry.value: entry.chosen for entry in facets[1][2]}
    assert languages == {"python": False, "javascript": True, "markdown": False}


def test_it_says_what_a_question_in_another_language_needs(user_client: Client, shop: Repository) -> None:
    response = user_client.get("/search/", {"q": "Wo wird cancel_order aufgerufen und warum nicht früher?"})
    assert "a multilingual model has to embed the code (EMBEDDING_MODEL)" in response.content.decode()
    assert response.context["files"][0].name == "orders.py"


def test_it_shows_identical_code_once_with_a_count(user_client: Client, user: User, shop: Repository) -> None:
    commit_files(Path(shop.mirror.url), {"old/orders.py": ORDERS})
    build_now(shop)
    response = user_client.get("/search/?q=cancel_order")
    assert [file.folder for file in response.context["files"] if file.name == "orders.py"] == ["shop"]
    assert "2 identical copies" in response.content.decode()


def test_it_orders_by_path(user_client: Client, shop: Repository) -> None:
    assert names(user_client, "refund order&order=path") == ["README.md", "orders.py", "orders.js"]


def test_it_says_where_it_looked_when_nothing_fits(user_client: Client, shop: Repository) -> None:
    page = user_client.get("/search/?q=order&path=nowhere").content.decode()
    assert "Nothing fits" in page
    assert "Only <code>nowhere</code> was searched" in page


def test_it_shows_others_nothing_of_a_private_repository(other_client: Client, shop: Repository) -> None:
    response = other_client.get("/search/?q=cancel_order")
    assert response.context["files"] == []
    assert response.context["trace"].readable_repositories == 0
    assert "acme/shop" not in response.content.decode()


def test_it_says_that_no_model_is_needed(user_client: Client, settings: Settings) -> None:
    assert "No language model is set up" in user_client.get("/search/").content.decode()
    settings.LLM_MODEL = "ollama/llama3.1"
    assert "No language model is set up" not in user_client.get("/search/").content.decode()


def test_it_escapes_the_question_and_the_code(user_client: Client, shop: Repository) -> None:
    page = user_client.get("/search/?q=<script>alert(1)</script> refund").content.decode()
    assert "<script>alert" not in page
    assert "&#x27;/refund/&#x27;" in page or "&#39;/refund/&#39;" in page or "'/refund/'" in page


def test_it_renders_only_the_results_for_htmx(user_client: Client, shop: Repository) -> None:
    page = user_client.get("/search/?q=refund", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in page
    assert "orders.py" in page


def test_it_needs_few_queries(user_client: Client, shop: Repository, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(9):
        user_client.get("/search/?q=refund")
