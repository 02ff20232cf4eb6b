"""Every door, every kind of caller, the expected result: one table.

The doors come from the URL configuration and from the API's own description, so that a new door without a row fails
here; so do the tools that the MCP server names.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from mcp.server.mcpserver.exceptions import ToolError
from pytest_django import Settings

from assistant import answering, conversations, mcp, tokens
from assistant.api import api, caller_of
from assistant.models import ApiToken, Message, SlackAccount
from assistant.threads import in_thread
from indexing import embedding
from indexing.building import build_now
from indexing.models import GoldenSet, Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository
from tests.factories import COMMIT, make_conversation, make_index, make_message, make_repository, make_user
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db
SECRET = "acme/secret"
# Each has another way to, or no way to, the secret repository. A token has no session, so for pages it is nobody.
CALLERS = (
    *("anonymous", "stranger", "revoked", "restricted token", "service token elsewhere"),
    *("service token", "member", "group", "owner"),
)
PEOPLE = ("stranger", "revoked", "member", "group", "owner")
READERS = ("service token", "member", "group", "owner")
IN, HIDDEN, SIGN_IN = "in", "hidden", "sign in"


def _row(*, signed_out: str = SIGN_IN, tokens: str = SIGN_IN, others: str = IN, readers: str = IN) -> tuple[str, ...]:
    return (signed_out, others, others, tokens, tokens, tokens, readers, readers, IN)


# What each rule gives to each of CALLERS.
RULES = {
    "everyone": _row(signed_out=IN, tokens=IN),
    "signed in": _row(),
    "readers": _row(others=HIDDEN),
    "owner": _row(others=HIDDEN, readers=HIDDEN),
    "staff": (*_row(others=HIDDEN, readers=HIDDEN)[:-1], HIDDEN),
    "nobody": (*_row(others=HIDDEN, readers=HIDDEN)[:-1], HIDDEN),
    "API: token": _row(tokens=IN),
    "API: readers": (SIGN_IN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, IN, IN, IN, IN),
    "API: owner": (SIGN_IN, *[HIDDEN] * 7, IN),
    "API: staff": (SIGN_IN, *[HIDDEN] * 8),
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
    "citation_copied": ("nobody", "POST", ""),  # the message has no citations; see test_citation_uses.py
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
    "languages": ("staff", "GET", ""),
    "chunk_reviews": ("staff", "GET", ""),
    "chunk_review": ("staff", "GET", ""),
    "organisations": ("staff", "GET", ""),
    "synchronise_organisation": ("staff", "POST", ""),
    "forget_organisation": ("staff", "POST", ""),
    "repository_files": ("owner", "GET", ""),
    "repository_settings": ("owner", "GET", ""),
    "delete_repository": ("owner", "POST", ""),
    "dashboard": ("staff", "GET", ""),
    "evaluation": ("staff", "GET", ""),
    "search": ("signed in", "GET", "?q=cookie+signed"),
    "feedback_csv": ("staff", "GET", ""),
    "feedback_json": ("staff", "GET", ""),
    "add_evaluation_question": ("staff", "GET", ""),
    "tokens": ("signed in", "GET", ""),
    "revoke_token": ("owner", "POST", ""),
    "slack_account": ("signed in", "POST", ""),
    "unlink_slack_account": ("owner", "POST", ""),
    "command_line": ("everyone", "GET", ""),
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
    "preview_files": ("API: owner", {}),
    "read_code": ("API: readers", {}),
    "get_webhook": ("API: owner", {}),
    "renew_webhook_secret": ("API: owner", {}),
    "list_evaluation_runs": ("API: staff", {}),
    "get_evaluation_run": ("API: staff", {}),
    "start_evaluation_run": ("API: staff", {"set": "acme"}),
    "get_callback_secret": ("API: token", {}),
    "search": ("API: token", {"question": "How is the cookie signed?", "trace": True}),
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
# Tool -> arguments. Each tells of the secret repository, and only to its readers.
TOOLS: dict[str, dict[str, Any]] = {
    "mcp: search_code": {"question": "How is the cookie signed?"},
    "mcp: read_code": {"path": "src/sessions.py"},
    "mcp: list_repositories": {},
    "mcp: ask": {"question": "How is the cookie signed?"},
}
# Doors that believe a signature or a token of their own and nothing else: see tests/indexing/test_webhooks.py,
# tests/assistant/test_slack.py and tests/assistant/test_metrics_page.py.
SIGNED = {"webhook", "slack_events", "slack_commands", "slack_interactions", "metrics"}
READING_CODE = {"blob", "preview", "folder", "references", "changes", "similar_code", "read_code"}
SEARCHING = {"search", *TOOLS}
# Doors whose reply names the secret repository to who may read it, so that silence towards others means something.
TELLING = {"repositories", "complete", "search", "dock", "list_repositories", "get_repository"}
TELLING |= READING_CODE - {"preview"}


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
            "number": 1,
            "token": "made-up",
            "organisation_id": 1,
            "review_id": 1,
            "account_id": self.slack_account.pk,
            "run_id": 1,
        }


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> World:
    settings.SLACK_BOT_TOKEN = settings.SLACK_SIGNING_SECRET = "set"
    door = request.getfixturevalue("door")
    if door not in TOOLS:
        monkeypatch.setattr(answering, "start_answer", lambda message_id: None)
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    users = {name: make_user(name) for name in PEOPLE}
    private = {"owner": users["owner"], "visibility": "private"}
    if door in READING_CODE | SEARCHING:
        repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS}, SECRET, **private)
        if door in SEARCHING:
            build_now(repository)
            repository.refresh_from_db()
    else:
        repository = make_repository(SECRET, **private)
        make_index(repository, current=True)
    repository.members.set([users["member"], users["revoked"]])
    repository.members.remove(users["revoked"])
    repository.groups.add(Group.objects.create(name="readers"))
    users["group"].groups.add(Group.objects.get())
    message = make_message(make_conversation(users["owner"], title=SECRET), question=SECRET, state=Message.State.DONE)
    token, _secret = tokens.create(users["owner"], SECRET, scopes=["read"])
    account = SlackAccount.objects.create(user=users["owner"], team_id="T1", slack_user_id="U1")
    return World(repository, message, token, account, users)


def _authorization(world: World, caller: str) -> dict[str, str]:
    if caller == "anonymous":
        return {}
    return {"Authorization": f"Bearer {_secret_of(world, caller)}"}


def _secret_of(world: World, caller: str) -> str:
    scopes, owner = ApiToken.Scope.values, world.users["owner"]
    match caller:
        case "restricted token":
            return tokens.create(owner, caller, scopes=scopes, repositories=[make_repository()])[1]
        case "service token elsewhere":
            return tokens.create_service(owner, caller, scopes=scopes, repositories=[make_repository()])[1]
        case "service token":
            return tokens.create_service(owner, caller, scopes=scopes, repositories=[world.repository])[1]
    return tokens.create(world.users[caller], caller, scopes=scopes)[1]


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
    if caller not in READERS:
        assert not _tells(response), f"{caller} reads the name of the secret repository at {door}"
    elif door in TELLING and _outcome(response) == IN:
        assert _tells(response), f"{caller} does not see the secret repository at {door}"


@pytest.mark.parametrize("door", PAGES)
def test_it_lets_into_pages_whom_the_table_says(door: str, world: World) -> None:
    rule, method, query = PAGES[door]
    address = _address(door, world.ids) + query
    form = {"question": "Why?", "request_id": str(uuid.uuid4()), "title": "x", "source": "nonsense"}
    for caller in CALLERS:
        client = Client()
        if caller in world.users:
            client.force_login(world.users[caller])
        headers = _authorization(world, caller) if caller not in PEOPLE else {}
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


async def test_it_has_a_row_for_every_tool_of_the_mcp_server() -> None:
    assert {f"mcp: {tool.name}" for tool in await mcp.make_server().list_tools()} == set(TOOLS)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("door", TOOLS)
def test_it_tells_agents_only_what_their_token_may_read(door: str, world: World) -> None:
    place = {"repository_id": world.repository.pk, "commit": world.ids["commit"]} if "read_code" in door else {}
    for caller in CALLERS[1:]:
        text = asyncio.run(_called(_secret_of(world, caller), door.removeprefix("mcp: "), TOOLS[door] | place))
        told = SECRET in text or "def sign" in text
        assert told == (caller in READERS), f"{caller} at {door}: {text}"


async def _called(secret: str, tool: str, arguments: dict[str, Any]) -> str:
    caller = await in_thread(caller_of, secret)
    assert caller is not None
    mcp.current_caller.set(caller)
    try:
        return str(await mcp.make_server().call_tool(tool, arguments))
    except ToolError as error:
        return str(error)


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


@pytest.mark.parametrize("door", ["blob"])  # a repository whose code can be read
def test_it_shows_a_shared_answer_to_readers_of_its_sources_alone(door: str, world: World) -> None:
    message = _answered(world.users["owner"], world.repository)
    share = conversations.share(message.conversation)
    for caller in PEOPLE:
        client = Client()
        client.force_login(world.users[caller])
        html = client.get(f"/s/{share.token}/").content.decode()
        assert ("sign_of_the_secret" in html) == (SECRET in html) == (caller in READERS), caller


@pytest.mark.parametrize("door", ["blob"])
def test_it_names_a_golden_set_to_readers_of_one_of_its_repositories_alone(door: str, world: World) -> None:
    GoldenSet.objects.create(name="payments").repositories.add(world.repository)
    for caller in PEOPLE:
        client = Client()
        client.force_login(world.users[caller])
        offered = client.get("/complete/?typed=@set/pay").content.decode()
        assert ("payments" in offered) == (caller in READERS), caller


def _answered(person: User, repository: Repository) -> Message:
    message = conversations.start_message(person, "Where?", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, "src/sessions.py", "def sign")])
    text = "In `sign_of_the_secret` [1]."
    ending = conversations.Ending(Message.State.DONE, [], answer=text, answered_by="ollama/llama3.1", cited=[1])
    conversations.finish(message.pk, 1, ending)
    return message


def test_it_shows_a_person_whose_right_was_revoked_no_answer_from_there(tmp_path: Path) -> None:
    """The question is theirs and stays; what was read from the repository goes."""
    person = make_user("revoked")
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS}, SECRET, visibility="private")
    repository.members.add(person)
    message = _answered(person, repository)
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
