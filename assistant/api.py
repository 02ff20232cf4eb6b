"""The JSON API at `/api/v1/`: routers of all rooms, who may call them, how often, and what errors look like.

The only place that maps errors to HTTP statuses and that injects authentication: each operation needs a token with
one scope. Reading needs `read`; what changes something needs `ask` or `write`.
"""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from ninja import Field, NinjaAPI, Schema, Status
from ninja.errors import HttpError, ValidationError
from ninja.security import HttpBearer

import indexing.api
import indexing.webhook_api
import search.api
import search.evaluation_api
from assistant import chat_api, health, idempotency, tokens
from assistant.api_border import error_response
from assistant.chat_api import TokenCaller
from assistant.errors import AlreadyAsked, AssistantError, InvalidCallback, InvalidQuestion, SourceNotFound
from assistant.models import ApiToken
from assistant.observing import current_request_id
from indexing.connections import let_go
from indexing.errors import IndexingError, InvalidCursor, InvalidLogin, InvalidSource
from search.errors import SearchError

log = logging.getLogger(__name__)
MAX_MESSAGE_CHARS = 1000
STATUSES: tuple[tuple[type[Exception], int], ...] = (  # the first that fits
    (InvalidSource, 422),
    (InvalidLogin, 422),
    (InvalidCursor, 422),
    (IndexingError, 409),
    (SearchError, 422),
    (InvalidQuestion, 422),
    (InvalidCallback, 422),
    (SourceNotFound, 404),
    (AlreadyAsked, 409),
    (AssistantError, 409),
    (Http404, 404),
)


class ErrorBody(Schema):
    code: str = Field(description="For programs; does not change")
    message: str = Field(description="For people")
    request_id: str


class ErrorOut(Schema):
    """The one shape of every error."""

    error: ErrorBody


class HealthOut(Schema):
    status: str
    checks: dict[str, bool]


class TokenAuth(HttpBearer):
    """`Authorization: Bearer cba_...` of a token with `scope`, or with `reading` for a GET."""

    def __init__(self, scope: str, *, reading: str = "") -> None:
        super().__init__()
        self.scope = scope
        self.reading = reading or scope

    def authenticate(self, request: HttpRequest, token: str) -> TokenCaller | None:
        caller = caller_of(token)
        if caller is None or caller.token is None:
            return None
        allowance = tokens.count_request(caller.token)
        request.allowance = allowance  # type: ignore[attr-defined]  # for the headers
        if allowance.refusal:
            raise HttpError(429, allowance.refusal)
        needed = self.reading if request.method in ("GET", "HEAD") else self.scope
        if needed not in caller.token.scopes:
            raise HttpError(403, f"This token lacks the scope `{needed}`. Make one that has it.")
        idempotency.begin(request, caller.token, caller.principal)
        let_go()  # an async operation's next query may be a while away, and hundreds may be asked at once
        return caller


def caller_of(secret: str) -> TokenCaller | None:
    row = tokens.find(secret)
    if row is None:
        return None
    is_staff = row.user.is_staff and ApiToken.Scope.ADMIN in row.scopes
    return TokenCaller(user=row.user, principal=tokens.principal_of(row), is_staff=is_staff, token=row)


class Api(NinjaAPI):
    def get_openapi_schema(self, **options: Any) -> Any:  # Any: as ninja has it
        """With what every operation has, and ninja leaves out: errors, limits, ETags, idempotency keys."""
        schema = super().get_openapi_schema(**options)
        schema["components"]["schemas"] |= _error_schemas()
        schema["components"]["headers"] = {name: _header(text) for name, text in LIMIT_HEADERS.items()}
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                for status in _errors_of(operation):
                    operation["responses"].setdefault(status, _error_description(status))
                _complete(path, method, operation)
        return schema


LIMIT_HEADERS = {
    "RateLimit-Limit": "Requests that this token may send in a minute",
    "RateLimit-Remaining": "Those that are left of this minute",
    "RateLimit-Reset": "Seconds until the next minute begins",
    "Quota-Limit": "Requests that this token may send in a day (UTC)",
    "Quota-Remaining": "Those that are left of this day",
    "Quota-Reset": "Seconds until the next day begins",
}


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:  # Any: OpenAPI
    given, responses = operation.setdefault("parameters", []), operation["responses"]
    if method == "get":
        given.append(_parameter("If-None-Match", "ETags: what has not changed is answered with 304 and no body"))
        responses[304] = {"description": "Not Modified"}
    elif method == "post" and path not in idempotency.OWN_KEYS:
        key = _parameter(idempotency.HEADER, "The same key of the same token does it once, for a day")
        key["schema"]["maxLength"] = idempotency.MAX_KEY_CHARS
        given.append(key)
    if "security" in operation:
        headers = {name: {"$ref": f"#/components/headers/{name}"} for name in LIMIT_HEADERS}
        for status, response in responses.items():
            if int(status) not in (401, 500):
                response["headers"] = response.get("headers", {}) | headers
        responses[429]["headers"] |= {"Retry-After": _header("Seconds to wait")}


