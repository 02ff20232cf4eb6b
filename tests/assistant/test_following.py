"""Who may still follow an answer: looked up together, and newly after every question."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from assistant import following, tokens
from assistant.models import ApiToken, Citation, Message
from indexing.models import Repository
from tests.factories import make_conversation, make_message, make_repository

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def token(user: User) -> ApiToken:
    return tokens.create(user, "test", scopes=["ask"])[0]


def cited(owner: User, repository: Repository) -> Message:
    message = make_message(make_conversation(owner), attempt=1)
    Citation.objects.create(
        message=message,
        attempt=1,
        number=1,
        repository=repository,
        repository_name=repository.name,
        path=b"a.py",
        start_byte=0,
        end_byte=1,
        start_line=1,
        end_line=1,
        score=1.0,
    )
    return message


async def test_it_answers_each_of_those_who_ask_together(user: User, other_user: User, token: ApiToken) -> None:
    public = await sync_to_async(make_repository)()
    private = await sync_to_async(make_repository)(owner=other_user, visibility="private")
    asked = [(user, public), (user, private), (other_user, public)]
    messages = [await sync_to_async(cited)(owner, repository) for owner, repository in asked]
    found = await asyncio.gather(*(following.may_follow(message, token) for message in messages))
    assert found == [True, False, False]


async def test_it_looks_again_for_whoever_asks_while_a_look_is_under_way(
    user: User, token: ApiToken, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = await sync_to_async(make_message)(await sync_to_async(make_conversation)(user))
    looks: list[int] = []
    look, under_way = following._allowed, threading.Event()

    def counted(followers: Collection[following._Follower]) -> set[following._Follower]:
        looks.append(len(followers))
        under_way.set()
        return look(followers)

    monkeypatch.setattr(following, "_allowed", counted)
    first = asyncio.create_task(following.may_follow(message, token))
    await asyncio.to_thread(under_way.wait, 10)
    await sync_to_async(tokens.revoke)(token)
    later = await asyncio.gather(*(following.may_follow(message, token) for _ in range(5)))
    assert later == [False] * 5
    await first
    assert looks == [1, 1]


async def test_it_tells_whoever_asked_what_went_wrong(token: ApiToken, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> set[following._Follower]:
        raise OSError("no database")

    monkeypatch.setattr(following, "_allowed", fail)
    with pytest.raises(OSError, match="no database"):
        await following.may_follow(Message(), token)


async def test_it_lets_nobody_follow_without_a_token() -> None:
    assert not await following.may_follow(Message(), None)
