from __future__ import annotations

import asyncio
from typing import Any

import pytest

from assistant import answering, asgi


async def test_it_ends_orphaned_answers_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    monkeypatch.setattr(answering, "end_orphans", lambda: steps.append("orphans ended"))
    monkeypatch.setattr(asgi, "_warm_up", lambda: None)
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    for kind in ("lifespan.startup", "lifespan.shutdown"):
        incoming.put_nowait({"type": kind})

    async def send(message: Any) -> None:
        steps.append(message["type"])

    await asgi.application({"type": "lifespan"}, incoming.get, send)
    assert steps == ["orphans ended", "lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_it_starts_without_a_model(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    from indexing import embedding
    from indexing.errors import EmbeddingError

    def missing() -> None:
        raise EmbeddingError("no weights in this place")

    monkeypatch.setattr(embedding, "get_embedder", missing)
    asgi._warm_up()
    assert "no weights in this place" in caplog.text
