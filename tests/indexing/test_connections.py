"""What `indexing.connections` gives back, and when it must not."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from indexing.connections import let_go


@pytest.mark.django_db(transaction=True)
def test_it_gives_back_the_connection_but_not_within_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[str] = []
    monkeypatch.setattr(connection, "close", lambda: given_back.append(connection.alias))
    with transaction.atomic():
        let_go()
    assert given_back == []
    let_go()
    assert given_back == ["default"]
