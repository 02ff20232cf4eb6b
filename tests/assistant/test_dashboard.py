"""The dashboard counts right, shows charts without styles, and names people only where a setting allows it."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from assistant.models import Feedback, Message
from assistant.usage import usage
from assistant.usage_charts import days_chart
from indexing.models import LLMCall
from tests.factories import make_conversation, make_message

pytestmark = pytest.mark.django_db


def stage(name: str, started: float, milliseconds: float) -> dict[str, Any]:
    return {"name": name, "started_ms": started, "milliseconds": milliseconds, "llm": True, "state": "done", "note": ""}


@pytest.fixture
def asked(user: User) -> Message:
    """Three questions: one answered and rated badly, one without evidence, one of long ago."""
    row = make_conversation(user)
    stages = [stage("plan", 0, 100), stage("first_token", 500, 1500), stage("write", 2000, 3000)]
    done = make_message(row, question="Where is it?", state=Message.State.DONE, trace={"stages": stages})
    make_message(row, state=Message.State.DONE, finish_reason="not_found")
    old = make_message(row, state=Message.State.DONE)
    Message.objects.filter(pk=old.pk).update(created_at=timezone.now() - timedelta(days=40))
    Feedback.objects.create(message=done, user=user, helpful=False, reason="wrong_lines", comment="It is in b.py")
    for purpose in ("answer", "plan"):
        LLMCall.objects.create(purpose=purpose, model="llama", prompt_tokens=1000, completion_tokens=50, cost_usd=0.25)
    return done


def test_it_counts_questions_ratings_times_and_cost(asked: Message) -> None:
    found = usage(30)
    assert (found.questions, found.unanswered, found.before) == (2, 1, 1)
    assert (len(found.days), found.days[-1].answered, found.days[-1].unanswered) == (30, 1, 1)
    assert (found.ratings, found.helpful, found.reasons) == (1, 0, (("Wrong lines", 1),))
    assert [(time.label, time.median) for time in found.stages] == [
        ("Plan", 100),
        ("First token", 1500),
        ("Write", 3000),
    ]
    assert found.first_word is not None
    assert found.first_word.median == 2000
    (model,) = found.models
    assert (model.model, model.purposes, model.calls, model.tokens) == ("llama", "answer, plan", 2, 2100)
    assert model.cost_usd == 0.5


def test_it_draws_a_bar_for_each_day_within_the_chart(asked: Message) -> None:
    chart = days_chart(usage(30).days)
    assert chart.count("<rect") == 60
    assert all(0 <= float(y) <= 190 for y in re.findall(r' y="([\d.-]+)"', chart))


@pytest.mark.parametrize("days", [7, 30, 90])
def test_it_shows_the_page_without_data(staff_client: Client, days: int) -> None:
    page = staff_client.get(f"/dashboard/?days={days}").content.decode()
    assert "No language model was called" in page
    assert not re.search(r"<style|\sstyle=|\son\w+=", page)


def test_it_lists_reasons_without_saying_who_asked_what(staff_client: Client, asked: Message, user: User) -> None:
    page = staff_client.get("/dashboard/").content.decode()
    assert "Wrong lines" in page
    assert "It is in b.py" in page
    assert "Where is it?" not in page


def test_it_links_questions_where_the_setting_allows_it(
    staff_client: Client, asked: Message, settings: Settings
) -> None:
    settings.STAFF_SEES_QUESTIONS = True
    page = staff_client.get("/dashboard/").content.decode()
    assert f"/admin/assistant/message/{asked.pk}/change/" in page
    assert "Where is it?" in page


def test_it_is_for_staff_only(user_client: Client, client: Client) -> None:
    assert user_client.get("/dashboard/").status_code == 404
    assert client.get("/dashboard/").url.startswith("/sign-in/")
    assert "/dashboard/" not in user_client.get("/").content.decode()


def test_it_needs_few_queries(staff_client: Client, asked: Message, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(18):
        staff_client.get("/dashboard/")
