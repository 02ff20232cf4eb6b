"""The MCP server as the official client sees it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from pytest_django import Settings

from assistant import asgi, mcp, tokens
from assistant.models import ApiToken, Message
from indexing.models import Repository
from search.results import Hit
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search
from tests.factories import make_repository

pytestmark = pytest.mark.django_db(transaction=True)
PROJECT = Path(__file__).resolve().parents[2]
ADDRESS = "http://localhost/mcp"
TOOLS = {"search_code", "read_code", "list_repositories", "ask"}


@pytest.fixture
def repository(tmp_path: Path, user: User) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS}, owner=user, visibility="private")


@pytest.fixture
def hit(repository: Repository) -> Hit:
    return hit_for(repository, "src/sessions.py", "def sign(value: str) -> str:")


@pytest.fixture
def found(hit: Hit, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A search whose script is to find one passage."""
    return script_search(monkeypatch, [hit])


@pytest.fixture
def secret(user: User) -> str:
    return tokens.create(user, "agent", scopes=["read", "ask"])[1]


@contextlib.asynccontextmanager
async def agent(secret: str) -> AsyncIterator[Client]:
    """The official client, talking Streamable HTTP to the application in this process."""
    async with (
        mcp.running() as app,
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), headers={"Authorization": f"Bearer {secret}"}
        ) as http,
        Client(streamable_http_client(ADDRESS, http_client=http)) as client,
    ):
        yield client


async def text_of(client: Client, tool: str, **arguments: Any) -> tuple[bool, str]:
    result = await client.call_tool(tool, arguments)
    return bool(result.is_error), result.content[0].text


async def post(body: bytes = b"{}", **headers: str) -> Any:
    async with mcp.running() as app, httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as http:
        plain = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return await http.post(ADDRESS, content=body, headers=plain | headers)


async def test_it_lists_and_calls_each_tool(
    secret: str, found: Any, hit: Hit, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["It is signed [1]."])
    async with agent(secret) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        failed, listed = await text_of(client, "list_repositories", name="web")
        assert not failed
        assert f"acme/web commit={hit.commit} (Up to date)" in listed
        failed, code = await text_of(
            client,
            "read_code",
            repository_id=hit.repository_id,
            commit=hit.commit,
            path="src/sessions.py",
            start_line=4,
        )
        assert not failed
        assert 'def sign(value: str) -> str:\n    """Sign the cookie."""' in code
        failed, answer = await text_of(client, "ask", question="How is it signed?")
        assert not failed
        assert answer.startswith("It is signed [1].")
        assert f"[1] acme/web src/sessions.py, line {hit.start_line}" in answer


async def test_it_gives_no_answer_to_a_token_that_was_revoked_while_it_waited(
    secret: str, found: Any, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, ["It is signed [1]."])
    found.before = lambda: tokens.revoke(ApiToken.objects.get())
    async with agent(secret) as client:
        failed, told = await text_of(client, "ask", question="How is it signed?")
    assert failed
    assert "revoked" in told
    assert "It is signed" not in told


async def test_it_puts_coordinates_first_and_keeps_to_the_budget(
    secret: str, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = await sync_to_async(hit_for)(repository, "src/sessions.py", SESSIONS)
    script_search(monkeypatch, [long] * 8)
    async with agent(secret) as client:
        _failed, text = await text_of(client, "search_code", question="sign", max_tokens=700)
    assert text.startswith("[1] acme/web src/sessions.py:1-")
    assert text.index("[8] acme/web") < text.index("--- [1]")
    assert f"start_byte={long.start_byte} end_byte={long.end_byte}" in text
    assert len(text) <= 700 * 3


async def test_it_shows_no_code_of_others(other_user: User, repository: Repository, hit: Hit) -> None:
    _token, stranger = await sync_to_async(tokens.create)(other_user, "agent", scopes=["read", "ask"])
    async with agent(stranger) as client:
        assert await text_of(client, "list_repositories") == (False, "There is no such repository.")
        failed, text = await text_of(
            client, "read_code", repository_id=repository.pk, commit=hit.commit, path="src/sessions.py"
        )
        assert failed
        assert "may not read it" in text
        failed, text = await text_of(client, "search_code", question="sign", repositories=["acme/web"])
        assert failed
        assert "may not read it" in text
        failed, _text = await text_of(client, "ask", question="sign", repositories=[repository.pk])
        assert failed
    assert not await Message.objects.aexists()


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        (
            "ask",
            {"question": "Why?", "conversation_id": "the last one"},
            "conversation_id: Input should be a valid UUID",
        ),
        ("ask", {"question": ""}, "question: String should have at least 1 character"),
        ("search_code", {"question": "sign", "repositories": ["a\0b"]}, "must not contain NUL"),
    ],
)
async def test_it_says_which_argument_is_wrong(secret: str, tool: str, arguments: dict[str, Any], reason: str) -> None:
    async with agent(secret) as client:
        failed, text = await text_of(client, tool, **arguments)
    assert failed
    assert reason in text


async def test_it_holds_no_stream_open_on_which_nothing_would_come(secret: str) -> None:
    async with mcp.running() as app, httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as http:
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {secret}"}
        response = await http.get(ADDRESS, headers=headers)
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert response.json()["error"]["request_id"] == response.headers["X-Request-ID"]


async def test_it_reads_only_the_repositories_of_the_token(user: User, repository: Repository) -> None:
    other = await sync_to_async(make_repository)("acme/other")
    _token, narrow = await sync_to_async(tokens.create)(user, "agent", scopes=["read"], repositories=[other])
    async with agent(narrow) as client:
        _failed, listed = await text_of(client, "list_repositories")
        assert "acme/other" in listed
        assert "acme/web" not in listed
        failed, text = await text_of(client, "ask", question="Why?")
        assert failed
        assert "scope `ask`" in text


