from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings

from assistant import tokens
from assistant.models import AnswerEvent, Callback, Conversation, IdempotentReply, Message, SlackJob
from assistant.retention import remove_old
from indexing.models import Index, LLMCall
from tests.factories import make_conversation, make_index, make_message, make_repository

pytestmark = pytest.mark.django_db
LONG_AGO = timedelta(days=40)


def test_it_keeps_everything_unless_told_otherwise(settings: Settings) -> None:
    settings.KEEP_EVENTS_DAYS = settings.KEEP_BUILDS_DAYS = 0
    make_message(make_conversation())
    Conversation.objects.update(updated_at=timezone.now() - LONG_AGO)
    assert remove_old() == {}
    assert Conversation.objects.count() == 1


def test_it_removes_conversations_that_nobody_touched_or_pinned(settings: Settings) -> None:
    settings.KEEP_CONVERSATIONS_DAYS = 30
    old, pinned, new = make_conversation(), make_conversation(pinned=True), make_conversation()
    Conversation.objects.exclude(pk=new.pk).update(updated_at=timezone.now() - LONG_AGO)
    make_message(old)
    assert remove_old() == {"conversations": 1}
    assert set(Conversation.objects.all()) == {pinned, new}
    assert not Message.objects.exists()


def test_it_removes_steps_and_traces_but_no_answers(settings: Settings) -> None:
    settings.KEEP_EVENTS_DAYS = settings.KEEP_TRACES_DAYS = 30
    for days in (40, 1):
        message = make_message(
            state="done", answer="Here [1].", trace={"a": 1}, finished_at=timezone.now() - timedelta(days=days)
        )
        AnswerEvent.objects.create(message=message, sequence=1, name="done", data={})
    assert remove_old() == {"events": 1, "traces": 1}
    assert sorted(Message.objects.values_list("trace", "answer"), key=str) == [
        ({"a": 1}, "Here [1]."),
        ({}, "Here [1]."),
    ]


def test_it_removes_the_ledger_and_builds_that_newer_ones_replaced(settings: Settings) -> None:
    settings.KEEP_USAGE_DAYS = settings.KEEP_BUILDS_DAYS = 30
    LLMCall.objects.create(purpose="answer", model="x")
    LLMCall.objects.update(created_at=timezone.now() - LONG_AGO)
    repository = make_repository()
    replaced, listing = make_index(repository), make_index(repository)
    current = make_index(repository, current=True, skips_of=listing)
    newest = make_index(repository, status="failed")
    Index.objects.update(finished_at=timezone.now() - LONG_AGO)
    assert remove_old() == {"usage records": 1, "builds": 1}
    assert not Index.objects.filter(pk=replaced.pk).exists()
    assert set(Index.objects.all()) == {listing, current, newest}


def test_it_removes_jobs_that_are_over_and_old_keys_whatever_the_settings(user: User) -> None:
    now = timezone.now()
    token, _secret = tokens.create(user, "bot", scopes=["ask"])
    for number, finished in enumerate([now - timedelta(days=91), now - timedelta(days=89), None]):
        common = {"due_at": now, "origin": "https://code.example", "finished_at": finished}
        SlackJob.objects.create(event_key=f"event {number}", kind="direct", team_id="T0TEAM", **common)
        Callback.objects.create(message=make_message(), token=token, url="https://hooks.example/", **common)
        IdempotentReply.objects.create(token=token, key=str(number), request_sha256="0" * 64)
    IdempotentReply.objects.filter(key="0").update(created_at=now - timedelta(hours=25))
    assert remove_old() == {"Slack jobs": 1, "callbacks": 1, "idempotency keys": 1}
    assert set(SlackJob.objects.values_list("event_key", flat=True)) == {"event 1", "event 2"}
    assert set(IdempotentReply.objects.values_list("key", flat=True)) == {"1", "2"}
    assert Message.objects.count() == 3