def _parameter(name: str, text: str) -> dict[str, Any]:  # Any: OpenAPI
    return {"in": "header", "name": name, "required": False, "schema": {"type": "string"}, "description": text}


def _header(text: str) -> dict[str, Any]:  # Any: OpenAPI
    return {"schema": {"type": "integer"}, "description": text}


def _error_schemas() -> dict[str, Any]:  # Any: OpenAPI
    whole = ErrorOut.model_json_schema(ref_template="#/components/schemas/{model}")
    return {**whole.pop("$defs"), "ErrorOut": whole}


def _errors_of(operation: dict[str, Any]) -> list[int]:  # Any: OpenAPI
    found = [400, 413, 415, 422, 500]
    if "security" in operation:
        found += [401, 403, 404, 409, 429]
    return sorted(found)


def _error_description(status: int) -> dict[str, Any]:  # Any: OpenAPI
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}}
    return {"description": HTTPStatus(status).phrase, "content": content}


api = Api(
    title="Codebase assistant",
    version="1",
    urls_namespace="api-v1",
    description="Search and ask about indexed code. Every request but `health` needs a token of the account page. "
    "Every GET may be sent as HEAD.",
)
api.add_router("/repositories", indexing.api.router, auth=TokenAuth("write", reading="read"))
api.add_router("/repositories", indexing.webhook_api.router, auth=TokenAuth("write", reading="read"))
api.add_router("/search", search.api.router, auth=TokenAuth("read"))
api.add_router("/evaluations", search.evaluation_api.router, auth=TokenAuth("read"))
api.add_router("", chat_api.router, auth=TokenAuth("ask", reading="read"))


@api.get(
    "/health",
    response={200: HealthOut, 503: HealthOut},
    auth=None,
    tags=["health"],
    summary="Can this serve?",
    operation_id="health",
)
def get_health(request: HttpRequest) -> Status[dict[str, Any]]:  # Any: JSON
    healthy, report = health.check("database", "index_volume")
    return Status(200 if healthy else 503, report)


def on_known_error(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    return error_response(request, status, str(error)[:MAX_MESSAGE_CHARS])


def on_http_error(request: HttpRequest, error: HttpError | type[HttpError]) -> HttpResponse:
    assert isinstance(error, HttpError)
    response = error_response(request, error.status_code, str(error)[:MAX_MESSAGE_CHARS])
    if error.status_code == HTTPStatus.UNAUTHORIZED:
        response = error_response(request, 401, "Send a valid token: `Authorization: Bearer cba_...`.")
        response.headers["WWW-Authenticate"] = "Bearer"
    allowance = getattr(request, "allowance", None)
    if error.status_code == HTTPStatus.TOO_MANY_REQUESTS and allowance is not None:
        response.headers["Retry-After"] = str(allowance.retry_seconds)
    return response


def on_invalid(request: HttpRequest, error: ValidationError | type[ValidationError]) -> HttpResponse:
    """Which fields, and why; never what was in them."""
    assert isinstance(error, ValidationError)
    lines = [f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors[:10]]
    return error_response(request, 422, "; ".join(lines)[:MAX_MESSAGE_CHARS])


def on_replayed(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    assert isinstance(error, idempotency.Replayed)
    return error.response


def on_bug(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    response = error_response(request, 500)
    log.error(
        "request %s failed",
        current_request_id(),
        exc_info=error if isinstance(error, Exception) else None,
    )
    return response


for _kind, _status in STATUSES:
    api.add_exception_handler(_kind, on_known_error)
api.add_exception_handler(idempotency.Replayed, on_replayed)
api.add_exception_handler(HttpError, on_http_error)
api.add_exception_handler(ValidationError, on_invalid)
api.add_exception_handler(Exception, on_bug)

urls = api.urls
for _pattern in urls[0]:
    # A token is asked for by the operations themselves, so the sign-in page must not come before them.
    _pattern.callback.login_required = False  # type: ignore[union-attr]
