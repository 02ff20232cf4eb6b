"""The program for laptops: against the real server, and against servers that break."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import pytest
from django.contrib.auth.models import User
from django.test import Client

from assistant import remote, tokens
from assistant.models import Conversation
from indexing import embedding
from indexing.building import build_now
from indexing.models import Repository
from tests.api_load import server
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_search
from tests.indexing.stub_embedder import StubEmbedder

ANSWER = {
    "answer": "So [1].",
    "answered_by": "m",
    "notices": [],
    "conversation_id": "c1",
    "citations": [
        {"number": 1, "cited": True, "repository": "a/b", "path": "x.py", "start_line": 1, "end_line": 2, "url": None}
    ],
}


class Fake:
    """Answers each request with the next of `replies`: (status, lines); a line None breaks the connection."""

    def __init__(self) -> None:
        self.replies: list[tuple[int, list[Any]]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.address = ""


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits that were asked for, in seconds."""
    waits: list[float] = []
    monkeypatch.setattr(remote, "time", SimpleNamespace(sleep=waits.append))
    return waits


@pytest.fixture
def fake() -> Iterator[Fake]:
    found = Fake()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found.requests.append((f"{self.command} {self.path}", dict(self.headers.items())))
            status, lines = found.replies.pop(0)
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/stolen")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in lines:
                if line is None:
                    self.wfile.flush()
                    self.connection.close()
                    return
                data = (json.dumps(line) if not isinstance(line, str) else line).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    found.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield found
    server.shutdown()
    server.server_close()


def run(fake: Fake, *arguments: str) -> int:
    return remote.main([*arguments, "--server", fake.address, "--token", "cba_x"])


def event(sequence: int, name: str, **data: Any) -> dict[str, Any]:
    return {"sequence": sequence, "event": name, "data": data}


