"""Middleware around every request: an id that logs and errors share, a count, and the time until it was answered.

The id is the caller's `X-Request-ID` when that is a plain word, else made here; it goes back in the same header.
Neither the query string nor a body is ever logged: questions and code stay out.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from indexing import counters

QUIET_ROUTES = frozenset({"healthz", "readyz", "metrics"})  # asked every few seconds

_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")
Get = Callable[[HttpRequest], HttpResponseBase]
GetAsync = Callable[[HttpRequest], Awaitable[HttpResponseBase]]

log = logging.getLogger(__name__)


def current_request_id() -> str:
    """Of the request that this code works for; empty in workers and commands."""
    return _current.get()


@sync_and_async_middleware
def observing(get_response: Get | GetAsync) -> Get | GetAsync:
    if iscoroutinefunction(get_response):
        asynchronous = cast(GetAsync, get_response)

        async def observe(request: HttpRequest) -> HttpResponseBase:
            begun = _begin(request)
            return _end(request, await asynchronous(request), begun)

        return observe

    synchronous = cast(Get, get_response)

    def observe_sync(request: HttpRequest) -> HttpResponseBase:
        begun = _begin(request)
        return _end(request, synchronous(request), begun)

    return observe_sync


def _begin(request: HttpRequest) -> float:
    given = request.headers.get("X-Request-ID", "")
    _current.set(given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex)
    return time.perf_counter()


def _end(request: HttpRequest, response: HttpResponseBase, begun: float) -> HttpResponseBase:
    seconds = time.perf_counter() - begun
    match = request.resolver_match
    route = (match.view_name if match else "") or "unknown"
    method = request.method if request.method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE") else "other"
    counters.requests.labels(method, route, str(response.status_code)).inc()
    counters.request_seconds.labels(route).observe(seconds)
    response.headers["X-Request-ID"] = current_request_id()
    if route not in QUIET_ROUTES:
        log.info(
            "%s %s %d in %.0f ms",
            method,
            route,
            response.status_code,
            seconds * 1000,
            extra={"route": route, "status": response.status_code, "milliseconds": round(seconds * 1000)},
        )
    _current.set("")  # the thread goes on with other work
    return response
