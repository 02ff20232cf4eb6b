from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from assistant import conversations
from assistant.models import Message
from tests.factories import make_message

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("seconds", "ended"), [(-30, 0), (30, 0), (90, 1)])
def test_it_ends_an_answer_that_nobody_follows_some_time_after_its_lease(seconds: int, ended: int) -> None:
    """A database that was away for a minute keeps a process from storing the end; nobody else may be looking."""
    message = make_message(
        state=Message.State.RUNNING, leased_until=timezone.now() - timedelta(seconds=seconds), question="How?"
    )
    assert conversations.end_forgotten() == ended
    message.refresh_from_db()
    assert message.finished == bool(ended)
    assert (message.error != "") == bool(ended)
