from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from assistant import sign_in
from assistant.models import SignInLink
from tests.factories import make_user

pytestmark = pytest.mark.django_db


def test_it_signs_in_once(client: Client, user: User) -> None:
    token = sign_in.make_link_token(user)
    assert client.get(f"/sign-in/{token}/").status_code == 302
    assert client.session["_auth_user_id"] == str(user.pk)
    again = Client().get(f"/sign-in/{token}/")
    assert again.status_code == 410
    assert sign_in.EXPIRED_LINK in again.content.decode()


def test_it_refuses_a_link_past_its_time(user: User) -> None:
    token = sign_in.make_link_token(user)
    SignInLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert sign_in.redeem(token) is None


def test_it_refuses_a_made_up_token_and_a_person_who_left(user: User) -> None:
    token = sign_in.make_link_token(user)
    User.objects.update(is_active=False)
    assert sign_in.redeem(token) is None
    assert sign_in.redeem("made-up") is None


def test_it_sends_the_whole_page_to_the_form_when_a_fragment_finds_the_session_ended(client: Client) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": "http://testserver/search/?q=a"}
    response = client.get("/repositories/1/row/", headers=headers, follow=True)
    assert response.headers["HX-Redirect"] == "/sign-in/?next=%2Fsearch%2F%3Fq%3Da"
    elsewhere = client.get("/sign-in/", headers=headers | {"HX-Current-URL": "http://evil.test/x"})
    assert elsewhere.headers["HX-Redirect"] == "/sign-in/?next=%2F"


def test_it_stores_no_token(user: User) -> None:
    token = sign_in.make_link_token(user)
    assert token not in str(SignInLink.objects.values().get())


def test_it_does_not_use_up_a_link_that_a_browser_only_looks_at(client: Client, user: User) -> None:
    token = sign_in.make_link_token(user)
    client.get(f"/sign-in/{token}/", headers={"Sec-Purpose": "prefetch;prerender"})
    client.head(f"/sign-in/{token}/")
    assert sign_in.redeem(token) == user


def test_it_makes_one_operator_without_a_password() -> None:
    make_user("operator")
    operator = sign_in.ensure_operator()
    assert (operator.username, operator.is_superuser, operator.has_usable_password()) == ("operator1", True, False)
    assert sign_in.ensure_operator() == operator


def test_it_prints_a_link_for_a_person(user: User) -> None:
    out = StringIO()
    call_command("sign_in_link", user="user", url="https://code.example/", json=True, stdout=out)
    printed = json.loads(out.getvalue())
    assert printed["user"] == "user"
    assert printed["link"].startswith("https://code.example/sign-in/")
    assert sign_in.redeem(printed["link"].split("/")[-2]) == user


def test_it_names_the_person_it_does_not_know() -> None:
    with pytest.raises(CommandError, match="no active user 'nobody'"):
        call_command("sign_in_link", user="nobody")
