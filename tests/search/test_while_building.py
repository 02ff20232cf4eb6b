"""Questions that come while an index is made anew are answered from the old one, until the new one takes its place."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from indexing import collecting, embedding
from indexing.access import Principal
from indexing.building import build_now
from search.pipeline import search
from tests.factories import commit_files, head
from tests.indexing.stub_embedder import StubEmbedder
from tests.search.conftest import Indexed

pytestmark = pytest.mark.django_db(transaction=True)  # batches are embedded in a thread, which asks as well

SHOP: dict[str, str | bytes] = {
    f"shop/orders_{number}.py": f"def cancel_order_{number}(order):\n    return order.cancel({number})\n"
    for number in range(6)
}
QUESTION = "How is cancel_order_3 done?"


def test_it_answers_every_question_from_the_old_index_until_the_new_one_is_there(
    indexed: Indexed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = indexed("acme/shop", SHOP)
    repo = tmp_path / "acme-shop"
    old = head(repo)
    new = commit_files(repo, {"shop/orders_3.py": "def cancel_order_3(order):\n    return order.refund(3)\n"})
    answers: list[str] = []

    def ask() -> None:
        hits = search(QUESTION, principal=Principal.operator()).hits
        if threading.current_thread() is not threading.main_thread():
            connections.close_all()
        answers.append(hits[0].commit if hits and hits[0].display_path == "shop/orders_3.py" else "nothing")

    class Asking(StubEmbedder):
        def embed_documents(self, texts: Any) -> Any:
            ask()
            return super().embed_documents(texts)

    chunk_file = collecting.chunk_file
    monkeypatch.setattr(collecting, "chunk_file", lambda source: (ask(), chunk_file(source))[1])
    other = Asking(revision="2")  # another model, so that everything is embedded again
    monkeypatch.setattr(embedding, "get_embedder", lambda: other)
    build_now(repository, rebuild=True)
    ask()
    assert answers[-1] == new
    assert answers == sorted(answers, key=[old, new].index)  # one switch
    assert len(answers) > len(SHOP)
