"""Every door, every kind of caller, the expected result: one table.

The doors come from the URL configuration and from the API's own description, so that a new door without a row fails
here. The tools of MCP run the same functions as the API and are checked in `tests/assistant/test_mcp.py`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from pytest_django import Settings

from assistant import answering, conversations, tokens
from assistant.api import api
from assistant.models import ApiToken, Message, SlackAccount
from indexing import embedding
from indexing.models import Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository
from tests.factories import COMMIT, make_conversation, make_index, make_message, make_repository, make_user
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db
SECRET = "acme/secret"
CALLERS = ("anonymous", "stranger", "revoked", "restricted token", "member", "owner")
IN, HIDDEN, SIGN_IN = "in", "hidden", "sign in"

# What each rule gives to each of CALLERS. A page takes no token, so there a token is as good as nothing.
RULES = {
    "everyone": (IN, IN, IN, IN, IN, IN),
    "signed in": (SIGN_IN, IN, IN, SIGN_IN, IN, IN),
    "readers": (SIGN_IN, HIDDEN, HIDDEN, SIGN_IN, IN, IN),
    "owner": (SIGN_IN, HIDDEN, HIDDEN, SIGN_IN, HIDDEN, IN),
    "staff": (SIGN_IN, HIDDEN, HIDDEN, SIGN_IN, HIDDEN, HIDDEN),
    "nobody": (SIGN_IN, HIDDEN, HIDDEN, SIGN_IN, HIDDEN, HIDDEN),
    "API: token": (SIGN_IN, IN, IN, IN, IN, IN),
    "API: readers": (SIGN_IN, HIDDEN, HIDDEN, HIDDEN, IN, IN),
    "API: owner": (SIGN_IN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, IN),
}

# Address name -> rule, method, query. `{...}` are the ids of the secret repository and of its owner's conversation.
PAGES = {
    "home": ("signed in", "GET", ""),
    "home_progress": ("signed in", "GET", ""),
    "ask": ("signed in", "POST", ""),
    "conversations": ("signed in", "GET", ""),
    "conversation": ("owner", "GET", ""),
    "ask_follow_up": ("owner", "POST", ""),
    "rename_conversation": ("owner", "POST", ""),
    "pin_conversation": ("owner", "POST", ""),
    "delete_conversation": ("owner", "POST", ""),
    "export_conversation": ("owner", "GET", ""),
    "export_conversation_json": ("owner", "GET", ""),
    "share_conversation": ("owner", "POST", ""),
    "shared": ("nobody", "GET", ""),  # a made-up link; what a real one shows is in test_views.py
    "answer": ("owner", "GET", ""),
    "answer_events": ("owner", "GET", ""),
    "stop_answer": ("owner", "POST", ""),
    "retry_answer": ("owner", "POST", ""),
    "continue_answer": ("owner", "POST", ""),
    "edit_question": ("owner", "POST", ""),
    "feedback": ("owner", "POST", ""),
    "trace": ("owner", "GET", ""),
    "trace_json": ("owner", "GET", ""),
    "blob": ("readers", "GET", "?path=src/sessions.py"),
    "preview": ("readers", "GET", "?path=src/sessions.py&bytes=0-10"),
    "folder": ("readers", "GET", "?path=src"),
    "references": ("readers", "GET", "?path=src/sessions.py&symbol=sign"),
    "changes": ("readers", "GET", "?path=src/sessions.py&bytes=0-10"),
    "similar_code": ("readers", "GET", "?path=src/sessions.py&bytes=0-10"),
    "complete": ("signed in", "GET", "?typed=@acme"),
    "dock": ("signed in", "GET", ""),
    "diagram": ("everyone", "GET", ""),
    "repositories": ("signed in", "GET", "?q=acme"),
    "add_repository": ("signed in", "POST", ""),
    "probe_repository": ("signed in", "POST", ""),
    "repository_row": ("readers", "GET", ""),
    "skipped_files": ("readers", "GET", ""),
    "update_repository": ("readers", "POST", ""),
    "stop_build": ("owner", "POST", ""),
    "set_golden": ("staff", "POST", ""),
    "repository_settings": ("owner", "GET", ""),
    "delete_repository": ("owner", "POST", ""),
    "dashboard": ("staff", "GET", ""),
    "evaluation": ("staff", "GET", ""),
    "search": ("signed in", "GET", "?q=acme"),
    "tokens": ("signed in", "GET", ""),
    "revoke_token": ("owner", "POST", ""),
    "slack_account": ("signed in", "POST", ""),
    "unlink_slack_account": ("owner", "POST", ""),
    "sign_in": ("everyone", "GET", ""),
    "sign_in_link": ("everyone", "GET", ""),
    "sign_out": ("signed in", "POST", ""),
    "healthz": ("everyone", "GET", ""),
    "readyz": ("everyone", "GET", ""),
    "api-v1:openapi-json": ("everyone", "GET", ""),
    "api-v1:openapi-view": ("everyone", "GET", ""),
}

# Operation -> rule, body.
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "list_repositories": ("API: token", {}),
    "add_repository": ("API: token", {"source": "https://github.com/acme/new"}),
    "get_repository": ("API: readers", {}),
    "update_repository": ("API: owner", {"description": "x"}),
    "delete_repository": ("API: owner", {}),
    "index_repository": ("API: readers", {}),
    "get_repository_status": ("API: readers", {}),
    "list_skipped_files": ("API: readers", {}),
    "read_code": ("API: readers", {}),
    "search": ("API: token", {"question": "acme", "trace": True}),
    "ask": ("API: token", {"question": "acme", "wait": False}),
    "get_answer": ("API: owner", {}),
    "follow_answer": ("API: owner", {}),
    "stop_answer": ("API: owner", {}),
    "rate_answer": ("API: owner", {"helpful": True}),
    "list_conversations": ("API: token", {}),
    "get_conversation": ("API: owner", {}),
    "delete_conversation": ("API: owner", {}),
    "health": ("everyone", {}),
}
# Doors that believe a signature or a token of their own and nothing else: see tests/indexing/test_webhooks.py,
# tests/assistant/test_slack.py and tests/assistant/test_metrics_page.py.
SIGNED = {"webhook", "slack_events", "slack_commands", "slack_interactions", "metrics"}
READING_CODE = {"blob", "preview", "folder", "references", "changes", "similar_code", "read_code"}


def _names(patterns: list[Any], namespace: str = "") -> Iterator[str]:
    """Of every address, but the admin's and the API's operations, which have doors of their own."""
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            if pattern.app_name != "admin":
                inner = f"{namespace}{pattern.namespace}:" if pattern.namespace else namespace
                yield from _names(pattern.url_patterns, inner)
        elif isinstance(pattern, URLPattern):
            yield f"{namespace}{pattern.name}"


def _operations() -> dict[str, tuple[str, str]]:
    paths = api.get_openapi_schema()["paths"]
    return {row["operationId"]: (method, path) for path, rows in paths.items() for method, row in rows.items()}


def test_it_has_a_row_for_every_page() -> None:
    of_operations = {f"api-v1:{row['name']}" for row in _operation_views()} | {"api-v1:api-root"}
    assert set(_names(get_resolver().url_patterns)) - of_operations == set(PAGES) | SIGNED


def _operation_views() -> Iterator[dict[str, str]]:
    for router in api._get_bound_routers():
        for view in router.path_operations.values():
            for operation in view.operations:
                yield {"name": view.url_name or operation.view_func.__name__}


def test_it_has_a_row_for_every_operation_of_the_api() -> None:
    assert set(_operations()) == set(OPERATIONS)


@dataclass
class World:
    """A secret repository with an owner and a member, and a conversation of the owner about it."""

    repository: Repository
    message: Message
    token: ApiToken
    slack_account: SlackAccount
    users: dict[str, User] = field(default_factory=dict)

    @property
    def ids(self) -> dict[str, Any]:
        return {
            "repository_id": self.repository.pk,
            "slug": "acme-secret",
            "commit": self.repository.current_index.commit if self.repository.current_index else COMMIT,
            "conversation_id": self.message.conversation_id,
            "message_id": self.message.pk,
            "token_id": self.token.pk,
            "token": "made-up",
            "account_id": self.slack_account.pk,
        }


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> World:
    settings.SLACK_BOT_TOKEN = settings.SLACK_SIGNING_SECRET = "set"
    monkeypatch.setattr(answering, "start_answer", lambda message_id: None)
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    users = {name: make_user(name) for name in ("stranger", "revoked", "member", "owner")}
    private = {"owner": users["owner"], "visibility": "private"}
    if request.getfixturevalue("door") in READING_CODE:
        repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS}, SECRET, **private)
    else:
        repository = make_repository(SECRET, **private)
        make_index(repository, current=True)
    repository.members.set([users["member"], users["revoked"]])
    repository.members.remove(users["revoked"])
    message = make_message(make_conversation(users["owner"], title=SECRET), question=SECRET, state=Message.State.DONE)
    token, _secret = tokens.create(users["owner"], SECRET, scopes=["read"])
    account = SlackAccount.objects.create(user=users["owner"], team_id="T1", slack_user_id="U1")
    return World(repository, message, token, account, users)


def _authorization(world: World, caller: str) -> dict[str, str]:
    if caller == "anonymous":
        return {}
    restricted = caller == "restricted token"
    user = world.users["owner" if restricted else caller]
    only = [make_repository()] if restricted else None
    _token, secret = tokens.create(user, caller, scopes=ApiToken.Scope.values, repositories=only)
    return {"Authorization": f"Bearer {secret}"}


def _outcome(response: Any) -> str:
    status, target = response.status_code, response.headers.get("Location", "")
    assert status not in (403, 405, 500), f"{status}: {response.content[:300]!r}"
    if status == 401 or target.startswith("/sign-in/?next="):
        return SIGN_IN
    return HIDDEN if status == 404 else IN


def _tells(response: Any) -> bool:
    return not response.streaming and SECRET in response.content.decode()


def _check(door: str, rule: str, caller: str, response: Any) -> None:
    assert _outcome(response) == RULES[rule][CALLERS.index(caller)], f"{caller} at {door}: {response.status_code}"
    if caller not in ("member", "owner"):
        assert not _tells(response), f"{caller} reads the name of the secret repository at {door}"


@pytest.mark.parametrize("door", PAGES)
def test_it_lets_into_pages_whom_the_table_says(door: str, world: World) -> None:
    rule, method, query = PAGES[door]
    address = _address(door, world.ids) + query
    form = {"question": "Why?", "request_id": str(uuid.uuid4()), "title": "x", "source": "nonsense"}
    for caller in CALLERS:
        client = Client()
        if caller in world.users:
            client.force_login(world.users[caller])
        headers = _authorization(world, caller) if caller == "restricted token" else {}
        form["request_id"] = str(uuid.uuid4())
        send = client.post if method == "POST" else client.get
        _check(door, rule, caller, send(address, form if method == "POST" else None, headers=headers))


def _address(door: str, ids: dict[str, Any]) -> str:
    found = get_resolver()
    for part in door.split(":")[:-1]:
        found = found.namespace_dict[part][1]
    ((_template, names),) = found.reverse_dict.getlist(door.split(":")[-1])[0][0]
    return reverse(door, kwargs={name: ids[name] for name in names})


@pytest.mark.parametrize("door", OPERATIONS)
def test_it_lets_into_the_api_whom_the_table_says(door: str, world: World) -> None:
    rule, body = OPERATIONS[door]
    method, path = _operations()[door]
    address = path.format(**world.ids)
    if door == "read_code":
        address += f"?commit={world.ids['commit']}&path=src/sessions.py"
    for caller in CALLERS:
        headers = {"Accept": "text/event-stream" if door == "follow_answer" else "*/*"} | _authorization(world, caller)
        content = json.dumps(body).encode() if body else b""
        response = Client().generic(method.upper(), address, content, "application/json", headers=headers)
        _check(door, rule, caller, response)


@pytest.mark.parametrize("caller", ["anonymous", "stranger", "owner"])
def test_it_answers_an_unsigned_webhook_as_if_there_were_no_repository(caller: str) -> None:
    owner = make_user("owner")
    repository = make_repository(SECRET, owner=owner, visibility="private")
    client = Client()
    if caller != "anonymous":
        client.force_login(owner if caller == "owner" else make_user(caller))
    known, unknown = (client.post(f"/webhooks/{pk}/", {}, "application/json") for pk in (repository.pk, 999_999))
    assert (known.status_code, known.content) == (unknown.status_code, unknown.content)
    assert known.status_code == 403


@pytest.mark.parametrize("caller", ["anonymous", "stranger", "member", "owner"])
def test_it_keeps_the_admin_for_staff(caller: str) -> None:
    client = Client()
    if caller != "anonymous":
        client.force_login(make_user(caller))
    for address in ("/admin/", "/admin/indexing/repository/", "/admin/assistant/message/"):
        assert client.get(address).status_code == 302


def test_it_shows_a_person_whose_right_was_revoked_no_answer_from_there(tmp_path: Path) -> None:
    """The question is theirs and stays; what was read from the repository goes."""
    person = make_user("revoked")
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS}, SECRET, visibility="private")
    repository.members.add(person)
    message = conversations.start_message(person, "Where?", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, "src/sessions.py", "def sign")])
    ending = conversations.Ending(Message.State.DONE, [], answer="In `sign_of_the_secret` [1].", cited=[1])
    conversations.finish(message.pk, 1, ending)
    repository.members.clear()
    client = Client()
    client.force_login(person)
    _token, secret = tokens.create(person, "mine", scopes=["read"])
    for address in (
        f"/c/{message.conversation_id}/",
        f"/c/{message.conversation_id}/export.md",
        f"/m/{message.pk}/trace.json",
        f"/api/v1/messages/{message.pk}",
        f"/api/v1/conversations/{message.conversation_id}",
    ):
        html = client.get(address, headers={"Authorization": f"Bearer {secret}"}).content.decode()
        assert "sign_of_the_secret" not in html, address
        assert SECRET not in html, address
