from __future__ import annotations

from dataclasses import replace

import pytest

from search.repo_selection import choose
from search.results import Scope, ScopedSet
from search.retrieval import Query
from search.wording import wording
from tests.search.conftest import Indexed, corpus_of


def asked(text: str) -> list[Query]:
    return [Query("english", 1.0, wording(text))]


@pytest.fixture
def sources(indexed: Indexed) -> list:
    shop = indexed("acme/shop", {"orders.py": "def cancel_order():\n    return refund\n"})
    mail = indexed("acme/mail", {"send.py": "def send_message(to):\n    return smtp.connect(to)\n"})
    fork = indexed("acme/fork", {"orders.py": "def cancel_order():\n    return refund\n"})
    return list(corpus_of(shop, mail, fork).sources)


def names(question: str, sources: list, *, limit: int = 2) -> list[str]:
    return [choice.name for choice in choose(sources, asked(question), scope=Scope(), limit=limit)]


def test_it_chooses_by_the_best_chunk(sources: list) -> None:
    assert names("send a message by smtp", sources, limit=1) == ["acme/mail"]


def test_it_breaks_ties_by_name(sources: list) -> None:
    assert names("refund an order", sources) == ["acme/fork", "acme/shop"]


def test_it_prefers_golden_among_equals(sources: list) -> None:
    golden = [source if source.name != "acme/shop" else _golden(source) for source in sources]
    assert names("refund an order", golden)[0] == "acme/shop"


def test_it_does_not_let_golden_beat_a_clearly_better_one(sources: list) -> None:
    golden = [source if source.name != "acme/shop" else _golden(source) for source in sources]
    assert names("send a message by smtp", golden)[0] == "acme/mail"


def test_it_takes_a_repository_that_the_question_names(sources: list) -> None:
    assert names("how does mail refund an order", sources)[0] == "acme/mail"


def test_it_keeps_every_pinned_repository_and_says_so(sources: list) -> None:
    choices = choose(sources[:1], asked("anything"), scope=Scope((sources[0].repository_id,)), limit=8)
    assert [(choice.name, choice.pinned, choice.reasons) for choice in choices] == [
        ("acme/shop", True, ("pinned with @",))
    ]


def test_it_says_which_set_brought_a_repository_in(sources: list) -> None:
    shop, mail = sources[0].repository_id, sources[1].repository_id
    scope = Scope((shop, mail), sets=(ScopedSet("trade", (shop,)),))
    choices = choose(sources[:2], asked("anything"), scope=scope, limit=8)
    assert [choice.reasons for choice in choices] == [("in @set/trade",), ("pinned with @",)]


def test_it_prefers_a_set_whose_topic_the_question_names(sources: list) -> None:
    about = [
        replace(source, topics=(("refunds", "trade"),)) if source.name == "acme/shop" else source for source in sources
    ]
    assert names("refund an order", about)[0] == "acme/shop"
    first = choose(about, asked("refund an order"), scope=Scope(), limit=1)[0]
    assert first.reasons[0] == "@set/trade is about refunds"
    assert names("cancel an order", about)[0] == "acme/fork"


def test_it_chooses_nothing_from_nothing() -> None:
    assert choose([], asked("anything"), scope=Scope(), limit=8) == []


def _golden(source):
    return replace(source, golden=True)
