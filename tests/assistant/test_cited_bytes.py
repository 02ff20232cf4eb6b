"""Every citation that is shown opens the bytes that the model saw, whatever the file's encoding and line ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from assistant.models import Citation
from indexing import embedding, llm
from indexing.building import build_now
from tests.assistant.cited_bytes import CitingModel, answered, no_structured_reply, wrong_citations
from tests.factories import make_repo, make_repository, make_user
from tests.indexing.stub_embedder import StubEmbedder
from tests.re_encoding import re_encoded

pytestmark = pytest.mark.django_db(transaction=True)

ORDERS = '''"""Orders."""


class OrderBook:
    """Every order, by number."""

    def cancel_order(self, number):
        """Cancel an order."""
        order = self.orders[number]
        order.state = "cancelled"
        return order

    def refund_order(self, number):
        """Refund an order."""
        return self.payments.refund(number)


def count_orders(book):
    return len(book.orders)
'''
QUESTIONS = ("How is an order cancelled?", "How is an order refunded?", "What does count_orders do?", "OrderBook")


def test_it_opens_the_bytes_that_the_model_saw(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, client: Client
) -> None:
    settings.LLM_MODEL, settings.LLM_CONTEXT_TOKENS, settings.EVIDENCE_PASSAGES = "ollama/stub", 100_000, 20
    model, stub = CitingModel(), StubEmbedder()
    monkeypatch.setattr(llm, "stream", model)
    monkeypatch.setattr(llm, "structured", no_structured_reply)
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    files = re_encoded({"shop/orders.py": ORDERS})
    repository = make_repository("acme/shop", url=str(make_repo(tmp_path, dict(files))))
    build_now(repository)
    user = make_user("asker")
    client.force_login(user)
    opened, wrong = 0, []
    for question in QUESTIONS:
        count, problems = wrong_citations(answered(user, question, repository), client, model)
        opened += count
        wrong += problems
    assert not wrong, "\n".join(wrong)
    assert opened >= 4 * len(files)
    encodings = set(Citation.objects.values_list("encoding", flat=True))
    assert {"utf-8", "utf-16-le", "utf-16-be", "cp1251", "cp932"} <= encodings
