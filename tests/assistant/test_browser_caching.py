from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("/", "private, no-store"),
        ("/search/", "private, no-store"),
        ("/account/tokens/", "max-age=0, no-cache, no-store, must-revalidate, private"),
        ("/cli/codebase.py", None),
    ],
)
def test_it_keeps_pages_out_of_browsers_and_leaves_other_answers_alone(
    user_client: Client, url: str, header: str | None
) -> None:
    assert user_client.get(url).headers.get("Cache-Control") == header


@pytest.mark.django_db(transaction=True)
async def test_it_does_so_on_the_event_loop(user: User) -> None:
    client = AsyncClient()
    await client.aforce_login(user)
    assert (await client.get("/")).headers["Cache-Control"] == "private, no-store"
