from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from tests.assistant.api_client import ApiClient
from tests.search.conftest import Indexed

pytestmark = pytest.mark.django_db
SESSIONS = """API_KEY = "sk-proj-9fK2mQ8xVb3LwTz7RnYp4HcJ6sDgA1eU"


def sign_cookie(value):
    return value
"""
FILES: dict[str, str | bytes] = {"src/sessions.py": SESSIONS}


def test_it_finds_code_with_coordinates_and_text(indexed: Indexed, user: User) -> None:
    repository = indexed("acme/web", FILES)
    found = ApiClient(user, ["read"]).post("/search", {"question": "sign_cookie", "trace": True}).json()
    hit = next(hit for hit in found["hits"] if "sign_cookie" in hit["snippet"])
    assert (hit["repository_id"], hit["path"]) == (repository.pk, "src/sessions.py")
    assert hit["url"].startswith(
        f"http://testserver/r/{repository.pk}/acme-web/blob/{hit['commit']}?path=src/sessions.py"
    )
    assert found["trace"]["repositories"][0]["name"] == "acme/web"
    assert "9fK2mQ8xVb3L" not in str(found)


def test_it_searches_only_what_the_token_may_read(indexed: Indexed, user: User, other_user: User) -> None:
    web, shop = indexed("acme/web", FILES), indexed("acme/shop", FILES)
    indexed("acme/secret", FILES, owner=other_user, visibility="private")
    body = {"question": "sign_cookie"}
    whole = ApiClient(user, ["read"]).post("/search", body).json()
    assert {hit["repository_id"] for hit in whole["hits"]} <= {web.pk, shop.pk}
    narrow = ApiClient(user, ["read"], [shop]).post("/search", body | {"trace": True}).json()
    assert {hit["repository_id"] for hit in narrow["hits"]} == {shop.pk}
    assert "acme/web" not in str(narrow)


def test_it_does_not_tell_a_forbidden_repository_from_an_unknown_one(
    indexed: Indexed, user: User, other_user: User
) -> None:
    secret = indexed("acme/secret", FILES, owner=other_user, visibility="private")
    api = ApiClient(user, ["read"])
    for wanted in ("acme/secret", secret.pk, "acme/nowhere", 10**9):
        assert api.post("/search", {"question": "x", "repositories": [wanted]}).status_code == 404


def test_it_refuses_a_question_of_blanks(user: User, indexed: Indexed) -> None:
    assert ApiClient(user, ["read"]).post("/search", {"question": "  "}).status_code == 422