async def test_it_keeps_agents_apart_that_call_at_once(user: User, other_user: User, repository: Repository) -> None:
    names = {user: "acme/web", other_user: "There is no such repository."}
    async with mcp.running() as app, contextlib.AsyncExitStack() as stack:
        clients = []
        for person in names:
            _token, secret = await sync_to_async(tokens.create)(person, "agent", scopes=["read"])
            transport, headers = httpx2.ASGITransport(app=app), {"Authorization": f"Bearer {secret}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, headers=headers))
            clients.append(await stack.enter_async_context(Client(streamable_http_client(ADDRESS, http_client=http))))
        calls = [text_of(client, "list_repositories") for _ in range(10) for client in clients]
        listed = await asyncio.gather(*calls)
    for (_failed, text), name in zip(listed, [*names.values()] * 10, strict=True):
        assert name in text


async def test_it_says_what_is_wrong_with_a_call_and_hides_bugs(secret: str, found: Any) -> None:
    found.error = RuntimeError("password=hunter2")
    async with agent(secret) as client:
        failed, text = await text_of(client, "search_code", question="x")
        assert failed
        assert "hunter2" not in text
        failed, text = await text_of(client, "search_code", question="x", limit=1000)
        assert failed
        assert "limit" in text


async def test_it_refuses_requests_without_a_valid_token(secret: str) -> None:
    for headers in ({}, {"Authorization": "Bearer cba_made-up"}, {"Authorization": f"Basic {secret}"}):
        response = await post(**headers)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "unauthorized")
        assert response.headers["WWW-Authenticate"] == "Bearer"
    await ApiToken.objects.aupdate(revoked_at="2024-01-01T00:00:00Z")
    assert (await post(Authorization=f"Bearer {secret}")).status_code == 401


async def test_it_refuses_other_hosts_and_origins(secret: str) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        response = await post(**headers, Authorization=f"Bearer {secret}")
        assert response.status_code == 403


async def test_it_counts_requests_with_those_of_the_api(secret: str, settings: Settings) -> None:
    settings.API_REQUESTS_PER_MINUTE = 0
    response = await post(Authorization=f"Bearer {secret}")
    assert (response.status_code, response.json()["error"]["code"]) == (429, "too_many_requests")


async def test_it_refuses_a_body_that_is_too_large(secret: str, settings: Settings) -> None:
    settings.API_MAX_BODY_BYTES = 1000
    assert (await post(b" " * 2000, Authorization=f"Bearer {secret}")).status_code == 413


@pytest.mark.parametrize("installed", [True, False])
async def test_it_is_served_by_the_web_process(installed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "_start", lambda: None)
    monkeypatch.setattr(mcp, "installed", lambda: installed)
    started, ended = asyncio.Event(), asyncio.Event()
    incoming: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def send(message: Any) -> None:
        (started if message["type"].endswith("startup.complete") else ended).set()

    living = asyncio.create_task(asgi.application({"type": "lifespan"}, incoming.get, send))
    await incoming.put({"type": "lifespan.startup"})
    await asyncio.wait_for(started.wait(), 10)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=asgi.application)) as http:
        response = await http.post(ADDRESS, json={})
    assert response.status_code == (401 if installed else 501)
    if not installed:
        assert "codebase-assistant[mcp]" in response.json()["error"]["message"]
    await incoming.put({"type": "lifespan.shutdown"})
    await living
    assert ended.is_set()


def test_it_says_what_the_command_lacks(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.MCP_TOKEN = "cba_made-up"
    with pytest.raises(CommandError, match="not a valid token"):
        call_command("mcp")
    monkeypatch.setattr(mcp, "installed", lambda: False)
    with pytest.raises(CommandError, match="extra"):
        call_command("mcp")


async def test_it_serves_the_official_client_over_stdio(
    secret: str, repository: Repository, hit: Hit, process_environment: dict[str, str]
) -> None:
    """In a process of its own; a token that is revoked ends the next call."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-c", _STDIO],
        cwd=PROJECT,
        env={**process_environment, "MCP_TOKEN": secret},
    )
    async with Client(server, read_timeout_seconds=60) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        failed, text = await text_of(client, "search_code", question="sign")
        assert not failed
        assert text.startswith(f"[1] acme/web src/sessions.py:{hit.start_line}-")
        place = {"repository_id": repository.pk, "commit": hit.commit, "path": "src/sessions.py"}
        _failed, text = await text_of(client, "read_code", **place, start_byte=hit.start_byte, end_byte=hit.end_byte)
        assert "def sign(value: str) -> str:" in text
        assert "acme/web" in (await text_of(client, "list_repositories"))[1]
        failed, text = await text_of(client, "ask", question="How is it signed?")
        assert not failed
        assert "[1] acme/web src/sessions.py" in text
        await ApiToken.objects.aupdate(revoked_at="2024-01-01T00:00:00Z")
        failed, text = await text_of(client, "list_repositories")
        assert failed
        assert "was revoked" in text


_STDIO = """
import django

django.setup()
from django.core.management import call_command
from indexing.models import Repository
from search import pipeline
from tests.assistant.scripted import ScriptedSearch, hit_for

hit = hit_for(Repository.objects.get(), "src/sessions.py", "def sign(value: str) -> str:")
pipeline.search = ScriptedSearch((hit,))
call_command("mcp")
"""
