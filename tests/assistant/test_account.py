from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from assistant import tokens
from assistant.models import ApiToken
from indexing.models import AuditEvent, Repository
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


def test_it_makes_a_service_token_that_outlives_who_made_it(staff: User, staff_client: Client) -> None:
    secret_one = make_repository("acme/secret", visibility="private")
    make_repository("acme/other-secret", visibility="private")
    public = make_repository("acme/web")
    named = FORM | {"service": "on", "repositories": "acme/secret acme/web", "scopes": ["read", "admin"]}
    token = tokens.find(secret_in(staff_client.post(PAGE, named).content.decode()))
    whole = tokens.find(secret_in(staff_client.post(PAGE, FORM | {"service": "on"}).content.decode()))
    assert token is not None
    assert whole is not None
    assert (token.user.get_username(), whole.user.get_username()) == ("service-ci", "service-ci-2")
    assert (token.scopes, token.user.is_staff, token.user.has_usable_password()) == (["read"], False, False)
    staff.delete()
    for row, readable in ((token, {secret_one, public}), (whole, {public})):
        assert tokens.valid().filter(pk=row.pk).exists()
        assert set(Repository.objects.visible_to(tokens.principal_of(row))) == readable
    assert AuditEvent.objects.filter(actor="staff", action="service token made").count() == 2


def test_it_takes_all_rights_from_a_service_account_whose_last_token_is_revoked(staff_client: Client) -> None:
    secret_one = make_repository("acme/secret", visibility="private")
    staff_client.post(PAGE, FORM | {"service": "on", "repositories": "acme/secret"})
    token = ApiToken.objects.get()
    assert "Service</span>" in staff_client.get(PAGE).content.decode()
    staff_client.post(f"{PAGE}{token.pk}/revoke/")
    assert not secret_one.members.exists()
    assert not User.objects.get(username="service-ci").is_active
    assert AuditEvent.objects.filter(action="token revoked").count() == 1


def test_it_lets_only_staff_make_and_revoke_service_tokens(user_client: Client, user: User, staff: User) -> None:
    user_client.post(PAGE, FORM | {"service": "on"})
    assert ApiToken.objects.get().user == user
    token, _secret = tokens.create_service(staff, "bot", scopes=["read"])
    assert user_client.post(f"{PAGE}{token.pk}/revoke/").status_code == 404
    assert "service-bot" not in user_client.get(PAGE).content.decode()


def test_it_does_not_name_repositories_that_a_person_cannot_read_any_more(user_client: Client, user: User) -> None:
    lost = make_repository("acme/lost", owner=user, visibility="private")
    tokens.create(user, "mine", scopes=["read"], repositories=[lost, make_repository("acme/kept")])
    Repository.objects.filter(pk=lost.pk).update(owner=None)
    page = user_client.get(PAGE).content.decode()
    assert "acme/lost" not in page
    assert "acme/kept" in page
    assert "some that you cannot read" in page
