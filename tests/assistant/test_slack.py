"""Slack's requests in their documented shapes against the real doors, and a stand-in for its Web API behind them."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from assistant import conversations, jobs, slack, slack_accounts, slack_answers, slack_client, tasks
from assistant.models import Conversation, Feedback, Message, SlackAccount, SlackJob
from indexing.errors import LLMUnavailable
from indexing.models import Repository
from search.results import Hit
from tests import slack_stand_in
from tests.assistant.scripted import SESSIONS, ScriptedModel, hit_for, real_repository, script_model, script_search
from tests.slack_stand_in import (
    CHANNEL,
    DM,
    PERSON,
    SECRET,
    TEAM,
    TOKEN,
    Slack,
    command,
    direct,
    mention,
    press,
    signed,
)

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[2]
ANSWER = "It is **signed** in `sign` [1]."


@pytest.fixture
def stand_in(settings: Settings) -> Iterator[Slack]:
    with slack_stand_in.serve() as running:
        settings.SLACK_BOT_TOKEN, settings.SLACK_SIGNING_SECRET = TOKEN, SECRET
        settings.SLACK_API_URL = running.api
        yield running


@dataclass
class Door:
    """Sends as Slack does, and plays the worker: `work()` does what the queue holds."""

    queue: list[int] = field(default_factory=list)
    said: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def event(self, payload: dict[str, Any], **headers: str) -> Any:
        body = json.dumps(payload)
        return Client().post("/slack/events/", body, "application/json", headers=signed(body) | headers)

    def form(self, path: str, body: str) -> Any:
        kind = "application/x-www-form-urlencoded"
        return Client().generic("POST", f"/slack/{path}/", body, kind, headers=signed(body))

    def work(self) -> None:
        while self.queue:
            slack_answers.answer(self.queue.pop(0))
        while self.said:
            slack_client.respond(*self.said.pop(0))


@pytest.fixture
def door(stand_in: Slack, monkeypatch: pytest.MonkeyPatch) -> Door:
    found = Door()
    monkeypatch.setattr(tasks.answer_slack, "delay", found.queue.append)
    monkeypatch.setattr(tasks.respond_to_slack, "delay", lambda url, reply: found.said.append((url, reply)))
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS})


@pytest.fixture
def hit(repository: Repository) -> Hit:
    return hit_for(repository, "src/sessions.py", "def sign(value: str) -> str:")


@pytest.fixture
def linked(user: User) -> User:
    SlackAccount.objects.create(user=user, team_id=TEAM, slack_user_id=PERSON)
    return user


@pytest.fixture
def model(linked: User, hit: Hit, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> ScriptedModel:
    """A linked person, a search that finds one passage, a model that answers."""
    script_search(monkeypatch, [hit])
    return script_model(monkeypatch, settings, [ANSWER])


# --- who gets in


def test_it_lets_in_what_slack_signed_and_nothing_else(door: Door) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "abc"})
    asked = {
        "": 200,
        "older than five minutes": 403,
        "from the future": 403,
        "with another secret": 403,
        "without a signature": 403,
        "with a time that is no number": 403,
        "with a signature that is no ASCII": 403,
    }
    headers = {
        "": signed(body),
        "older than five minutes": signed(body, at=time.time() - 301),
        "from the future": signed(body, at=time.time() + 310),
        "with another secret": signed(body, secret="other"),
        "without a signature": {},
        "with a time that is no number": signed(body) | {"X-Slack-Request-Timestamp": "soon"},
        "with a signature that is no ASCII": signed(body) | {"X-Slack-Signature": "v0=é"},
    }
    for what, status in asked.items():
        response = Client().post("/slack/events/", body, "application/json", headers=headers[what])
        assert response.status_code == status, what
    assert door.event(json.loads(body)).json() == {"challenge": "abc"}
    assert Client().get("/slack/events/").status_code == 405


def test_it_takes_a_clock_that_is_four_minutes_off(door: Door) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "abc"})
    for seconds in (-240, 240):
        headers = signed(body, at=time.time() + seconds)
        assert Client().post("/slack/events/", body, "application/json", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "body", ["", "[]", "{", "[" * 100_000, '"x"', '{"type": "event_callback"}', '{"type": 1, "event": []}']
)
def test_it_refuses_what_it_cannot_read(door: Door, body: str) -> None:
    assert Client().generic("POST", "/slack/events/", body, headers=signed(body)).status_code == 400
    for path in ("commands", "interactions"):
        assert door.form(path, body).status_code == 400
    assert not SlackJob.objects.exists()


def test_it_refuses_a_body_that_is_too_large(door: Door) -> None:
    assert door.event(mention("x" * 3_000_000)).status_code == 413


def test_it_says_that_slack_is_not_set_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().post("/slack/events/", b"{}", "application/json").status_code == 404
    settings.SLACK_BOT_TOKEN, settings.SLACK_SIGNING_SECRET = TOKEN, SECRET
    monkeypatch.setattr(slack, "installed", lambda: False)
    response = Client().post("/slack/events/", b"{}", "application/json")
    assert (response.status_code, b"codebase-assistant[slack]" in response.content) == (501, True)


@pytest.mark.parametrize(
    "event",
    [
        {"bot_id": "B1"},
        {"subtype": "message_changed"},
        {"subtype": "message_deleted"},
        {"user": None},
        {"channel": CHANNEL, "channel_type": "channel"},
    ],
)
def test_it_leaves_alone_what_nobody_wrote_to_it(door: Door, event: dict[str, Any]) -> None:
    assert door.event(direct("hello", **event)).status_code == 200
    assert not SlackJob.objects.exists()


# --- one answer


def test_it_answers_a_mention_in_its_thread(door: Door, stand_in: Slack, model: ScriptedModel, hit: Hit) -> None:
    seen: list[tuple[str, bool]] = []
    stand_in.before = lambda method, given: seen.append((method, bool(stand_in.reactions)))
    assert door.event(mention("<@U0BOT> How is the cookie signed?")).content == b""
    assert not seen  # nothing is waited for before the acknowledgement
    door.work()
    assert stand_in.refusals == stand_in.mentions == []
    ((channel, _ts),) = stand_in.messages
    (answer,) = stand_in.texts(CHANNEL)
    assert channel == CHANNEL
    assert stand_in.called("chat.postMessage")[0]["thread_ts"] == "1699999999.000100"
    assert "It is \u200b*signed*\u200b in `sign` <http://testserver/r/" in answer
    assert f"[1] <http://testserver/r/{hit.repository_id}/acme-web/blob/" in answer
    assert f"|sessions.py:{hit.start_line}> acme/web" in answer
    assert "&amp;m=" not in answer  # others in the channel open the code, not the asker's conversation
    assert "1 of 1 citations verified" in answer
    assert "ask me in a direct message for the others" in answer
    assert seen[0] == ("reactions.add", False)
    assert seen[-1] == ("reactions.remove", True)
    assert stand_in.reactions == set()
    updates = [slack_stand_in.text_of(call) for call in stand_in.called("chat.update")]
    assert updates[0] == "Found one passage …"
    message = Message.objects.get()
    assert (message.question, message.conversation.for_everyone) == ("How is the cookie signed?", True)
    job = SlackJob.objects.get()
    assert (job.state, job.text, job.response_url) == ("done", "", "")


def test_it_gives_one_answer_to_four_deliveries_with_a_restart_between(
    door: Door,
    stand_in: Slack,
    linked: User,
    hit: Hit,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    process_environment: dict[str, str],
) -> None:
    """The worker is killed in the middle of the answer; another one takes it over."""
    payload = mention("<@U0BOT> How is the cookie signed?")
    door.event(payload)
    door.event(payload, **{"X-Slack-Retry-Num": "1", "X-Slack-Retry-Reason": "http_timeout"})
    assert len(door.queue) == 1
    killed = start_worker(door.queue.pop(), stand_in, process_environment)
    deadline = time.monotonic() + 40
    while not Message.objects.filter(events__name="text").exists():
        assert killed.poll() is None, "the worker ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert SlackJob.objects.get().state == "running"

    for number in ("2", "3"):
        assert door.event(payload, **{"X-Slack-Retry-Num": number}).status_code == 200
    script_search(monkeypatch, [hit])
    script_model(monkeypatch, settings, [ANSWER])
    assert jobs.recover(SlackJob, tasks.answer_slack.delay) == 1
    door.work()
    assert jobs.recover(SlackJob, tasks.answer_slack.delay) == 0
    assert SlackJob.objects.get().state == "done"
    assert Message.objects.get().attempt == 2
    (answer,) = stand_in.texts()
    assert "signed" in answer
    assert "never" not in answer
    assert len(stand_in.called("chat.postMessage")) == 1
    assert stand_in.reactions == set()


@pytest.mark.parametrize("nth", [1, 2])
def test_it_posts_nothing_twice_when_it_is_killed_before_it_hears_that_slack_took_it(
    nth: int,
    door: Door,
    stand_in: Slack,
    linked: User,
    hit: Hit,
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    process_environment: dict[str, str],
) -> None:
    """`nth` post: its progress, then the second message of a long answer."""
    killed: list[subprocess.Popen[bytes]] = []

    def kill(method: str, given: dict[str, Any]) -> None:
        if method == "chat.postMessage" and len(stand_in.called(method)) == nth:
            killed[0].kill()

    stand_in.after = kill
    door.event(direct("How is the cookie signed?"))
    killed.append(start_worker(door.queue.pop(), stand_in, process_environment, answer="A long word " * 1500))
    assert killed[0].wait(60) == -signal.SIGKILL
    assert len(stand_in.messages) == nth

    script_search(monkeypatch, [hit])
    script_model(monkeypatch, settings, ["A long word " * 1500])
    assert jobs.recover(SlackJob, tasks.answer_slack.delay) == 1
    door.work()
    assert SlackJob.objects.get().state == "done"
    texts = stand_in.texts(DM)
    assert len(texts) == len(stand_in.messages) == 2
    assert len(stand_in.called("chat.postMessage")) == 3  # one of them was known already
    assert sum(text.count("A long word") for text in texts) == 1500


def test_it_posts_anew_what_was_deleted_before_it_could_be_sure(stand_in: Slack) -> None:
    first = slack_client.post(DM, {"text": "So."}, key="event 1 0")
    assert slack_client.post(DM, {"text": "So."}, key="event 1 0") == first
    stand_in.messages.clear()
    assert slack_client.post(DM, {"text": "So."}, key="event 1 0") != first
    assert stand_in.texts(DM) == ["So."]


def start_worker(
    job_id: int, stand_in: Slack, environment: dict[str, str], answer: str = ""
) -> subprocess.Popen[bytes]:
    """Another process with this test's database; without `answer` its model never comes to an end."""
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(job_id), answer],
        cwd=PROJECT,
        env={
            **environment,
            "SLACK_BOT_TOKEN": TOKEN,
            "SLACK_SIGNING_SECRET": SECRET,
            "SLACK_API_URL": stand_in.api,
        },
    )


