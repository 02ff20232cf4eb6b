from __future__ import annotations

import csv
import io

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django import Settings

from assistant.models import Feedback, Message
from indexing.models import AuditEvent
from search.models import Question
from tests.assistant.test_admin import ask
from tests.factories import make_repository, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def rated(user: User, settings: Settings) -> Message:
    settings.STAFF_SEES_QUESTIONS = True
    message = ask(user, "How are sessions kept?", make_repository("acme/web"))
    message.citations.update(cited=True)
    Feedback.objects.update(comment="=cmd()|x")
    return message


def rows(client: Client) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(client.get("/dashboard/feedback.csv").content.decode())))


def test_it_exports_opinions_with_the_question_where_policy_allows(
    rated: Message, user: User, staff_client: Client, settings: Settings
) -> None:
    (row,) = rows(staff_client)
    assert (row["reason"], row["repositories"], row["question"]) == ("wrong", "acme/web", "How are sessions kept?")
    assert row["comment"] == "'=cmd()|x"
    assert row["asked_by"] == user.username
    settings.STAFF_SEES_QUESTIONS = False
    assert "question" not in rows(staff_client)[0]
    (entry,) = staff_client.get("/dashboard/feedback.json").json()["feedback"]
    assert (entry["helpful"], entry["comment"], "asked_by" in entry) == (False, "=cmd()|x", False)
    assert AuditEvent.objects.filter(action="feedback exported").count() == 3


def test_it_exports_nothing_about_code_that_staff_may_not_read(rated: Message, user: User, client: Client) -> None:
    ask(user, "secret one", make_repository("acme/secret", visibility="private", owner=user))
    client.force_login(make_user("lead", is_staff=True))
    assert [row["repositories"] for row in rows(client)] == ["acme/web"]
    assert "secret" not in client.get("/dashboard/").content.decode()


def test_it_makes_an_evaluation_question_in_two_clicks(rated: Message, staff_client: Client) -> None:
    address = f"/evaluation/add/{rated.pk}/"
    assert address in staff_client.get("/dashboard/").content.decode()
    form = staff_client.get(address).context["form"]
    filled = {name: form[name].value() for name in ("query", "repository", "relevant", "set_name")}
    assert staff_client.post(address, filled).url == "/evaluation/"
    question = Question.objects.get()
    assert (question.query, question.relevant) == ("How are sessions kept?", "a.py:1-1")
    assert question.question_set.name == "Rated badly"
    assert AuditEvent.objects.get().action == "evaluation question added"


def test_it_keeps_what_was_typed_when_the_lines_cannot_be(rated: Message, staff_client: Client) -> None:
    form = {"query": "Where?", "repository": rated.citations.get().repository_id, "set_name": "x"}
    response = staff_client.post(f"/evaluation/add/{rated.pk}/", form | {"relevant": "a.py:9-2"})
    assert response.status_code == 422
    assert "a.py:9-2 names no lines" in response.content.decode()


def test_it_is_there_only_with_the_right_and_where_policy_allows(
    rated: Message, client: Client, settings: Settings
) -> None:
    lead = make_user("lead", is_staff=True)
    client.force_login(lead)
    address = f"/evaluation/add/{rated.pk}/"
    assert client.get(address).status_code == 404
    lead.user_permissions.set(Permission.objects.filter(codename="add_question"))
    assert client.get(address).status_code == 200
    settings.STAFF_SEES_QUESTIONS = False
    assert client.get(address).status_code == 404
