"""The border of the API: tokens, limits, request ids, and one shape for every error."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from assistant import answering, tokens
from assistant.models import ApiToken
from search import pipeline
from tests.assistant.api_client import ApiClient, openapi
from tests.factories import COMMIT, make_conversation, make_index, make_message

pytestmark = pytest.mark.django_db
OPENAPI = openapi()
OPERATIONS = {
    row["operationId"]: (method.upper(), path, row)
    for path, rows in OPENAPI["paths"].items()
    for method, row in rows.items()
}
ALL = list(ApiToken.Scope.values)


def error_of(response: Any, status: int) -> dict[str, str]:
    assert response.status_code == status, response.content
    assert response["Content-Type"].startswith("application/json")
    error = response.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    assert error["request_id"] == response["X-Request-ID"]
    assert error["message"]
    return error


@pytest.fixture
def api(user: User) -> ApiClient:
    return ApiClient(user, ALL)


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer nothing", "Basic abc", "bearer cba_" + "x" * 43])
def test_it_asks_for_a_token(client: Client, header: str | None) -> None:
    response = client.get("/api/v1/repositories", headers={"Authorization": header} if header is not None else {})
    assert error_of(response, 401)["code"] == "unauthorized"
    assert response["WWW-Authenticate"] == "Bearer"


def test_it_does_not_take_a_session_for_a_token(user_client: Client) -> None:
    error_of(user_client.get("/api/v1/repositories"), 401)


def test_it_refuses_a_revoked_token(api: ApiClient) -> None:
    tokens.revoke(api.token)
    error_of(api.get("/repositories"), 401)


def test_it_asks_for_the_scope_of_the_operation(user: User) -> None:
    reader = ApiClient(user, ["read"])
    assert reader.get("/repositories").status_code == 200
    assert "`write`" in error_of(reader.post("/repositories", {"source": "https://github.com/a/b"}), 403)["message"]
    assert "`ask`" in error_of(reader.post("/ask", {"question": "Why?"}), 403)["message"]
    assert "`read`" in error_of(ApiClient(user, ["ask"]).post("/search", {"question": "x"}), 403)["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/repositories/999999999999999999999999", 404, "not_found"),
        ("GET", "/messages/not-a-uuid", 404, "not_found"),
        ("PUT", "/repositories", 405, "method_not_allowed"),
        ("GET", "/search", 405, "method_not_allowed"),
        ("GET", "/repositories?cursor=nonsense", 422, "invalid"),
        ("GET", "/repositories?cursor=WyJ4Il0", 422, "invalid"),
        ("GET", "/repositories?limit=0", 422, "invalid"),
    ],
)
def test_it_has_one_shape_for_every_error(api: ApiClient, method: str, path: str, status: int, code: str) -> None:
    assert error_of(api.request(method, path), status)["code"] == code


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b"\xff", 400),
        (b"[]", 422),
        (b"", 422),
        (b'{"question": 7}', 422),
        (b'{"question": ""}', 422),
        (b'{"question": "a", "unknown": 1}', 422),
        (b'{"question": "a", "limit": 1000}', 422),
        (b'{"question": "a", "repositories": ["nowhere"]}', 404),
        (b'{"question": "' + b"a" * 300_000 + b'"}', 413),
    ],
)
def test_it_refuses_bodies_that_make_no_sense(api: ApiClient, body: bytes, status: int) -> None:
    error_of(api.request("POST", "/search", body), status)


def test_it_takes_json_only(api: ApiClient) -> None:
    form = api.request("POST", "/search", b"question=a", content_type="application/x-www-form-urlencoded")
    assert error_of(form, 415)["code"] == "unsupported_media_type"


def test_it_says_which_field_is_wrong_but_not_what_was_in_it(api: ApiClient) -> None:
    message = error_of(api.post("/search", {"question": "x", "limit": "swordfish"}), 422)["message"]
    assert "limit" in message
    assert "swordfish" not in message


def test_it_keeps_a_request_id_that_makes_sense(api: ApiClient) -> None:
    assert api.get("/repositories", headers={"X-Request-ID": "build-42"})["X-Request-ID"] == "build-42"
    made = api.get("/repositories", headers={"X-Request-ID": "<b> {}"})["X-Request-ID"]
    assert len(made) == 32


def test_it_hides_a_bug_behind_the_request_id(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(pipeline, "search", broken)
    response = api.post("/search", {"question": "x"})
    assert error_of(response, 500)["code"] == "internal_error"
    assert "hunter2" not in response.content.decode()
    assert response["X-Request-ID"] in caplog.text


def test_it_counts_the_requests_of_a_minute(api: ApiClient, settings: Settings, user: User) -> None:
    settings.API_REQUESTS_PER_MINUTE = 2
    assert [api.get("/repositories")["RateLimit-Remaining"] for _ in range(2)] == ["1", "0"]
    refused = api.get("/repositories")
    assert error_of(refused, 429)["code"] == "too_many_requests"
    assert refused["RateLimit-Limit"] == "2"
    assert 0 < int(refused["Retry-After"]) <= 60
    assert ApiClient(user, ALL).get("/repositories").status_code == 200
    ApiToken.objects.update(minute=0)
    assert api.get("/repositories").status_code == 200


def test_it_counts_the_requests_of_a_day(api: ApiClient, settings: Settings) -> None:
    settings.API_REQUESTS_PER_DAY = 2
    assert [api.get("/repositories")["Quota-Remaining"] for _ in range(2)] == ["1", "0"]
    refused = api.get("/repositories")
    assert "of this day" in error_of(refused, 429)["message"]
    assert refused["Quota-Limit"] == "2"
    assert 0 < int(refused["Retry-After"]) <= 24 * 60 * 60
    ApiToken.objects.update(day=0)
    assert api.get("/repositories")["Quota-Remaining"] == "1"


def test_it_has_limits_of_a_token_of_its_own(api: ApiClient) -> None:
    ApiToken.objects.update(requests_per_minute=1, requests_per_day=7)
    assert api.get("/repositories")["Quota-Limit"] == "7"
    refused = api.get("/repositories")
    assert error_of(refused, 429)
    assert refused["Quota-Remaining"] == "6"  # what the minute refuses does not cost the day


def test_it_sends_what_was_read_once(api: ApiClient) -> None:
    first = api.get("/repositories")
    assert first["Cache-Control"] == "private, no-cache"
    assert "Authorization" in first["Vary"]
    again = api.get("/repositories", headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    make_index(current=True)
    assert api.get("/repositories", headers={"If-None-Match": first["ETag"]}).status_code == 200
    assert "ETag" not in api.get("/repositories/999", headers={"If-None-Match": first["ETag"]})


@pytest.mark.parametrize("path", ["/repositories", "/repositories/999", "/health", "/conversations?limit=0"])
def test_it_answers_head_as_get_without_a_body(api: ApiClient, path: str) -> None:
    read = api.get(path)
    head = api.client.head(f"/api/v1{path}", headers=api.authorization)
    assert (head.status_code, head.content) == (read.status_code, b"")
    assert head.get("ETag") == read.get("ETag")
    assert head["Content-Type"] == read["Content-Type"]


def test_it_answers_head_of_what_has_not_changed_with_304(api: ApiClient) -> None:
    known = api.authorization | {"If-None-Match": api.get("/repositories")["ETag"]}
    assert api.client.head("/api/v1/repositories", headers=known).status_code == 304


def test_it_allows_head_where_it_allows_get(api: ApiClient) -> None:
    refused = api.request("PUT", "/repositories")
    assert set(refused["Allow"].split(", ")) == {"GET", "HEAD", "POST"}
    refused = api.client.head("/api/v1/search", headers=api.authorization)
    assert (refused.status_code, refused["Allow"]) == (405, "POST")


def test_it_lets_pages_of_listed_origins_call(api: ApiClient, settings: Settings, client: Client) -> None:
    asking = {"Origin": "https://portal.example", "Access-Control-Request-Method": "POST"}
    refused = client.options("/api/v1/search", headers=asking)
    assert (refused.status_code, "Access-Control-Allow-Origin" in refused) == (204, False)
    assert "Access-Control-Allow-Origin" not in api.get("/repositories", headers=asking)
    settings.API_CORS_ORIGINS = ["https://portal.example"]
    allowed = client.options("/api/v1/search", headers=asking)
    assert allowed["Access-Control-Allow-Origin"] == "https://portal.example"
    assert "Authorization" in allowed["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in allowed
    for response in (api.get("/repositories", headers=asking), client.get("/api/v1/repositories", headers=asking)):
        assert response["Access-Control-Allow-Origin"] == "https://portal.example"
        assert "Origin" in response["Vary"]
    other = {"Origin": "https://other.example"}
    assert "Access-Control-Allow-Origin" not in api.get("/repositories", headers=other)


WEIRD: list[Any] = [
    "",
    "\0",
    "\ud800",
    "é🙂" * 50,
    "-1",
    "../../etc",
    "%00",
    "'\"<b>",
    -1,
    2**70,
    1.5,
    None,
    True,
    [],
    {},
]
VALID: dict[str, dict[str, Any]] = {
    "search": {"question": "a"},
    "ask": {"question": "a", "wait": False},
    "add_repository": {"source": "https://github.com/acme/new"},
    "update_repository": {},
    "rate_answer": {"helpful": True},
    "start_evaluation_run": {"set": "a"},
}


@dataclass
class Nonsense:
    """Requests of one operation, most of each valid and one part of it weird; the same ones in every run."""

    method: str
    path: str
    described: dict[str, Any]
    known: dict[str, str]
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    def requests(self) -> Iterator[tuple[str, Any]]:
        valid = VALID.get(self.described["operationId"])
        queries = [row["name"] for row in self.described["parameters"] if row["in"] == "query"]
        for weird in WEIRD:
            yield self.address(str(weird)), valid
            for name in queries:
                needed = {"commit": COMMIT, "path": "a.py"} if "commit" in queries else {}
                yield f"{self.address()}?{urlencode(needed | {name: str(weird)}, errors='replace')}", valid
            if valid is not None:
                yield self.address(), weird
                yield self.address(), valid | {self.chance.choice(self.fields()): weird}

    def address(self, weird: str | None = None) -> str:
        ids = self.known if weird is None else dict.fromkeys(self.known, quote(weird, safe="", errors="replace"))
        return self.path.removeprefix("/api/v1").format(**ids)

    def fields(self) -> list[str]:
        content = self.described["requestBody"]["content"]["application/json"]
        return list(OPENAPI["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]["properties"])


@pytest.mark.parametrize("operation", OPERATIONS)
def test_it_answers_nonsense_as_it_is_described(
    operation: str, api: ApiClient, user: User, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """Whatever is put into an address, a query or a body: no bug, and no reply that is not described."""
    monkeypatch.setattr(answering, "start_answer", lambda message_id: None)
    settings.API_REQUESTS_PER_MINUTE = 10_000
    message = make_message(make_conversation(user), state="done")
    ids = {"conversation_id": message.conversation_id, "message_id": message.pk}
    ids |= {"repository_id": make_index(current=True).repository_id, "run_id": 1}
    known = {name: str(pk) for name, pk in ids.items()}
    nonsense = Nonsense(*OPERATIONS[operation], known)
    stream = {"Accept": "text/event-stream"} if operation == "follow_answer" else {}
    for address, body in nonsense.requests():
        content = b"" if body is None else json.dumps(body).encode()
        assert api.request(nonsense.method, address, content, headers=stream).status_code < 500, (address, body)


def test_it_says_whether_it_can_serve_without_a_token(client: Client) -> None:
    response = client.get("/api/v1/health")
    assert (response.status_code, response.json()["status"]) == (200, "ok")


def test_it_describes_every_operation_with_its_errors(client: Client) -> None:
    schema = json.loads(client.get("/api/v1/openapi.json").content)
    operations = [operation for path in schema["paths"].values() for operation in path.values()]
    assert len(operations) >= 18
    for operation in operations:
        assert {"400", "413", "415", "422", "500"} <= set(operation["responses"]), operation["operationId"]
        if "security" in operation:
            assert {"401", "403", "404", "429"} <= set(operation["responses"])
    (ask,) = [operation for operation in operations if operation["operationId"] == "ask"]
    assert [row["name"] for row in ask["parameters"]] == ["Idempotency-Key"]
    assert set(ask["responses"]["200"]["content"]) == {"application/json", "text/event-stream", "application/jsonl"}
    assert "ErrorOut" in schema["components"]["schemas"]


def test_it_shows_its_documentation_without_other_hosts(client: Client) -> None:
    html = client.get("/api/v1/docs").content.decode()
    assert "swagger" in html
    assert "//cdn" not in html
    assert "<style" not in html
