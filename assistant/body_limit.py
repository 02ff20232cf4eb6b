"""ASGI layer: no request brings more than MAX_BODY_BYTES, whoever sends it.

Django keeps a whole body, on disk when it is large, before anything of ours has looked at the request: whoever knows
the address could fill the disk. Here the body is counted as it comes, and refused with 413 where it grows too large.
The smaller limit of the API is its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

MAX_BODY_BYTES = 2 * 1024 * 1024  # as DATA_UPLOAD_MAX_MEMORY_SIZE: no form takes files

Scope = dict[str, Any]  # Any: ASGI messages are open mappings
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


async def bounded(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request of `app`, or refuse it."""
    if _declared_bytes(scope) > MAX_BODY_BYTES:
        await _refuse(send)
        return
    body = _Body(receive, send)
    await app(scope, body.receive, body.send)
    if body.too_large and not body.answered:
        await _refuse(send)


class _Body:
    """To the application, a client that sends too much is one that went away."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._bytes = 0
        self.answered = self.too_large = False

    async def receive(self) -> dict[str, Any]:  # Any: as above
        if not self.too_large:
            message = await self._receive()
            self._bytes += len(message.get("body", b""))
            self.too_large = self._bytes > MAX_BODY_BYTES
        return {"type": "http.disconnect"} if self.too_large else message

    async def send(self, message: Mapping[str, Any]) -> None:  # Any: as above
        self.answered = True
        await self._send(message)


def _declared_bytes(scope: Scope) -> int:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(declared[:20]) if declared.isdigit() else 0


async def _refuse(send: Send) -> None:
    """In the shape of the API's errors. The connection ends: the rest of the body is still on its way."""
    request_id = uuid.uuid4().hex
    message = f"A body has at most {MAX_BODY_BYTES:,} bytes."
    error = {"error": {"code": "body_too_large", "message": message, "request_id": request_id}}
    headers = {"Content-Type": "application/json", "Connection": "close", "X-Request-ID": request_id}
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 413, "headers": raw})
    await send({"type": "http.response.body", "body": json.dumps(error).encode()})
