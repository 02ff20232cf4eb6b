"""Whether those who follow answers may still: all who ask at a time are looked up together, as hundreds follow at once.

A look begins after it was asked for. It has a thread of its own, since a reader who waits for it is told nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import uuid
from collections import defaultdict
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from weakref import WeakKeyDictionary

from django.contrib.auth import get_user
from django.contrib.auth.models import User
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from assistant import conversations, tokens
from assistant.models import ApiToken, Message
from assistant.threads import in_thread

RECHECK_SECONDS = 5.0  # between looks at whether somebody may still follow
_LOOKS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="looks")


class _Follower(NamedTuple):
    message_id: uuid.UUID
    token_id: int


async def may_follow(message: Message, token: ApiToken | None) -> bool:
    """Whether the token is valid, its person's the message, and all of its sources readable."""
    if token is None:
        return False
    looks = _looks.setdefault(asyncio.get_running_loop(), _Looks())
    return await looks.ask(_Follower(message.pk, token.pk))


async def is_signed_in(session: SessionBase, user: User) -> bool:
    """Whether the browser's session has not ended since, nor its person's account or password changed."""
    return await in_thread(_is_signed_in, type(session)(session.session_key), user, executor=_LOOKS)


def _is_signed_in(session: SessionBase, user: User) -> bool:
    request = HttpRequest()
    request.session = session
    return get_user(request) == user


class _Looks:
    """Those of one event loop: who asks while one is under way waits for the next."""

    def __init__(self) -> None:
        self._asked: dict[_Follower, asyncio.Future[bool]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def ask(self, follower: _Follower) -> bool:
        loop = asyncio.get_running_loop()
        answer = self._asked.setdefault(follower, loop.create_future())
        if self._looking is None or self._looking.done():
            self._looking = loop.create_task(self._look(), context=contextvars.Context())
        return await asyncio.shield(answer)

    async def _look(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            try:
                allowed = await in_thread(_allowed, list(asked), executor=_LOOKS)
            except Exception as error:  # noqa: BLE001  whoever asked gets it
                for answer in asked.values():
                    answer.set_exception(error)
                continue
            for follower, answer in asked.items():
                answer.set_result(follower in allowed)


_looks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Looks] = WeakKeyDictionary()


def _allowed(followers: Collection[_Follower]) -> set[_Follower]:
    valid = tokens.valid().select_related("user").in_bulk({follower.token_id for follower in followers})
    messages = (
        Message.objects.select_related("conversation")
        .only("conversation", "conversation__owner")
        .in_bulk({follower.message_id for follower in followers})
    )
    theirs: dict[int, list[_Follower]] = defaultdict(list)
    for follower in followers:
        token, message = valid.get(follower.token_id), messages.get(follower.message_id)
        if token is not None and message is not None and message.conversation.owner_id == token.user_id:
            theirs[token.pk].append(follower)
    allowed: set[_Follower] = set()
    for token_id, mine in theirs.items():
        principal = tokens.principal_of(valid[token_id])
        withheld = conversations.withheld_of([messages[follower.message_id] for follower in mine], principal)
        allowed |= {follower for follower in mine if follower.message_id not in withheld}
    return allowed
