from __future__ import annotations

from dataclasses import replace

import pytest

from indexing.access import Principal
from search.index_cache import opened
from search.readable import Library, Readable, readable
from search.repo_selection import choose
from search.results import Scope, ScopedSet, SearchOptions
from search.retrieval import Query
from search.wording import wording
from tests.search.conftest import Indexed


def asked(text: str) -> list[Query]:
    return [Query("english", 1.0, wording(text))]


@pytest.fixture
def library(indexed: Indexed) -> Library:
    """acme/fork, acme/mail and acme/shop."""
    indexed("acme/shop", {"orders.py": "def cancel_order():\n    return refund\n"})
    indexed("acme/mail", {"send.py": "def send_message(to):\n    return smtp.connect(to)\n"})
    indexed("acme/fork", {"orders.py": "def cancel_order():\n    return refund\n"})
    return readable(Principal.operator(), Scope(), SearchOptions(), [])


def names(question: str, library: Library, *, limit: int = 2) -> list[str]:
    return [one.name for one in choose(library, asked(question), scope=Scope(), limit=limit).repositories]


def with_shop(library: Library, **changes: object) -> Library:
    changed = [one._replace(**changes) if one.name == "acme/shop" else one for one in library.repositories]
    return replace(library, repositories=tuple(changed))


def only(library: Library, *repositories: Readable) -> Library:
    return replace(library, repositories=repositories)


def test_it_chooses_by_the_best_chunk(library: Library) -> None:
    assert names("send a message by smtp", library, limit=1) == ["acme/mail"]


def test_it_breaks_ties_by_name(library: Library) -> None:
    assert names("refund an order", library) == ["acme/fork", "acme/shop"]


def test_it_prefers_golden_among_equals(library: Library) -> None:
    golden = with_shop(library, golden=True)
    assert names("refund an order", golden)[0] == "acme/shop"


def test_it_does_not_let_golden_beat_a_clearly_better_one(library: Library) -> None:
    golden = with_shop(library, golden=True)
    assert names("send a message by smtp", golden)[0] == "acme/mail"


def test_it_takes_a_repository_that_the_question_names(library: Library) -> None:
    assert names("how does mail refund an order", library)[0] == "acme/mail"


def test_it_tells_words_that_only_say_where_to_search(library: Library) -> None:
    def found(question: str, limit: int) -> frozenset[str]:
        return choose(library, asked(question), scope=Scope(), limit=limit).names

    assert found("how does mail refund an order", 2) == {"mail"}
    assert found("refund an order", 2) == frozenset()
    assert found("refund an order", 1) == {"fork"}  # everything in the only one is about it


def test_it_hands_on_what_it_looked_up(library: Library) -> None:
    chosen = choose(library, asked("send a message by smtp"), scope=Scope(), limit=2)
    found = {
        one.name: [bool(scores.any()) for (_, segment), scores in chosen.stem_scores.items() if segment in segments]
        for one in chosen.repositories
        for segments in [opened(one.index_path).segments]
    }
    assert found == {"acme/mail": [True], "acme/fork": [False]}


def test_it_keeps_every_pinned_repository_and_says_so(library: Library) -> None:
    shop = library.repositories[2]
    chosen = choose(only(library, shop), asked("anything"), scope=Scope((shop.repository_id,)), limit=8)
    assert [(choice.name, choice.pinned, choice.reasons) for choice in chosen.choices] == [
        ("acme/shop", True, ("pinned with @",))
    ]


def test_it_says_which_set_brought_a_repository_in(library: Library) -> None:
    _, mail, shop = library.repositories
    scope = Scope((shop.repository_id, mail.repository_id), sets=(ScopedSet("trade", (shop.repository_id,)),))
    chosen = choose(only(library, shop, mail), asked("anything"), scope=scope, limit=8)
    assert [choice.reasons for choice in chosen.choices] == [("in @set/trade",), ("pinned with @",)]


def test_it_prefers_a_set_whose_topic_the_question_names(library: Library) -> None:
    about = with_shop(library, topics=(("refunds", "trade"),))
    assert names("refund an order", about)[0] == "acme/shop"
    first = choose(about, asked("refund an order"), scope=Scope(), limit=1).choices[0]
    assert first.reasons[0] == "@set/trade is about refunds"
    assert names("cancel an order", about)[0] == "acme/fork"


def test_it_chooses_nothing_from_nothing(library: Library) -> None:
    assert choose(only(library), asked("anything"), scope=Scope(), limit=8).choices == ()