_WORKER = """
import sys
import django

django.setup()
from assistant import slack_answers
from django.conf import settings
from indexing import llm
from indexing.models import Repository
from search import pipeline
from tests.assistant.scripted import ScriptedModel, ScriptedSearch, hit_for

settings.LLM_MODEL = "ollama/llama3.1"
hit = hit_for(Repository.objects.get(), "src/sessions.py", "def sign(value: str) -> str:")
pipeline.search = ScriptedSearch((hit,))
llm.stream = ScriptedModel([sys.argv[2]] if sys.argv[2] else ["It is never ", 60.0, "told."])
slack_answers.answer(int(sys.argv[1]))
"""


def test_it_takes_one_message_that_comes_as_two_events_once(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    """A mention in a direct message is sent as `app_mention` and as `message`."""
    first = direct("<@U0BOT> How is it signed?")
    second = mention("<@U0BOT> How is it signed?", event_id="Ev0009", ts="1699999999.000200", channel=DM)
    door.event(second)
    door.event(first)
    door.work()
    assert SlackJob.objects.get().kind == "direct"
    assert len(stand_in.texts()) == 1


def test_it_follows_up_in_a_thread_with_the_conversation_of_each_person(
    door: Door, stand_in: Slack, model: ScriptedModel, other_user: User
) -> None:
    SlackAccount.objects.create(user=other_user, team_id=TEAM, slack_user_id="U0OTHER")
    thread = "1699999999.000100"
    door.event(mention("<@U0BOT> How is it signed?"))
    door.work()
    door.event(mention("<@U0BOT> and in Redis?", event_id="Ev2", ts="1699999999.000300", thread_ts=thread))
    door.work()
    door.event(mention("<@U0BOT> and me?", event_id="Ev3", ts="1699999999.000400", thread_ts=thread, user="U0OTHER"))
    door.work()
    mine = Conversation.objects.get(owner__username="user")
    assert [message.question for message in mine.messages.all()] == ["How is it signed?", "and in Redis?"]
    assert "How is it signed?" in json.dumps(model.calls[1])
    assert Conversation.objects.get(owner=other_user).messages.count() == 1
    assert "How is it signed?" not in json.dumps(model.calls[2])


def test_it_answers_a_command_to_whoever_typed_it(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    reply = door.form("commands", command("How is it signed?", response_url=stand_in.response_url()))
    assert reply.json() == {"response_type": "ephemeral", "text": "Looking into it …"}
    door.form("commands", command("How is it signed?", response_url=stand_in.response_url()))
    door.work()
    (answer,) = stand_in.responses
    assert (answer["response_type"], answer["replace_original"]) == ("ephemeral", True)
    assert "signed" in slack_stand_in.text_of(answer)
    assert not stand_in.messages
    assert not Conversation.objects.get().for_everyone


def test_it_cuts_a_long_answer_into_messages_that_slack_takes(
    door: Door, stand_in: Slack, model: ScriptedModel
) -> None:
    code = "\n".join(f"    x = {number} < {number}  # <!channel>" for number in range(700))
    model.parts = [f"# All of it\n\n```py\n{code}\n```\n\n" + "A sentence with a source [1]. " * 30]
    door.event(direct("Show all of it"))
    door.work()
    texts = stand_in.texts(DM)
    assert len(texts) > 1
    assert stand_in.refusals == stand_in.mentions == []
    assert all(text.count("```") % 2 == 0 for text in texts)
    assert all(f"x = {number} &lt;" in "".join(texts) for number in range(700))
    buttons = [message for message in stand_in.messages.values() if message["blocks"][-1]["type"] == "actions"]
    assert len(buttons) == 1


def test_it_says_where_the_rest_is_of_an_answer_without_end(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    model.parts = ["word " * 12_000]
    door.form("commands", command("All?", response_url=stand_in.response_url()))
    door.work()
    assert len(stand_in.responses) == 4
    assert stand_in.refusals == []
    assert "|Read all of it>" in slack_stand_in.text_of(stand_in.responses[-1])


# --- whoever asks hears why


def test_it_tells_a_person_who_is_not_linked_how_to_link(door: Door, stand_in: Slack) -> None:
    door.event(mention("<@U0BOT> How?"))
    door.event(direct("How?"))
    door.form("commands", command("How?", response_url=stand_in.response_url()))
    door.work()
    told = [stand_in.whispers[0]["text"], stand_in.texts(DM)[0], stand_in.responses[0]["text"]]
    assert all("http://testserver/account/slack/" in text and "link CODE" in text for text in told)
    assert (stand_in.whispers[0]["channel"], stand_in.whispers[0]["user"]) == (CHANNEL, PERSON)
    assert stand_in.texts(CHANNEL) == []
    assert stand_in.reactions == set()


def test_it_names_a_repository_that_may_not_be_read_like_one_that_is_not_there(
    door: Door, stand_in: Slack, model: ScriptedModel, repository: Repository, other_user: User
) -> None:
    repository.visibility, repository.owner = "private", other_user
    repository.save()
    for number, name in enumerate(("acme/web", "acme/none")):
        door.event(mention(f"<@U0BOT> @{name} How?", event_id=f"Ev{number}", ts=f"1.{number}"))
    door.work()
    private, unknown = (whisper["text"] for whisper in stand_in.whispers)
    assert private.replace("acme/web", "acme/none") == unknown
    assert "ask me in a direct message" in unknown
    assert stand_in.reactions == set()
    assert not Message.objects.exists()


def test_it_shows_nothing_private_in_a_channel_and_all_in_a_direct_message(
    door: Door, stand_in: Slack, linked: User, repository: Repository, hit: Hit, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.visibility, repository.owner = "private", linked
    repository.save()
    search = script_search(monkeypatch, [hit])
    door.event(mention("<@U0BOT> How is it signed?"))
    door.event(direct("@acme/web How is it signed?"))
    door.work()
    in_channel, directly = (call["principal"] for call in search.calls)
    assert not Repository.objects.visible_to(in_channel).exists()
    assert Repository.objects.visible_to(directly).get() == repository
    (shown,) = stand_in.texts(CHANNEL)
    assert "sessions.py" not in shown
    assert "acme/web" not in shown
    assert "sessions.py" in stand_in.texts(DM)[0]


def test_it_withholds_an_answer_whose_rights_ended_while_it_was_written(
    door: Door, stand_in: Slack, model: ScriptedModel, repository: Repository, other_user: User
) -> None:
    def revoke(method: str, given: dict[str, Any]) -> None:
        if "Found one" in given.get("text", ""):
            Repository.objects.update(visibility="private", owner=other_user)

    stand_in.before = revoke
    door.event(direct("How is it signed?"))
    door.work()
    assert stand_in.texts(DM) == ["This answer draws on a repository that you cannot read, so it is not shown."]


def test_it_says_that_the_model_is_down_and_shows_passages(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    model.parts = [LLMUnavailable("The language model at llm.example could not be reached: check that it runs.")]
    door.event(mention("<@U0BOT> How is it signed?"))
    door.work()
    (answer,) = stand_in.texts(CHANNEL)
    assert "The language model at llm.example could not be reached: check that it runs." in answer
    assert "ranked passages without a written answer" in answer
    assert "|[1]>" in answer
    assert stand_in.reactions == set()


def test_it_writes_to_the_person_when_it_was_removed_from_the_channel(
    door: Door, stand_in: Slack, model: ScriptedModel
) -> None:
    stand_in.members.discard(CHANNEL)
    door.event(mention("<@U0BOT> How is it signed?"))
    door.work()
    lead, answer = stand_in.texts(DM)
    assert "I am not in the channel" in lead
    assert "/invite" in lead
    assert "signed" in answer
    assert stand_in.texts(CHANNEL) == []


def test_it_moves_over_when_it_is_removed_while_it_writes(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    def removed(method: str, given: dict[str, Any]) -> None:
        if method == "chat.postMessage":
            stand_in.before = lambda method, given: stand_in.members.discard(CHANNEL)

    stand_in.before = removed
    door.event(mention("<@U0BOT> How is it signed?"))
    door.work()
    lead, answer = stand_in.texts(DM)
    assert "I am not in the channel" in lead
    assert "1 of 1 citations" in answer


def test_it_posts_anew_when_its_progress_was_deleted(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    stand_in.before = lambda method, given: stand_in.messages.clear() if method == "chat.update" else None
    door.event(direct("How is it signed?"))
    door.work()
    (answer,) = stand_in.texts(DM)
    assert "1 of 1 citations" in answer


def test_it_answers_nothing_in_a_channel_that_others_share(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    door.event(mention("<@U0BOT> How?", is_ext_shared_channel=True))
    door.work()
    assert "shared with another organisation" in stand_in.whispers[0]["text"]
    assert not stand_in.messages


def test_it_says_that_an_account_is_switched_off(door: Door, stand_in: Slack, linked: User) -> None:
    User.objects.update(is_active=False)
    door.event(direct("How?"))
    door.work()
    assert "switched off" in stand_in.texts(DM)[0]
    linked.delete()
    door.event(direct("How?", event_id="Ev7", ts="1.7"))
    door.work()
    assert "link CODE" in stand_in.texts(DM)[1]


def test_it_explains_itself(door: Door, stand_in: Slack, linked: User) -> None:
    door.form("commands", command("", response_url=stand_in.response_url()))
    door.work()
    assert "Ask me a question about the code" in stand_in.responses[0]["text"]


def test_it_waits_for_a_rate_limit(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    stand_in.rate_limits = 1
    door.event(direct("How is it signed?"))
    door.work()
    assert "1 of 1 citations" in stand_in.texts(DM)[0]
    assert SlackJob.objects.get().attempts == 1


def test_it_tries_again_when_slack_is_down_and_gives_up_with_a_reason(
    door: Door, stand_in: Slack, model: ScriptedModel
) -> None:
    stand_in.down = True
    door.event(direct("How is it signed?"))
    door.work()
    job = SlackJob.objects.get()
    assert (job.state, job.attempts) == ("queued", 1)
    assert job.due_at > timezone.now()
    stand_in.down = False
    SlackJob.objects.update(due_at=timezone.now())
    jobs.recover(SlackJob, tasks.answer_slack.delay)
    door.work()
    assert len(stand_in.texts(DM)) == 1
    assert SlackJob.objects.get().state == "done"

    door.event(direct("Again?", event_id="Ev8", ts="1.8"))
    SlackJob.objects.filter(state="queued").update(attempts=slack_answers.MAX_ATTEMPTS - 1)
    stand_in.down = True
    door.work()
    failed = SlackJob.objects.get(state="failed")
    assert "Slack" in failed.error
    assert failed.text == ""

    stand_in.down = False
    assert jobs.requeue(failed, tasks.answer_slack.delay)
    door.work()
    assert SlackJob.objects.filter(state="done").count() == len(stand_in.texts(DM)) == 2


def test_it_gives_up_a_question_that_ends_every_worker(door: Door, stand_in: Slack, model: ScriptedModel) -> None:
    door.event(direct("How is it signed?"))
    died = {"state": "running", "attempts": slack_answers.MAX_ATTEMPTS, "due_at": timezone.now()}
    SlackJob.objects.update(**died)
    door.work()
    job = SlackJob.objects.get()
    assert (job.state, job.error) == ("failed", jobs.DIED)
    assert job.text == "How is it signed?"  # no message has it
    assert model.calls == []
    assert stand_in.texts(DM)[0].startswith("I could not finish this answer.")


def test_it_answers_a_command_to_the_person_alone_when_it_is_tried_again(
    door: Door, stand_in: Slack, model: ScriptedModel
) -> None:
    door.form("commands", command("How is it signed?", response_url=stand_in.response_url("1")))
    SlackJob.objects.update(attempts=slack_answers.MAX_ATTEMPTS)
    door.work()
    job = SlackJob.objects.get()
    assert "I could not finish" in stand_in.responses[-1]["text"]
    stand_in.response_uses["1"] = 5  # half an hour is over
    jobs.requeue(job, tasks.answer_slack.delay)
    door.work()
    assert SlackJob.objects.get().state == "done"
    assert not stand_in.texts(CHANNEL)
    assert any("1 of 1 citations" in text for text in stand_in.texts(DM))


def test_it_names_the_setting_that_is_wrong(door: Door, settings: Settings, linked: User) -> None:
    settings.SLACK_BOT_TOKEN = "xoxb-old"
    door.event(direct("help"))
    door.work()
    assert "set SLACK_BOT_TOKEN to the token of the installed app" in SlackJob.objects.get().error
    assert "xoxb" not in SlackJob.objects.get().error


# --- linking


def test_it_links_an_account_by_a_code_that_works_once(
    door: Door, stand_in: Slack, user: User, user_client: Client
) -> None:
    page = user_client.post("/account/slack/").content.decode()
    code = re.search(r"/ask link ([A-Z0-9-]{14})<", page)[1]  # type: ignore[index]
    for number in (1, 2):
        url = stand_in.response_url(str(number))
        door.form("commands", command(f"link {code.lower()}", response_url=url, trigger_id=f"t{number}"))
        door.work()
    first, second = (response["text"] for response in stand_in.responses)
    assert first.startswith("Linked. I answer you from what user may read")
    assert "used before" in second
    account = SlackAccount.objects.get()
    assert (account.user, account.slack_user_id, account.name) == (user, PERSON, "person in example")
    assert "person in example" in user_client.get("/account/slack/").content.decode()
    assert code not in str(SlackJob.objects.values_list("text", flat=True))


def test_it_voids_a_code_that_was_typed_for_all_to_read(door: Door, stand_in: Slack, user: User) -> None:
    code = slack_accounts.make_code(user)
    door.event(mention(f"<@U0BOT> link {code}"))
    door.event(direct(f"link {code}"))
    door.work()
    assert "made void" in stand_in.whispers[0]["text"]
    assert "wrong" in stand_in.texts(DM)[0]
    assert not SlackAccount.objects.exists()


def test_it_takes_no_code_after_ten_minutes(user: User) -> None:
    code = slack_accounts.make_code(user)
    slack_accounts.SlackLinkCode.objects.update(expires_at=timezone.now())
    assert slack_accounts.use_code(code, team_id=TEAM, slack_user_id=PERSON, name="") is None


def test_it_unlinks_from_both_sides(
    door: Door, stand_in: Slack, linked: User, user_client: Client, other_client: Client
) -> None:
    account = SlackAccount.objects.get()
    assert other_client.post(f"/account/slack/{account.pk}/unlink/").status_code == 404
    assert user_client.post(f"/account/slack/{account.pk}/unlink/").status_code == 302
    assert not SlackAccount.objects.exists()
    SlackAccount.objects.create(user=linked, team_id=TEAM, slack_user_id=PERSON)
    door.event(direct("unlink"))
    door.work()
    assert not SlackAccount.objects.exists()


def test_it_shows_no_page_when_slack_is_not_set_up(user_client: Client) -> None:
    assert user_client.get("/account/slack/").status_code == 404
    assert b"/account/slack/" not in user_client.get("/account/tokens/").content


# --- opinions


def _button(stand_in: Slack, action_id: str) -> str:
    (message,) = stand_in.messages.values()
    return next(e["value"] for e in message["blocks"][-1]["elements"] if e["action_id"] == action_id)


def test_it_stores_what_people_think(door: Door, stand_in: Slack, model: ScriptedModel, user: User) -> None:
    door.event(mention("<@U0BOT> How is it signed?"))
    door.work()
    value = _button(stand_in, "not_helpful")
    for action in ("not_helpful", "reason:wrong_lines"):
        body = press(action, value, response_url=stand_in.response_url(action))
        assert door.form("interactions", body).content == b""
        assert door.form("interactions", body).status_code == 200
    door.work()
    feedback = Feedback.objects.get()
    assert (feedback.user, feedback.helpful, feedback.reason) == (user, False, "wrong_lines")
    asked = stand_in.responses[0]
    assert {e["action_id"] for e in asked["blocks"][1]["elements"]} == {
        f"reason:{reason}" for reason in conversations.FEEDBACK_REASONS
    }
    assert all(response["replace_original"] is False for response in stand_in.responses)
    assert stand_in.refusals == []
    door.form("interactions", press("helpful", value, response_url=stand_in.response_url("x")))
    assert Feedback.objects.get().helpful


def test_it_takes_no_opinion_from_strangers_or_on_what_they_may_not_read(
    door: Door, stand_in: Slack, model: ScriptedModel, other_user: User
) -> None:
    door.event(direct("How is it signed?"))
    door.work()
    value = _button(stand_in, "helpful")
    door.form("interactions", press("helpful", value, response_url=stand_in.response_url("a"), user="U0NOBODY"))
    SlackAccount.objects.create(user=other_user, team_id=TEAM, slack_user_id="U0OTHER")
    door.form("interactions", press("helpful", value, response_url=stand_in.response_url("b"), user="U0OTHER"))
    door.form("interactions", press("helpful", "nonsense", response_url=stand_in.response_url("c")))
    door.form("interactions", press("helpful", str(uuid.uuid4()), response_url=stand_in.response_url("d")))
    door.work()
    assert not Feedback.objects.exists()
    told = [response["text"] for response in stand_in.responses]
    assert "link CODE" in told[0]
    assert all("cannot be rated" in text for text in told[1:])


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("<@U0BOT> why &lt;T&gt; &amp;&amp; x?", "why <T> && x?"),
        ("see <https://a.example/x|a.example> and <https://b.example>", "see a.example and https://b.example"),
        ("List<String> <!here> in <#C1|general>", "List<String>  in general"),
    ],
)
def test_it_reads_what_was_typed(typed: str, read: str) -> None:
    assert slack.question_of(typed) == read


def test_it_has_a_manifest_that_fits() -> None:
    """Slack would send events to addresses that are not there, or refuse calls for want of a scope."""
    page = (PROJECT / "docs/slack.md").read_text()
    manifest = page.split("```yaml\n")[1].split("```")[0]
    paths = re.findall(r"https://code\.example\.org(/\S+)", manifest)
    assert sorted(paths) == sorted(reverse(name) for name in ("slack_commands", "slack_events", "slack_interactions"))
    for scope in ("app_mentions:read", "chat:write", "commands", "im:history", "im:write", "reactions:write"):
        assert scope in manifest
    assert "bot_events: [app_mention, message.im]" in manifest
