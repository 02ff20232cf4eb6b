"""Any question whatever gets hits or a clear sentence: never an exception, and no hit is lost to punctuation."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st

from indexing.access import Principal
from indexing.index_format import MANIFEST
from search.errors import EmptyQuestion
from search.pipeline import search
from search.results import Scope
from tests.search.conftest import Indexed

OPERATOR = Principal.operator()
SHOP = {"shop/orders.py": 'def cancel_order(order):\n    """Refund the payment."""\n    return refund(order)\n'}
OPERATORS = "\"'`/\\()[]{}<>*?+^$|&!~@#%:;,.=-–…\u202e\u200f\u0000\t\n"

punctuation = st.text(st.sampled_from(OPERATORS), max_size=4)
anything = st.one_of(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(["order", "AND", "NOT", "path:", "@", "lang:py", "/a(b/", '"', "مرحبا", "订单", "\u202e", "("])
    ).map(" ".join),
)


@pytest.fixture
def shop(indexed: Indexed) -> Iterator[None]:
    indexed("acme/shop", SHOP)
    return


quick = limits(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@quick
@given(question=anything)
def test_any_text_is_answered(shop: None, question: str) -> None:
    try:
        result = search(question, principal=OPERATOR)
    except EmptyQuestion:
        assert not question.strip()
        return
    assert result.trace.readable_repositories == 1


@quick
@given(before=punctuation, between=punctuation, after=punctuation)
def test_punctuation_loses_no_hit(shop: None, before: str, between: str, after: str) -> None:
    question = f"{before} refund {between} order {after}"
    result = search(question, principal=OPERATOR)
    said = " ".join(result.trace.notices)
    assert result.hits or "/" in question or "could not search" in said or "No line" in said


@pytest.mark.parametrize(
    "question",
    ["cancel_order " * 1600, "x" * 20_000, "(" * 20_000, "‮ cancel_order ‬", "أين cancel_order؟", "cancel_order\x00"],
)
def test_long_and_reversed_texts_find_what_they_name(shop: None, question: str) -> None:
    hits = search(question, principal=OPERATOR).hits
    assert [hit.symbol for hit in hits[:1]] == (["cancel_order"] if "cancel_order" in question else [])


@pytest.mark.parametrize(
    "question",
    [
        '"cancel_order \ud800"',
        "/cancel\udcff/",
        'Why?\n  File "/\ud800/orders.py", line 1, in x\nE: cancel_order',
        "\ud83d",
    ],
)
def test_half_a_character_is_no_error(shop: None, question: str) -> None:
    result = search(question, principal=OPERATOR, scope=Scope(path="\udcff"))
    assert result.hits or "cancel_order" not in question


def test_nothing_readable_gives_nothing(shop: None) -> None:
    result = search("refund", principal=Principal(user_id=None))
    assert (result.hits, result.trace.readable_repositories) == ((), 0)


@pytest.mark.parametrize(
    "scope", [Scope((999,)), Scope(path_filter="../.."), Scope(languages=("no",)), Scope(path="\0")]
)
def test_a_scope_without_anything_gives_nothing_or_hits(shop: None, scope: Scope) -> None:
    assert len(search("refund", principal=OPERATOR, scope=scope).hits) <= 1


def test_a_manifest_that_goes_away_is_said(indexed: Indexed) -> None:
    shop = indexed("acme/shop", SHOP)
    search("refund", principal=OPERATOR)
    (shop.index_path / MANIFEST).unlink()
    result = search("refund", principal=OPERATOR)
    assert "acme/shop could not be searched" in result.trace.notices[0]
