"""Middleware: browsers keep no page. What was on one may be out of date by the next look at it, or another's by then.

Without it the back button shows a conversation without its last answer, and after signing out it shows code.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

Get = Callable[[HttpRequest], HttpResponseBase]
GetAsync = Callable[[HttpRequest], Awaitable[HttpResponseBase]]


@sync_and_async_middleware
def uncached_pages(get_response: Get | GetAsync) -> Get | GetAsync:
    if iscoroutinefunction(get_response):
        asynchronous = cast(GetAsync, get_response)

        async def answer(request: HttpRequest) -> HttpResponseBase:
            return _uncached(await asynchronous(request))

        return answer

    synchronous = cast(Get, get_response)
    return lambda request: _uncached(synchronous(request))


def _uncached(response: HttpResponseBase) -> HttpResponseBase:
    if response.headers.get("Content-Type", "").startswith("text/html"):
        response.headers.setdefault("Cache-Control", "private, no-store")
    return response
