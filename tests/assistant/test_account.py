from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from assistant import tokens
from assistant.models import ApiToken
from tests.factories import make_repository

pytestmark = pytest.mark.django_db
PAGE = "/account/tokens/"
FORM = {"name": "ci", "scopes": ["read", "ask"], "repositories": "", "days": "90"}


def secret_in(html: str) -> str:
    found = re.search(r"cba_[\w-]{40,}", html)
    return found[0] if found else ""


def test_it_shows_a_new_token_once(user_client: Client, user: User) -> None:
    made = user_client.post(PAGE, FORM)
    secret = secret_in(made.content.decode())
    token = tokens.find(secret)
    assert token is not None
    assert (token.user, token.scopes, token.restricted) == (user, ["read", "ask"], False)
    assert "no-store" in made["Cache-Control"]
    assert not secret_in(user_client.get(PAGE).content.decode())


def test_it_restricts_a_token_to_repositories_named(user_client: Client) -> None:
    make_repository("acme/web")
    user_client.post(PAGE, FORM | {"repositories": "@acme/web"})
    token = ApiToken.objects.get()
    assert token.restricted
    assert [row.name for row in token.repositories.all()] == ["acme/web"]


def test_it_does_not_tell_a_forbidden_name_from_an_unknown_one(user_client: Client, other_user: User) -> None:
    make_repository("acme/secret", owner=other_user, visibility="private")
    for name in ("acme/secret", "acme/nowhere"):
        refused = user_client.post(PAGE, FORM | {"repositories": name})
        assert refused.status_code == 422
        assert f"There is no repository {name}." in refused.content.decode()
    assert not ApiToken.objects.exists()


def test_it_gives_the_rights_of_staff_to_staff_only(user_client: Client, staff_client: Client) -> None:
    assert user_client.post(PAGE, FORM | {"scopes": ["admin"]}).status_code == 422
    assert staff_client.post(PAGE, FORM | {"scopes": ["admin"]}).status_code == 200


def test_it_asks_for_a_name_and_a_scope(user_client: Client) -> None:
    assert user_client.post(PAGE, {"days": "90"}).status_code == 422
    assert not ApiToken.objects.exists()


def test_it_revokes_only_the_tokens_of_the_person(user_client: Client, other_client: Client, user: User) -> None:
    token, secret = tokens.create(user, "ci", scopes=["read"])
    assert other_client.post(f"{PAGE}{token.pk}/revoke/").status_code == 404
    assert tokens.find(secret) is not None
    user_client.post(f"{PAGE}{token.pk}/revoke/")
    assert tokens.find(secret) is None


def test_it_lists_the_tokens_of_the_person_only(other_client: Client, user: User) -> None:
    tokens.create(user, "robot of somebody else", scopes=["read"])
    assert "robot of somebody else" not in other_client.get(PAGE).content.decode()


def test_it_lets_team_leads_revoke_a_leaked_token_in_the_admin(client: Client, user: User, other_user: User) -> None:
    other_user.is_staff = True
    other_user.save()
    other_user.user_permissions.set(Permission.objects.filter(codename__in=["view_apitoken", "change_apitoken"]))
    client.force_login(other_user)
    token, secret = tokens.create(user, "ci", scopes=["read"])
    client.post("/admin/assistant/apitoken/", {"action": "revoke_tokens", "_selected_action": [token.pk]})
    assert tokens.find(secret) is None
