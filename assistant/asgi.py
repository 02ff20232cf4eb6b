"""The ASGI entry point for uvicorn. Answers stream, so WSGI is not offered.

Coding agents are served at `/mcp` when the extra `mcp` is installed. At start, answers that a crash left running are
ended, and the embedding model and litellm are loaded beside the first requests.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application

from assistant.body_limit import bounded

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")

Scope = dict[str, Any]  # Any: ASGI messages are open mappings
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Static files come from WhiteNoise as synchronous iterators; they are small, and read in one go. Our own streams are
# asynchronous, which tests against a real server show.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

# Python's own 5 ms is what the loop, which streams, would wait for each time while threads search.
SWITCH_SECONDS = 0.001

log = logging.getLogger(__name__)
_django = get_asgi_application()


_agents: list[Any] = []  # Any: the ASGI application of /mcp, while the server lives


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _live(receive, send)
    elif scope["type"] == "http" and scope["path"] == "/mcp" and _agents:
        await bounded(_agents[0], scope, receive, send)
    elif scope["type"] == "http":
        await bounded(_django, scope, receive, send)


async def _live(receive: Receive, send: Send) -> None:
    await receive()  # lifespan.startup
    await sync_to_async(_start)()
    async with _serving_agents():
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
    await send({"type": "lifespan.shutdown.complete"})


@contextlib.asynccontextmanager
async def _serving_agents() -> AsyncIterator[None]:
    """The sessions of the SDK need a task group around the life of the server."""
    from assistant import mcp

    if not mcp.installed():
        _agents.append(mcp.not_installed)
        yield
    else:
        async with mcp.running() as app:
            _agents.append(app)
            yield
    _agents.clear()


def _start() -> None:
    from assistant.answering import end_orphans
    from indexing import llm
    from indexing.connections import let_go

    sys.setswitchinterval(SWITCH_SECONDS)
    end_orphans()
    let_go()  # no request tidies up this thread
    llm.warm_up()
    threading.Thread(target=_warm_up, daemon=True).start()


def _warm_up() -> None:
    """The first question should not wait for the model; without it, search by words goes on and says so."""
    from indexing.embedding import get_embedder
    from indexing.errors import EmbeddingError
    from search import pipeline

    pipeline.warm_up()
    try:
        get_embedder().embed_queries(["warm up"])
    except EmbeddingError as error:
        log.warning("the embedding model is not ready: %s", error)
