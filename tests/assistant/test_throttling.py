"""Guessing passwords: limits by name and address that hold at every door and for several processes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from assistant.models import SignInAttempt
from assistant.throttling import LIMITS
from tests.factories import make_user

pytestmark = pytest.mark.django_db
PASSWORD = "a long one for tests"


def attempt(name: str, password: str, *, address: str = "10.0.0.1", door: str = "/sign-in/") -> int:
    data = {"username": name, "password": password}
    return Client().post(door, data, REMOTE_ADDR=address).status_code


def test_it_refuses_the_right_password_after_five_wrong_ones_and_says_for_how_long() -> None:
    make_user("reader", password=PASSWORD)
    assert [attempt("reader", "wrong") for _ in range(6)] == [200] * 5 + [429]
    refused = Client().post("/sign-in/", {"username": "reader", "password": PASSWORD}, REMOTE_ADDR="10.0.0.1")
    assert refused.status_code == 429
    assert "That was tried too often. Wait 15 min" in refused.content.decode()
    assert 0 < int(refused["Retry-After"]) <= 901
    assert attempt("reader", PASSWORD, address="10.0.0.2") == 302
    SignInAttempt.objects.update(at=timezone.now() - timedelta(minutes=16))
    assert attempt("reader", PASSWORD) == 302


def test_it_counts_whatever_the_case_of_the_name_and_whether_there_is_one() -> None:
    assert [attempt(name, "wrong") for name in ("Nobody", "nobody", "NOBODY", "nobody", "nobody", "nobody")][-1] == 429


def test_it_forgets_wrong_tries_after_a_right_one() -> None:
    make_user("reader", password=PASSWORD)
    for _ in range(3):
        assert [attempt("reader", "wrong") for _ in range(4)] == [200] * 4
        assert attempt("reader", PASSWORD) == 302


def test_it_limits_one_address_that_tries_many_names() -> None:
    answers = [attempt(f"name{number}", "wrong") for number in range(LIMITS["address"] + 1)]
    assert answers == [200] * LIMITS["address"] + [429]
    assert attempt("name0", "wrong", address="10.0.0.2") == 200


def test_it_limits_many_addresses_that_try_one_name() -> None:
    answers = [attempt("reader", "wrong", address=f"10.0.1.{n}") for n in range(LIMITS["name"] + 1)]
    assert answers == [200] * LIMITS["name"] + [429]


def test_it_limits_the_admin_as_well() -> None:
    make_user("lead", password=PASSWORD, is_staff=True)
    for _ in range(5):
        attempt("lead", "wrong", door="/admin/login/")
    assert attempt("lead", PASSWORD, door="/admin/login/") == 200
    assert attempt("lead", PASSWORD) == 429


def test_it_keeps_no_name_that_was_typed() -> None:
    attempt("my password by mistake", "wrong")
    assert SignInAttempt.objects.count() == 3
    assert "mistake" not in str(list(SignInAttempt.objects.values()))


@pytest.mark.django_db(transaction=True)
def test_it_counts_tries_at_the_same_moment() -> None:
    def guess(number: int) -> int:
        try:
            return attempt("reader", f"wrong {number}")
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(guess, range(16)))
    assert answers.count(200) <= LIMITS["name and address"]
