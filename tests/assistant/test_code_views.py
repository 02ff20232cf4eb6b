"""Pages about code at a commit: previews, folders, references, changes, similar code; and what others do not see."""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from assistant import conversations
from assistant.models import Message
from indexing import embedding, git
from indexing.building import build_now
from indexing.models import Repository
from tests.assistant.scripted import hit_for, real_repository
from tests.factories import commit_files, make_index
from tests.indexing.stub_embedder import StubEmbedder

HTMX = {"HX-Request": "true"}
ORDERS = """class OrderBook:
    def cancel_order(self, number):
        order = self.orders[number]
        return order.refund()


def refund_all(book, numbers):
    return [book.cancel_order(number) for number in numbers]
"""
FILES: dict[str, str | bytes] = {
    "shop/orders.py": ORDERS,
    "shop/copy/orders.py": ORDERS.replace("OrderBook", "Ledger").replace("book", "ledger"),
    "web/keys.py": "password = 'hunter2hunter2hunter2'\nuncancel_order = 1  # cancel_order\n",
    "README.md": "# Shop\n",
}


@pytest.fixture
def shop(user: User, tmp_path: Path) -> Repository:
    """A private repository of `user`, with a mirror but no index files."""
    return real_repository(tmp_path, FILES, name="acme/shop", owner=user, visibility="private")


@pytest.fixture
def indexed(shop: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    build_now(shop)
    shop.refresh_from_db()
    return shop


def url(repository: Repository, page: str, query: str, commit: str = "") -> str:
    assert repository.current_index is not None
    return f"/r/{repository.pk}/acme-shop/{page}/{commit or repository.current_index.commit}?{query}"


def ask(user: User, repository: Repository, path: str, passage: str) -> Message:
    """A finished answer that cites the passage."""
    message = conversations.start_message(user, "How is it cancelled?", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, path, passage)])
    ending = conversations.Ending(
        Message.State.DONE, [], answer="It is refunded [1].", answered_by="m", cited=[1], verified=[1]
    )
    conversations.finish(message.pk, 1, ending)
    message.refresh_from_db()
    return message


def move_on(repository: Repository, files: dict[str, str | bytes | None]) -> str:
    """A newer commit is the indexed one; returns the one before it."""
    assert repository.current_index is not None
    before = repository.current_index.commit
    newest = commit_files(Path(repository.mirror.url), files)
    git.ensure_mirror(repository.mirror)
    make_index(repository, current=True, commit=newest)
    return before


def test_it_previews_the_first_lines_of_a_passage(user_client: Client, shop: Repository) -> None:
    page = user_client.get(url(shop, "preview", "path=shop/orders.py&bytes=0-200")).content.decode()
    assert 'class="ln">1<' in page
    assert "<html" not in page
    assert user_client.get(url(shop, "preview", "path=shop/orders.py&bytes=0-99999")).status_code == 404


def test_it_opens_folders_and_their_breadcrumbs(user_client: Client, shop: Repository) -> None:
    root = user_client.get(url(shop, "folder", "")).content.decode()
    assert re.findall(r'<span class="mono cut">([^<]+)', root) == ["shop/", "web/", "README.md"]
    inside = user_client.get(url(shop, "folder", "path=shop"))
    assert [crumb.name for crumb in inside.context["crumbs"]] == ["acme/shop", "shop"]
    assert [entry.name for entry in inside.context["entries"]] == ["copy", "orders.py"]
    crumbs = user_client.get(url(shop, "blob", "path=shop/orders.py")).context["crumbs"]
    assert [bool(crumb.href) for crumb in crumbs] == [True, True, False]
    for missing in ("path=nothing", "path=../", "path=README.md"):
        assert user_client.get(url(shop, "folder", missing)).status_code == 404


def test_it_lists_definitions_and_whole_word_mentions_of_a_name(user_client: Client, indexed: Repository) -> None:
    page = user_client.get(url(indexed, "references", "path=shop/orders.py&name=cancel_order"))
    found = {
        f"{file.folder}/{file.name}": [(place.rows[0].number, place.note) for place in file.places]
        for file in page.context["files"]
    }
    assert found["shop/orders.py"] == found["shop/copy/orders.py"] == [(2, "definition"), (8, "")]
    assert found["web/keys.py"] == [(2, "")]
    assert "hunter2" not in page.content.decode()
    for name in ("", "a b", "nothing_like_it", "<script>alert(1)</script>", "x" * 500):
        nothing = user_client.get(url(indexed, "references", urlencode({"name": name}))).content.decode()
        assert "is not written anywhere" in nothing
        assert "<script>alert" not in nothing


def test_it_finds_similar_code_elsewhere_but_not_itself(
    user_client: Client, indexed: Repository, settings: Settings
) -> None:
    start = ORDERS.index("def refund_all")
    settings.SIMILAR_MINIMUM_COSINE = 0.1
    page = user_client.get(url(indexed, "similar", f"path=shop/orders.py&bytes={start}-{len(ORDERS)}"))
    places = [(file.folder, file.name) for file in page.context["files"]]
    assert ("shop/copy", "orders.py") in places
    by_lines = user_client.get(url(indexed, "similar", "path=shop/orders.py&lines=7-8"))
    assert [(file.folder, file.name) for file in by_lines.context["files"]] == places
    settings.SIMILAR_MINIMUM_COSINE = 1.1
    nothing = user_client.get(url(indexed, "similar", "path=shop/orders.py&lines=7-8")).content.decode()
    assert "Nothing indexed is close to lines 7–8" in nothing


