from __future__ import annotations

import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from assistant import conversations
from assistant.models import IdempotentReply, Message
from indexing.models import Repository
from tests.assistant.api_client import ApiClient
from tests.assistant.scripted import SESSIONS, hit_for, real_repository
from tests.factories import make_repository

pytestmark = pytest.mark.django_db
KEY = {"Idempotency-Key": "build-42"}


@pytest.fixture
def api(user: User) -> ApiClient:
    return ApiClient(user, ["read", "write"])


@pytest.fixture
def mine(user: User) -> Repository:
    return make_repository("acme/web", owner=user)


def renew(api: ApiClient, repository: Repository, **headers: str) -> Any:
    return api.post(f"/repositories/{repository.pk}/webhook/secret", headers=KEY | headers)


def test_it_gives_the_first_reply_again_and_does_nothing(api: ApiClient, mine: Repository) -> None:
    first, again = renew(api, mine), renew(api, mine)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json()["secret"] == again.json()["secret"]
    assert again["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first
    assert renew(api, mine, **{"Idempotency-Key": "other"}).json() != first.json()


def test_it_refuses_another_request_under_the_key(api: ApiClient, mine: Repository) -> None:
    renew(api, mine)
    response = api.post("/repositories", {"source": "https://github.com/acme/new"}, headers=KEY)
    assert response.status_code == 409
    assert "another request" in response.json()["error"]["message"]


def test_it_keeps_tokens_apart(api: ApiClient, mine: Repository, user: User) -> None:
    first = renew(api, mine)
    assert renew(ApiClient(user, ["write"]), mine).json() != first.json()


def test_it_repeats_a_refusal_as_well(api: ApiClient) -> None:
    for _ in range(2):
        response = api.post("/repositories", {"source": "ext::sh -c id"}, headers=KEY)
        assert response.status_code == 422
    assert response["Idempotency-Replayed"] == "true"


def test_it_forgets_a_reply_that_failed_on_our_side(
    api: ApiClient, mine: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("indexing.webhook_api.new_webhook_secret", lambda: 1 / 0)
        assert renew(api, mine).status_code == 500
    assert renew(api, mine).status_code == 200


def test_it_refuses_while_the_first_is_being_worked_on_and_takes_over_from_a_dead_one(
    api: ApiClient, mine: Repository
) -> None:
    renew(api, mine)
    IdempotentReply.objects.update(status=None)
    assert renew(api, mine).status_code == 409
    IdempotentReply.objects.update(created_at=timezone.now() - timedelta(minutes=3))
    assert renew(api, mine).status_code == 200


def test_it_forgets_after_a_day(api: ApiClient, mine: Repository) -> None:
    first = renew(api, mine)
    IdempotentReply.objects.update(created_at=timezone.now() - timedelta(days=1, minutes=1))
    assert renew(api, mine).json() != first.json()


def test_it_repeats_nothing_that_may_not_be_read_any_more(api: ApiClient, mine: Repository, other_user: User) -> None:
    first = renew(api, mine)
    mine.owner, mine.visibility = other_user, "private"
    mine.save()
    again = renew(api, mine)
    assert again.status_code == 409
    assert first.json()["secret"] not in again.content.decode()


def test_it_stops_an_answer_again_rather_than_repeat_what_was_read(
    user: User, other_user: User, tmp_path: Path
) -> None:
    """The reply to a stop holds the answer so far; who lost the right to its sources must not get it again."""
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS}, owner=user, visibility="private")
    message = conversations.start_message(user, "Where?", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, "src/sessions.py", "def sign")])
    ending = conversations.Ending(Message.State.DONE, [], answer="In `sign` [1].", cited=[1])
    conversations.finish(message.pk, 1, ending)
    api = ApiClient(user, ["ask"])
    stop = f"/messages/{message.pk}/stop"
    assert api.post(stop, headers=KEY).json()["answer"] == "In `sign` [1]."
    repository.owner = other_user
    repository.save()
    again = api.post(stop, headers=KEY)
    assert (again.status_code, "sign" in again.content.decode()) == (202, False)
    assert not IdempotentReply.objects.exclude(body="").exists()
    assert api.post(f"/messages/{message.pk}/feedback", {"helpful": True}, headers=KEY).status_code == 409
