from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from assistant import conversations, tokens
from assistant.models import ApiToken
from indexing.models import Repository
from tests.factories import make_conversation, make_repository

pytestmark = pytest.mark.django_db


def test_it_finds_a_token_by_its_text_and_stores_only_a_hash(user: User) -> None:
    token, secret = tokens.create(user, "ci", scopes=["read"])
    assert tokens.find(secret) == token
    assert secret not in str(ApiToken.objects.values().get())
    assert secret.startswith(token.prefix)


@pytest.mark.parametrize("secret", ["", "cba_made-up", "x" * 100_000, "\ud800"])
def test_it_finds_nothing_behind_a_made_up_text(user: User, secret: str) -> None:
    tokens.create(user, "ci", scopes=["read"])
    assert tokens.find(secret) is None


def test_it_refuses_a_revoked_token(user: User) -> None:
    token, secret = tokens.create(user, "ci", scopes=["read"])
    tokens.revoke(token)
    assert tokens.find(secret) is None


def test_it_refuses_a_token_past_its_time(user: User) -> None:
    _token, secret = tokens.create(user, "ci", scopes=["read"], lifetime=timedelta(days=1))
    assert tokens.find(secret) is not None
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert tokens.find(secret) is None


def test_it_refuses_the_token_of_a_person_who_left(user: User) -> None:
    _token, secret = tokens.create(user, "ci", scopes=["read"])
    User.objects.update(is_active=False)
    assert tokens.find(secret) is None


def test_it_notes_when_a_token_was_used_once_a_minute(user: User) -> None:
    _token, secret = tokens.create(user, "ci", scopes=["read"])
    tokens.find(secret)
    first = ApiToken.objects.get().last_used_at
    tokens.find(secret)
    assert first is not None
    assert ApiToken.objects.get().last_used_at == first


def test_it_reads_no_more_than_its_repositories(user: User) -> None:
    named, other = make_repository(), make_repository()
    token, _secret = tokens.create(user, "ci", scopes=["read"], repositories=[named])
    assert list(Repository.objects.visible_to(tokens.principal_of(token))) == [named]
    whole, _secret = tokens.create(user, "mine", scopes=["read"])
    assert set(Repository.objects.visible_to(tokens.principal_of(whole))) == {named, other}


def test_it_does_not_read_what_its_person_may_not(user: User, other_user: User) -> None:
    private = make_repository(owner=user, visibility="private")
    token, _secret = tokens.create(user, "ci", scopes=["read"], repositories=[private])
    Repository.objects.update(owner=other_user)
    assert not Repository.objects.visible_to(tokens.principal_of(token))


def test_it_reads_nothing_once_its_last_repository_is_gone(user: User) -> None:
    named, _other = make_repository(), make_repository()
    token, _secret = tokens.create(user, "ci", scopes=["read"], repositories=[named])
    named.delete()
    assert not Repository.objects.visible_to(tokens.principal_of(token))


def test_it_answers_as_the_token_that_began_the_conversation(user: User) -> None:
    named, other = make_repository(), make_repository()
    token, _secret = tokens.create(user, "ci", scopes=["ask"], repositories=[named])
    begun = make_conversation(user, token=token)
    assert list(Repository.objects.visible_to(conversations.principal_of(begun))) == [named]
    assert set(Repository.objects.visible_to(conversations.principal_of(make_conversation(user)))) == {named, other}


@pytest.mark.django_db(transaction=True)
def test_it_counts_exactly_when_many_count_at_once(user: User, settings: Settings) -> None:
    settings.API_REQUESTS_PER_MINUTE = 50
    token, _secret = tokens.create(user, "load", scopes=["read"])
    ApiToken.objects.update(minute=1, day=1)  # all of them meet the change of the minute

    def count(_number: int) -> bool:
        try:
            return not tokens.count_request(token).refusal
        finally:
            connection.close()

    with ThreadPoolExecutor(8) as workers:
        taken = list(workers.map(count, range(80)))
    assert sum(taken) == 50
    row = ApiToken.objects.get()
    assert (row.requests_in_minute, row.requests_in_day) == (80, 50)


def test_it_counts_in_the_minute_that_others_have_begun(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    token, _secret = tokens.create(user, "load", scopes=["read"])
    tokens.count_request(token)
    monkeypatch.setattr(time, "time", lambda: 60.0)  # a clock that is far behind
    assert tokens.count_request(token).remaining == 298
