"""What `indexing.connections` gives back, and when it must not."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from indexing.connections import let_go, return_to_pool


@pytest.mark.django_db(transaction=True)
def test_it_gives_back_the_connection_but_not_within_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(connection, "close", lambda: given_back.append(connection.alias))
    with transaction.atomic():
        let_go()
    assert given_back == []
    let_go()
    assert given_back == ["default"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("options", "given_back"), [({"pool": {"max_size": 8}}, ["default"]), ({}, [])])
def test_a_search_keeps_a_connection_that_no_pool_misses(
    options: dict[str, object], given_back: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(connection, "close", lambda: found.append(connection.alias))
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    return_to_pool()
    assert found == given_back
