"""Answers that are sent to an address: signed, tried again, and never into the network behind the server."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient
from django.utils import timezone
from pytest_django import Settings

from assistant import callbacks, chat_api, conversations, jobs, tasks, tokens
from assistant.errors import InvalidCallback
from assistant.models import Callback, Message
from indexing.models import Repository
from tests.assistant.api_client import ApiClient
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass
class Receiver:
    """Remembers what it got; answers the next of `statuses`, the last one again and again."""

    url: str
    statuses: list[int] = field(default_factory=lambda: [200])
    headers: dict[str, str] = field(default_factory=dict)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)

    def next(self) -> int:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


@pytest.fixture
def receiver(settings: Settings) -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.got.append((dict(self.headers.items()), body))
            self.send_response(found.next())
            for name, value in ({"Content-Length": "0"} | found.headers).items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found = Receiver(f"http://127.0.0.1:{server.server_port}/done?job=7")
    settings.CALLBACK_ALLOWED_HOSTS = ["127.0.0.1"]
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS})


@pytest.fixture
def api(user: User) -> ApiClient:
    return ApiClient(user, ["read", "ask"])


@pytest.fixture
def callback(api: ApiClient, user: User, repository: Repository, receiver: Receiver) -> Callback:
    """Of an answer that is complete."""
    message = conversations.start_message(user, "How?", request_id=uuid.uuid4(), token=api.token)
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, "src/sessions.py", "def sign")])
    conversations.finish(message.pk, 1, conversations.Ending(Message.State.DONE, [], answer="So [1].", cited=[1]))
    return callbacks.register(message, api.token, receiver.url, "https://code.example")


def deliver(callback: Callback) -> Callback:
    callbacks.deliver(callback.pk, chat_api.callback_body)
    callback.refresh_from_db()
    return callback


async def test_it_sends_an_answer_that_was_asked_for(
    api: ApiClient, repository: Repository, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    hit = await sync_to_async(hit_for)(repository, "src/sessions.py", "def sign")
    script_search(monkeypatch, [hit])
    script_model(monkeypatch, settings, ["It is signed [1]."])
    sent: list[int] = []
    monkeypatch.setattr(tasks.call_back, "delay", sent.append)
    response = await AsyncClient().post(
        "/api/v1/ask",
        json.dumps({"question": "How is it signed?", "callback_url": receiver.url}),
        content_type="application/json",
        headers=api.authorization,
    )
    assert response.status_code == 202
    assert response["Location"] == f"/api/v1/messages/{response.json()['message_id']}"
    assert response.json()["callback"]["state"] == "queued"
    for task in set(callbacks._following):
        await task
    await sync_to_async(callbacks.deliver)(sent[0], chat_api.callback_body)
    ((headers, body),) = receiver.got
    answer = json.loads(body)
    assert (answer["state"], answer["answer"]) == ("done", "It is signed [1].")
    assert answer["citations"][0]["url"].startswith("http://testserver/r/")
    polled = await sync_to_async(api.get)(f"/messages/{answer['message_id']}")
    assert polled.json()["callback"] == {"state": "done", "attempts": 1, "status": 200, "error": ""}


def test_it_signs_with_the_secret_of_the_token(api: ApiClient, callback: Callback, receiver: Receiver) -> None:
    secret = api.get("/callback-secret").json()["secret"]
    assert deliver(callback).state == "done"
    ((headers, body),) = receiver.got
    stamp = headers["X-Callback-Timestamp"]
    expected = hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
    assert headers["X-Callback-Signature"] == f"sha256={expected}"
    assert abs(time.time() - int(stamp)) < 60
    assert callbacks.signature(secret, int(stamp) + 1, body) != expected  # a replay cannot change its time
    other, _secret = tokens.create(api.token.user, "other", scopes=["ask"])
    assert callbacks.secret_of(other) != secret


def test_it_tries_again_until_it_is_taken(callback: Callback, receiver: Receiver) -> None:
    receiver.statuses = [500, 503, 429, 204]
    receiver.headers = {"Retry-After": "900"}
    ids = set()
    for attempt in range(4):
        assert callback.state == "queued"
        before = timezone.now()
        deliver(callback)
        waited = (callback.due_at - before).total_seconds()
        if attempt < 3:
            assert waited >= max(callbacks.WAITS[attempt], 900) - 1
            assert "answered" in callback.error
    assert (callback.state, callback.attempts, callback.status) == ("done", 4, 204)
    ids = {headers["X-Callback-Id"] for headers, _body in receiver.got}
    assert len(ids) == 1


def test_it_gives_up_after_the_last_wait(callback: Callback, receiver: Receiver) -> None:
    receiver.statuses = [500]
    for _ in range(len(callbacks.WAITS) + 1):
        deliver(callback)
    assert callback.state == "failed"
    assert "tried 6 times" in callback.error
    assert len(receiver.got) == 6
    assert jobs.recover(Callback, lambda pk: None) == 0


def test_it_parks_an_answer_that_cannot_be_written(callback: Callback, receiver: Receiver) -> None:
    def fail(row: Callback) -> bytes:
        raise ValueError("a bug, with code of somebody in its text")

    for _ in range(callbacks.MAX_ATTEMPTS):
        callbacks.deliver(callback.pk, fail)
    callback.refresh_from_db()
    assert callback.state == "failed"
    assert callback.error == "This server failed (ValueError); its log says where. It was tried 6 times."
    assert jobs.requeue(callback, lambda pk: None)
    assert deliver(callback).state == "done"
    assert len(receiver.got) == 1


def test_it_parks_an_answer_that_ends_every_worker(callback: Callback, receiver: Receiver) -> None:
    Callback.objects.update(state="running", attempts=callbacks.MAX_ATTEMPTS, due_at=timezone.now())
    assert deliver(callback).state == "failed"
    assert callback.error == jobs.DIED
    assert receiver.got == []


def test_it_does_not_repeat_what_the_receiver_refuses(callback: Callback, receiver: Receiver) -> None:
    receiver.statuses = [410]
    assert deliver(callback).state == "failed"
    assert callback.status == 410


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (b"HTTP/1.1 2", "queued"),
        (b"HTTP/1.1 200 OK\r\nX: ", "done"),  # it has taken the answer, whatever it goes on to say
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n", "done"),
    ],
)
def test_it_is_not_kept_by_a_receiver_that_answers_byte_by_byte(
    said: bytes, state: str, callback: Callback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks, "LONGEST_SECONDS", 1)
    cut = threading.Event()

    def drip(server: socket.socket) -> None:
        with server.accept()[0] as connection:
            try:
                connection.sendall(said)
                while True:
                    connection.sendall(b"0")
                    time.sleep(0.001)
            except OSError:
                cut.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=drip, args=(server,), daemon=True).start()
        Callback.objects.update(url=f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert deliver(callback).state == state
        assert cut.wait(5)


def test_it_follows_no_redirect(callback: Callback, receiver: Receiver) -> None:
    receiver.statuses = [302]
    receiver.headers = {"Location": "http://169.254.169.254/latest/"}
    assert deliver(callback).state == "failed"
    assert len(receiver.got) == 1


def test_it_waits_for_an_answer_that_is_being_written(callback: Callback, receiver: Receiver) -> None:
    Message.objects.update(state="running", leased_until=timezone.now() + timezone.timedelta(seconds=30))
    deliver(callback)
    assert (callback.state, callback.attempts, receiver.got) == ("queued", 0, [])
    Message.objects.update(leased_until=timezone.now())  # its process died
    deliver(callback)
    deliver(callback)
    assert json.loads(receiver.got[0][1])["state"] == "error"


@pytest.mark.parametrize("how", ["revoked", "deactivated", "unreadable", "deleted"])
def test_it_sends_nothing_once_the_rights_have_ended(
    how: str, callback: Callback, receiver: Receiver, user: User, other_user: User
) -> None:
    if how == "revoked":
        tokens.revoke(callback.token)
    elif how == "deactivated":
        User.objects.filter(pk=user.pk).update(is_active=False)
    elif how == "unreadable":
        Repository.objects.update(visibility="private", owner=other_user)
    else:
        user.delete()
        callbacks.deliver(callback.pk, chat_api.callback_body)
        assert not Callback.objects.exists()
        assert receiver.got == []
        return
    assert deliver(callback).state == "failed"
    assert "may not read this answer" in callback.error
    assert receiver.got == []


def test_it_resolves_again_each_time(callback: Callback, receiver: Receiver, settings: Settings) -> None:
    settings.CALLBACK_ALLOWED_HOSTS = []
    assert deliver(callback).state == "failed"
    assert "CALLBACK_ALLOWED_HOSTS" in callback.error
    assert receiver.got == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]:8000/",
        "http://169.254.169.254/latest/meta-data/",
        "http://10.0.0.1/",
        "http://2130706433/",
        "http://[::ffff:127.0.0.1]/",
        "http://0/",
        "http://localhost/",
        "ftp://code.example/",
        "file:///etc/passwd",
        "http://user:pass@code.example/",
        "http://code.example/\r\nX-Evil: 1",
        "http://[broken",
        "nonsense",
        "http://code.example:99999/",
    ],
)
def test_it_refuses_addresses_inside_and_what_is_no_address(api: ApiClient, url: str) -> None:
    with pytest.raises(InvalidCallback):
        callbacks.check_url(url)
    response = api.post("/ask", {"question": "How?", "callback_url": url})
    assert response.status_code == 422
    assert not Message.objects.exists()


def test_it_connects_to_the_address_that_was_checked(
    callback: Callback, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second answer of the DNS cannot lead elsewhere."""
    asked: list[str] = []

    def resolve(host: str, port: int, **_options: Any) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    monkeypatch.setattr(callbacks, "public_addresses", resolve)
    port = receiver.url.rsplit(":", 1)[1].split("/")[0]
    Callback.objects.update(url=f"http://ci.example:{port}/hook")
    assert deliver(callback).state == "done"
    assert asked == ["ci.example"]
    assert receiver.got[0][0]["Host"] == f"ci.example:{port}"
