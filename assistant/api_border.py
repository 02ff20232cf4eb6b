"""Middleware around `/api/`: bounded bodies, ETags, CORS, and one shape for every error, whoever made it.

    {"error": {"code": "not_found", "message": "...", "request_id": "..."}}

Django's own answers (an unknown address, a wrong method, a crash in another middleware) get that shape here; those
of the API's operations have it already. Nothing of a request but its id is logged.

HEAD is GET whose body is left out: the operations see a GET, and the server in front sends headers alone.

Web pages of the origins in API_CORS_ORIGINS may call the API with a token; cookies are never taken, so none are asked
for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import cast

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control, patch_vary_headers
from django.utils.decorators import sync_and_async_middleware
from django.utils.http import quote_etag

from assistant import idempotency
from assistant.observing import current_request_id

PREFIX = "/api/"
TAKEN = "Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID, X-Request-ID"
EXPOSED = (
    "ETag, Idempotency-Replayed, Location, Quota-Limit, Quota-Remaining, Quota-Reset, RateLimit-Limit, "
    "RateLimit-Remaining, RateLimit-Reset, Retry-After, X-Request-ID"
)
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
            response = _enter(request) or await asynchronous(request)
            if idempotency.begun(request):
                await sync_to_async(_keep_reply)(request, response)
            return _leave(request, response)

        return border

    synchronous = cast(Get, get_response)

    def sync_border(request: HttpRequest) -> HttpResponseBase:
        if not request.path_info.startswith(PREFIX):
            return synchronous(request)
        response = _enter(request) or synchronous(request)
        if idempotency.begun(request):
            _keep_reply(request, response)
        return _leave(request, response)

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
    if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
        return _preflight(request)
    if request.method == "HEAD":
        request.method = "GET"
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


def _keep_reply(request: HttpRequest, response: HttpResponseBase) -> None:
    if isinstance(response, HttpResponse):
        idempotency.end(request, response)


def _leave(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if request.META["REQUEST_METHOD"] == "HEAD":
        request.method = "HEAD"
        response = _without_stream(response)
    response = _tagged(request, _shaped(request, response))
    allowance = getattr(request, "allowance", None)
    if allowance is not None:
        response.headers["RateLimit-Limit"] = str(allowance.limit)
        response.headers["RateLimit-Remaining"] = str(allowance.remaining)
        response.headers["RateLimit-Reset"] = str(allowance.reset_seconds)
        response.headers["Quota-Limit"] = str(allowance.quota)
        response.headers["Quota-Remaining"] = str(allowance.quota_remaining)
        response.headers["Quota-Reset"] = str(allowance.quota_reset_seconds)
    if origin := _allowed_origin(request):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Expose-Headers"] = EXPOSED
    if settings.API_CORS_ORIGINS:
        patch_vary_headers(response, ["Origin"])
    return response


def _without_stream(response: HttpResponseBase) -> HttpResponseBase:
    """A stream would be followed to its end for a body that nobody gets."""
    if not isinstance(response, StreamingHttpResponse):
        return response
    response.close()
    return HttpResponse(status=response.status_code, headers=dict(response.headers))


def _shaped(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if response.status_code >= 400 and not response.headers.get("Content-Type", "").startswith("application/json"):
        shaped = error_response(request, response.status_code)
        if "Allow" in response.headers:
            allowed = response.headers["Allow"].split(", ")
            shaped.headers["Allow"] = ", ".join([*allowed, *(["HEAD"] if "GET" in allowed else [])])
        response = shaped
    return response


def _tagged(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """What was read has an ETag, and is not sent again to whoever has it. Kept by nobody on the way."""
    if request.method not in ("GET", "HEAD") or not isinstance(response, HttpResponse) or response.status_code != 200:
        return response
    patch_cache_control(response, private=True, no_cache=True)
    patch_vary_headers(response, ["Authorization"])
    response.headers["ETag"] = quote_etag(hashlib.sha256(response.content).hexdigest()[:32])
    found = get_conditional_response(request, etag=response.headers["ETag"], response=response)
    assert found is not None  # it is `response` itself, or a 304 in its place
    return found


def _allowed_origin(request: HttpRequest) -> str:
    origin, allowed = request.headers.get("Origin", ""), settings.API_CORS_ORIGINS
    return origin if origin and (origin in allowed or "*" in allowed) else ""


def _preflight(request: HttpRequest) -> HttpResponse:
    """What a browser asks before a page of another origin may call."""
    response = HttpResponse(status=204)
    if _allowed_origin(request):
        response.headers["Access-Control-Allow-Methods"] = "GET, POST, PUT, PATCH, DELETE"
        response.headers["Access-Control-Allow-Headers"] = TAKEN
        response.headers["Access-Control-Max-Age"] = "3600"
    return response