def test_it_marks_a_citation_whose_lines_changed_since(user_client: Client, user: User, shop: Repository) -> None:
    message = ask(user, shop, "shop/orders.py", "return order.refund()")
    old = move_on(shop, {"shop/orders.py": ORDERS.replace("order.refund()", "order.refund(all=True)")})
    page = user_client.get(f"/c/{message.conversation_id}/").content.decode()
    assert 'data-changed="changed"' in page
    view = user_client.get(url(shop, "blob", "path=shop/orders.py&bytes=0-150", old)).content.decode()
    assert "1 commit behind" in view
    assert "These lines changed in 1 newer commit." in view
    changes = user_client.get(url(shop, "changes", "path=shop/orders.py", old)).content.decode()
    assert '<li class="add"><span class="ln">+4</span><span>+        return order.refund(all=True)' in changes


def test_it_marks_nothing_when_the_lines_only_moved(user_client: Client, user: User, shop: Repository) -> None:
    message = ask(user, shop, "shop/orders.py", "return order.refund()")
    old = move_on(shop, {"shop/orders.py": "# moved\n" + ORDERS})
    assert "data-changed" not in user_client.get(f"/c/{message.conversation_id}/").content.decode()
    start = ORDERS.index("class")
    view = user_client.get(url(shop, "blob", f"path=shop/orders.py&bytes={start}-15", old))
    assert "bytes=8-23" in view.context["newest_url"]


def test_it_says_that_a_file_is_gone(user_client: Client, user: User, shop: Repository) -> None:
    message = ask(user, shop, "shop/orders.py", "return order.refund()")
    old = move_on(shop, {"shop/orders.py": None})
    assert 'data-changed="gone"' in user_client.get(f"/c/{message.conversation_id}/").content.decode()
    assert "This file is gone" in user_client.get(url(shop, "blob", "path=shop/orders.py", old)).content.decode()


def test_it_masks_secrets_in_what_changed(user_client: Client, shop: Repository) -> None:
    old = move_on(shop, {"web/keys.py": "password = 'swordfish9swordfish9'\n"})
    page = user_client.get(url(shop, "changes", "path=web/keys.py", old)).content.decode()
    assert "hunter2" not in page
    assert "swordfish" not in page


def test_it_gives_the_same_404_for_forbidden_and_unknown_code(other_client: Client, shop: Repository) -> None:
    pages = {
        other_client.get(url(shop, page, "path=shop/orders.py&bytes=0-9&name=x")).content
        for page in ("blob", "preview", "folder", "references", "changes", "similar")
    }
    unknown = other_client.get("/r/99999/x/blob/" + "0" * 40 + "?path=a")
    assert unknown.status_code == 404
    assert pages == {unknown.content}


def test_it_opens_places_beside_the_conversation(user_client: Client, user: User, shop: Repository) -> None:
    message = ask(user, shop, "shop/orders.py", "return order.refund()")
    address = url(shop, "references", f"path=shop/orders.py&name=refund&m={message.pk}")
    whole, fragment = user_client.get(address).content.decode(), user_client.get(address, headers=HTMX).content.decode()
    assert 'aria-label="Your question"' in whole
    assert "<html" not in fragment
    assert f"m={message.pk}" in fragment


def test_it_lists_blobs_and_folders_with_one_process(shop: Repository) -> None:
    assert shop.current_index is not None
    at = (shop.mirror.path, shop.current_index.commit)
    found = git.blobs_at(*at, [b"README.md", b"shop", b"nothing", b"shop/orders.py", b""])
    assert sorted(found) == [b"README.md", b"shop/orders.py"]
    assert git.blobs_at(*at, []) == {}


def test_it_offers_branches_and_kept_commits_that_have_the_file(client: Client, user: User, shop: Repository) -> None:
    client.force_login(user)
    old = shop.current_index.commit
    work_tree = Path(shop.mirror.url)
    newest = commit_files(work_tree, {"shop/orders.py": ORDERS + "\n", "shop/new.py": "x = 1\n"})
    git.ensure_mirror(shop.mirror)
    make_index(shop, current=True, commit=newest)
    stable = Repository.objects.create(mirror=shop.mirror, name="acme/shop-stable", ref="stable", owner=user)
    make_index(stable, current=True, commit=old)
    secret = Repository.objects.create(mirror=shop.mirror, name="acme/secret", ref="secret", visibility="private")
    make_index(secret, current=True, commit=old)
    html = client.get(url(shop, "blob", "path=shop/orders.py&bytes=0-10")).content.decode()
    menu = html[html.index('class="pop versions"') : html.index("</details>")]
    assert [line for line in ("stable", "acme/shop-stable", newest[:7], old[:7]) if line not in menu] == []
    assert "secret" not in menu
    assert f"/blob/{old}?path=shop/orders.py" in menu
    only_new = client.get(url(shop, "blob", "path=shop/new.py")).content.decode()
    assert 'class="pop versions"' not in only_new
    folder = client.get(url(shop, "folder", "path=shop")).content.decode()
    assert f"/folder/{old}?path=shop" in folder
