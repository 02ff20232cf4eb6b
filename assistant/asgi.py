"""The ASGI entry point for uvicorn. Answers stream, so WSGI is not offered.

At start, answers that a crash left running are ended, and the embedding model and litellm are loaded beside the
first requests.
"""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")

Scope = dict[str, Any]  # Any: ASGI messages are open mappings
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Static files come from WhiteNoise as synchronous iterators; they are small, and read in one go. Our own streams are
# asynchronous, which tests against a real server show.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous iterators")

log = logging.getLogger(__name__)
_django = get_asgi_application()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await _django(scope, receive, send)


async def _live(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        if event["type"] == "lifespan.startup":
            await sync_to_async(_start)()
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


def _start() -> None:
    from assistant.answering import end_orphans
    from indexing import llm

    end_orphans()
    llm.warm_up()
    threading.Thread(target=_warm_up, daemon=True).start()


def _warm_up() -> None:
    """The first question should not wait for the model; without it, search by words goes on and says so."""
    from indexing.embedding import get_embedder
    from indexing.errors import EmbeddingError

    try:
        get_embedder().embed_queries(["warm up"])
    except EmbeddingError as error:
        log.warning("the embedding model is not ready: %s", error)
