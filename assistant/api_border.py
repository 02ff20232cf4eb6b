"""Middleware around `/api/`: bounded bodies, and one shape for every error, whoever made it.

    {"error": {"code": "not_found", "message": "...", "request_id": "..."}}

Django's own answers (an unknown address, a wrong method, a crash in another middleware) get that shape here; those
of the API's operations have it already. Nothing of a request but its id is logged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from assistant.observing import current_request_id

PREFIX = "/api/"
CODES = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "body_too_large",
    415: "unsupported_media_type",
    422: "invalid",
    429: "too_many_requests",
    500: "internal_error",
    503: "unavailable",
}
_MESSAGES = {
    400: "The request makes no sense to this server.",
    404: "There is nothing at this address, or this token may not see it.",
    405: "This address does not know that method; `Allow` lists those it does.",
    500: "This failed because of an error in this program. The server's log has it under the request id.",
}
Get = Callable[[HttpRequest], HttpResponseBase]
GetAsync = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@sync_and_async_middleware
def api_border(get_response: Get | GetAsync) -> Get | GetAsync:
    if iscoroutinefunction(get_response):
        asynchronous = cast(GetAsync, get_response)

        async def border(request: HttpRequest) -> HttpResponseBase:
            if not request.path_info.startswith(PREFIX):
                return await asynchronous(request)
            return _leave(request, _enter(request) or await asynchronous(request))

        return border

    synchronous = cast(Get, get_response)

    def sync_border(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(PREFIX):
            return synchronous(request)
        return _leave(request, _enter(request) or synchronous(request))

    return sync_border


def error_response(request: HttpRequest, status: int, message: str = "", *, code: str = "") -> JsonResponse:
    error = {
        "code": code or CODES.get(status, "error"),
        "message": message or _MESSAGES.get(status, "The request was refused."),
        "request_id": request_id(request),
    }
    return JsonResponse({"error": error}, status=status)


def request_id(request: HttpRequest) -> str:
    return current_request_id()


def _enter(request: HttpRequest) -> HttpResponseBase | None:
    """Read the body, or refuse the request."""
    limit = settings.API_MAX_BODY_BYTES
    declared = request.headers.get("Content-Length", "")
    too_large = f"A body has at most {limit:,} bytes."
    if declared.isdecimal() and int(declared[:20]) > limit:
        return error_response(request, 413, too_large)
    body = request.read(limit + 1)
    if len(body) > limit:
        return error_response(request, 413, too_large)
    request._body = body
    if body and request.content_type != "application/json":
        return error_response(request, 415, "Send JSON, with `Content-Type: application/json`.")
    return None


def _leave(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if response.status_code >= 400 and not response.headers.get("Content-Type", "").startswith("application/json"):
        shaped = error_response(request, response.status_code)
        if "Allow" in response.headers:
            shaped.headers["Allow"] = response.headers["Allow"]
        response = shaped
    allowance = getattr(request, "allowance", None)
    if allowance is not None:
        response.headers["RateLimit-Limit"] = str(allowance.limit)
        response.headers["RateLimit-Remaining"] = str(allowance.remaining)
        response.headers["RateLimit-Reset"] = str(allowance.reset_seconds)
    return response