def test_it_needs_nothing_but_python() -> None:
    tree = ast.parse(Path(remote.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_it_is_given_away_by_the_server_as_it_is(client: Client) -> None:
    response = client.get("/cli/codebase.py")
    assert response.content == Path(remote.__file__).read_bytes()
    assert "codebase.py" in response["Content-Disposition"]


def test_it_writes_an_answer_as_it_comes(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [event(0, "message", message_id="m1"), "", event(3, "text", text="So "), event(7, "text", text="[1].")]
    fake.replies = [(200, [*lines, event(8, "done"), event(8, "answer", **ANSWER)])]
    assert run(fake, "ask", "How?", "--repo", "a/b") == 0
    out = capsys.readouterr().out
    assert out == "So [1].\n\n[1] a/b x.py:1-2  \nconversation c1\n"
    assert fake.requests[0][1]["Authorization"] == "Bearer cba_x"


def test_it_goes_on_where_a_stream_broke(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.replies = [
        (200, [event(0, "message", message_id="m1"), event(3, "text", text="So "), None]),
        (200, [event(3, "message", message_id="m1"), event(7, "text", text="[1]."), event(8, "answer", **ANSWER)]),
    ]
    assert run(fake, "ask", "How?") == 0
    assert capsys.readouterr().out.startswith("So [1].\n")
    assert [where for where, _headers in fake.requests] == [
        "POST /api/v1/ask",
        "GET /api/v1/messages/m1/events?after=3",
    ]


def test_it_asks_again_under_the_same_key_when_nothing_came(fake: Fake) -> None:
    fake.replies = [(200, [None]), (200, [event(0, "message", message_id="m1"), event(1, "answer", **ANSWER)])]
    assert run(fake, "ask", "How?") == 0
    first, second = (headers["Idempotency-Key"] for _where, headers in fake.requests)
    assert first == second


def test_it_waits_for_a_server_that_starts_again(
    fake: Fake, no_waiting: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.replies = [
        (200, [event(0, "message", message_id="m1"), event(3, "text", text="So "), None]),
        (200, [event(3, "message", message_id="m1"), event(7, "text", text="[1]."), event(8, "answer", **ANSWER)]),
    ]
    opened, refusals = remote._opener.open, [URLError("refused"), URLError("refused")]

    def open_later(request: Any, timeout: float) -> Any:
        if no_waiting and refusals:
            raise refusals.pop()
        return opened(request, timeout=timeout)

    monkeypatch.setattr(remote._opener, "open", open_later)
    assert run(fake, "ask", "How?") == 0
    assert capsys.readouterr().out.startswith("So [1].\n")
    assert no_waiting == [1, 2, 4]


def test_it_gives_up_a_stream_that_always_breaks(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.replies = [(200, [None])] * 6
    assert run(fake, "ask", "How?") == 1
    assert "broke" in capsys.readouterr().err


def test_it_obeys_no_escape_sequence_of_a_repository(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x1b]0;owned\x07\x1b[2Jok\u202e"
    fake.replies = [(200, [event(0, "text", text=text), event(1, "answer", **ANSWER)])]
    run(fake, "ask", "How?")
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "ok" in out


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (401, "Send a valid token", 1),
        (403, "lacks the scope", 1),
        (404, "no repository", 2),
        (422, "limit", 2),
        (429, "used up", 1),
        (500, "failed", 1),
        (302, "302", 1),
    ],
)
def test_it_says_what_the_server_says(
    status: int, said: str, code: int, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.replies = [(status, [{"error": {"code": "x", "message": f"{said}.", "request_id": "r"}}])]
    assert run(fake, "search", "x") == code
    assert said in capsys.readouterr().err
    assert len(fake.requests) == 1  # a redirect would carry the token elsewhere


@pytest.mark.parametrize("line", ["<html>", "[]"])
def test_it_notices_that_it_is_another_server(line: str, fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.replies = [(200, [line])]
    assert run(fake, "search", "x") == 1
    assert "address of the server itself" in capsys.readouterr().err


def test_it_says_what_it_lacks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEBASE_TOKEN", raising=False)
    assert remote.main(["ask", "How?"]) == 2
    assert "CODEBASE_TOKEN" in capsys.readouterr().err
    assert remote.main(["ask", "How?", "--server", "code.example", "--token", "x"]) == 2
    assert remote.main(["ask", "How?", "--server", "http://127.0.0.1:9", "--token", "x"]) == 1
    with pytest.raises(SystemExit) as ended:
        remote.main(["ask"])
    assert ended.value.code == 2


@pytest.mark.django_db(transaction=True)
def test_it_searches_on_the_real_server(
    live_server: Any, user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository: Repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", "def sign(value: str) -> str:")])
    _token, secret = tokens.create(user, "laptop", scopes=["read"])
    command = [sys.executable, remote.__file__, "search", "sign", "--code", "--server", live_server.url]
    done = subprocess.run([*command, "--token", secret], capture_output=True, text=True, check=True)
    assert done.stdout == "acme/web src/sessions.py:4-4 sign\n    def sign(value: str) -> str:\n\n"
    refused = subprocess.run([*command, "--token", "cba_old"], capture_output=True, text=True, check=False)
    assert (refused.returncode, "401: Send a valid token" in refused.stderr) == (1, True)


@pytest.mark.django_db(transaction=True)
def test_it_asks_the_real_server(
    user: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_environment: dict[str, str]
) -> None:
    """From a person's laptop, as a program of its own, through uvicorn to an index and back; no model writes."""
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    build_now(real_repository(tmp_path, {"src/sessions.py": SESSIONS}, owner=user, visibility="private"))
    _token, secret = tokens.create(user, "laptop", scopes=["read", "ask"])
    with server(process_environment) as (port, _pid):
        address = {"CODEBASE_SERVER": f"http://127.0.0.1:{port}", "CODEBASE_TOKEN": secret}
        command = [sys.executable, remote.__file__, "ask", "def unsign", "--repo", "acme/web"]
        done = subprocess.run(command, env=os.environ | address, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"acme/web src/sessions.py:9-10  {address['CODEBASE_SERVER']}/r/" in done.stdout
    assert f"conversation {Conversation.objects.get().pk}" in done.stdout
