from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from assistant import tasks, tokens
from assistant.models import Callback, Citation, Feedback, Message, SlackJob
from indexing.models import AuditEvent, Repository
from tests.factories import COMMIT, make_conversation, make_message, make_repository, make_user

pytestmark = pytest.mark.django_db
PAGES = ["/admin/assistant/conversation/", "/admin/assistant/message/", "/admin/assistant/feedback/"]


@pytest.fixture(autouse=True)
def questions_are_shown(settings: Settings) -> None:
    settings.STAFF_SEES_QUESTIONS = True


@pytest.fixture
def lead(client: Client) -> User:
    """Staff with every permission of this app, but no superuser; signed in as `client`."""
    lead = make_user("lead", is_staff=True)
    lead.user_permissions.set(Permission.objects.filter(content_type__app_label="assistant"))
    client.force_login(lead)
    return lead


def ask(owner: User, question: str, repository: Repository | None) -> Message:
    message = make_message(make_conversation(owner, title=question), question=question)
    Citation.objects.create(
        message=message,
        number=1,
        repository=repository,
        repository_name="example/web",
        commit=COMMIT,
        blob=COMMIT,
        path=b"a.py",
        start_byte=0,
        end_byte=5,
        start_line=1,
        end_line=1,
    )
    Feedback.objects.create(message=message, user=owner, helpful=False, reason="wrong", comment=f"on {question}")
    return message


@pytest.mark.parametrize("path", PAGES)
def test_it_shows_what_people_ask_and_what_failed(client: Client, lead: User, user: User, path: str) -> None:
    ask(user, "How are sessions kept?", make_repository())
    assert "How are sessions kept?" in client.get(path).content.decode()


@pytest.mark.parametrize("path", PAGES)
def test_it_hides_answers_made_from_code_that_a_team_lead_may_not_read(
    client: Client, lead: User, user: User, path: str
) -> None:
    ask(user, "secret one", make_repository(visibility=Repository.Visibility.PRIVATE, owner=user))
    ask(user, "gone one", None)
    html = client.get(path).content.decode()
    assert "secret one" not in html
    assert "gone one" not in html


def test_it_keeps_notices_from_a_team_lead(client: Client, lead: User, user: User, staff_client: Client) -> None:
    message = ask(user, "How are sessions kept?", make_repository())
    Message.objects.update(notices=["acme/vault could not be searched."])
    page = f"/admin/assistant/message/{message.pk}/change/"
    assert "acme/vault" not in client.get(page).content.decode()
    assert "acme/vault" in staff_client.get(page).content.decode()


@pytest.mark.parametrize("path", PAGES)
def test_it_shows_superusers_all(staff_client: Client, user: User, path: str) -> None:
    ask(user, "secret one", make_repository(visibility=Repository.Visibility.PRIVATE, owner=user))
    assert "secret one" in staff_client.get(path).content.decode()


@pytest.mark.parametrize(("path", "queries"), zip(PAGES, (6, 9, 7), strict=True))
def test_it_needs_no_query_per_row(
    staff_client: Client, user: User, path: str, queries: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for n in range(6):
        ask(user, f"question {n}", make_repository())
    staff_client.get(path)
    with django_assert_num_queries(queries):
        staff_client.get(path)


def test_it_changes_nothing(staff_client: Client, user: User) -> None:
    message = ask(user, "question", make_repository())
    page = f"/admin/assistant/message/{message.pk}/change/"
    assert staff_client.get(page).status_code == 200
    assert staff_client.post(page, {"answer": "other"}).status_code == 403


@pytest.mark.parametrize("name", ["lead", "superuser"])
def test_it_tells_nobody_who_asked_what_against_the_policy(
    name: str, client: Client, lead: User, settings: Settings
) -> None:
    settings.STAFF_SEES_QUESTIONS = False
    asker = make_user("asker")
    message = ask(asker, "How are sessions kept?", make_repository())
    if name == "superuser":
        client.force_login(make_user("root", is_staff=True, is_superuser=True))
    assert client.get(PAGES[0]).status_code == client.get(PAGES[1]).status_code == 403
    feedback = client.get(PAGES[2]).content.decode()
    assert "on How are sessions kept?" in feedback  # the comment, which is for staff
    assert ">How are sessions kept?" not in feedback
    assert "asker" not in feedback
    for page in (f"{PAGES[2]}{message.feedback.get().pk}/change/", f"/admin/auth/user/{asker.pk}/delete/", "/admin/"):
        assert "How are sessions kept?" not in client.get(page).content.decode().replace("on How are", "")


def test_it_begins_an_evaluation_question_with_an_opinion(staff_client: Client, user: User) -> None:
    message = ask(user, "How are sessions kept?", make_repository())
    chosen = {"action": "evaluate", "_selected_action": [message.feedback.get().pk]}
    assert staff_client.post(PAGES[2], chosen).url == f"/evaluation/add/{message.pk}/"


def make_slack_job(**values: object) -> SlackJob:
    values = {"event_key": "event Ev7", "kind": "direct", "channel_id": "D", "due_at": timezone.now()} | values
    return SlackJob.objects.create(**values)


def test_it_shows_why_a_question_of_slack_was_given_up_but_not_the_question(client: Client, lead: User) -> None:
    job = make_slack_job(state="failed", error="Slack refused chat.update: fatal_error.", text="Where is the key kept?")
    for page in ("/admin/assistant/slackjob/?state__exact=failed", f"/admin/assistant/slackjob/{job.pk}/change/"):
        html = client.get(page).content.decode()
        assert "Slack refused chat.update: fatal_error." in html
        assert "Where is the key kept?" not in html


def test_it_shows_where_a_callback_went_without_what_may_be_secret_in_the_address(
    client: Client, lead: User, user: User
) -> None:
    token, _secret = tokens.create(user, "ci", scopes=["ask"])
    callback = Callback.objects.create(
        message=ask(user, "How?", make_repository()),
        token=token,
        url="https://ci.example/done?key=s3cret",
        state="failed",
        error="The receiver answered 500. It was tried 6 times.",
        due_at=timezone.now(),
    )
    for page in ("/admin/assistant/callback/", f"/admin/assistant/callback/{callback.pk}/change/"):
        html = client.get(page).content.decode()
        assert "ci.example" in html
        assert "tried 6 times" in html
        assert "s3cret" not in html


def test_it_tries_again_what_was_given_up(client: Client, lead: User, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(tasks.answer_slack, "delay", sent.append)
    given_up = make_slack_job(state="failed", attempts=5, finished_at=timezone.now())
    waiting = make_slack_job(event_key="event Ev8")
    asked = {"action": "retry", "_selected_action": [given_up.pk, waiting.pk]}
    assert "1 of them were given up" in client.post("/admin/assistant/slackjob/", asked, follow=True).content.decode()
    assert sent == [given_up.pk]
    assert AuditEvent.objects.get().action == "slack job tried again"
    lead.user_permissions.remove(Permission.objects.get(codename="change_slackjob"))
    assert b'value="retry"' not in client.get("/admin/assistant/slackjob/").content
