"""Bodies without end, as a client sends them, against the whole application."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from assistant import asgi
from assistant.body_limit import MAX_BODY_BYTES

pytestmark = pytest.mark.django_db(transaction=True)
BLOCK = b"x" * 65_536


async def send(path: str, blocks: Iterator[bytes], **headers: str) -> tuple[int, Any, int]:
    """Status, body, and how many blocks were taken."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"localhost"), *((name.encode(), value.encode()) for name, value in headers.items())],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 4711),
    }
    taken = 0
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        nonlocal taken
        block = next(blocks, None)
        if block is None:
            return {"type": "http.disconnect"}
        taken += 1
        return {"type": "http.request", "body": block, "more_body": True}

    async def answer(message: Any) -> None:
        sent.append(dict(message))

    await asgi.application(scope, receive, answer)
    assert [message["type"] for message in sent[:2]] == ["http.response.start", "http.response.body"]
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent), taken


@pytest.mark.parametrize("path", ["/api/v1/search", "/sign-in/", "/slack/events/", "/webhooks/1/", "/nowhere/"])
async def test_it_takes_no_more_of_a_body_than_its_limit(path: str) -> None:
    status, body, taken = await send(path, (BLOCK for _ in range(10_000)))
    assert (status, json.loads(body)["error"]["code"]) == (413, "body_too_large")
    assert taken == MAX_BODY_BYTES // len(BLOCK) + 1


async def test_it_reads_nothing_of_a_body_that_is_announced_too_large() -> None:
    status, _body, taken = await send("/nowhere/", iter([BLOCK]), **{"content-length": str(MAX_BODY_BYTES + 1)})
    assert (status, taken) == (413, 0)


async def test_it_passes_on_what_fits() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": message["body"]})

    asgi._agents.append(app)
    try:
        assert await send("/mcp", iter([b"x" * MAX_BODY_BYTES])) == (200, b"x" * MAX_BODY_BYTES, 1)
    finally:
        asgi._agents.clear()
