"""What the protocol adds: `search_code` by the official client over HTTP beside the same function in this process.

    python -m tests.mcp_latency --data-dir DIR [--calls 50]

DIR holds indexes (see `api_load.py`). Both are called in turns, so that whatever else the machine does weighs on both;
prints one JSON document with medians and their difference.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.api_load import QUESTIONS, make_token, manage, server


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    begun = time.perf_counter()
    await work()
    return (time.perf_counter() - begun) * 1000


async def measure(port: int, secret: str, calls: int) -> dict[str, Any]:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    from assistant import mcp_tools
    from assistant.api import caller_of
    from assistant.threads import in_thread
    from search.api import ScopeIn

    caller = await in_thread(caller_of, secret)
    assert caller is not None
    here: list[float] = []
    there: list[float] = []
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}, timeout=120) as http,
        Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)) as client,
    ):
        for number in range(calls + len(QUESTIONS)):
            question = QUESTIONS[number % len(QUESTIONS)]
            inside = await timed(
                lambda asked=question: in_thread(mcp_tools.search_code, caller, asked, ScopeIn(), 8, 2000)
            )
            outside = await timed(lambda asked=question: client.call_tool("search_code", {"question": asked}))
            if number >= len(QUESTIONS):  # the first round warms both up
                here.append(inside)
                there.append(outside)
    added = statistics.median(there) - statistics.median(here)
    return {
        "calls": calls,
        "in_process_ms": {"p50": round(statistics.median(here), 1), "p95": round(sorted(here)[int(calls * 0.95)], 1)},
        "mcp_ms": {"p50": round(statistics.median(there), 1), "p95": round(sorted(there)[int(calls * 0.95)], 1)},
        "added_ms": round(added, 1),
        "ratio": round(statistics.median(there) / statistics.median(here), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.mcp_latency")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--calls", type=int, default=50)
    options = parser.parse_args()
    environment = {"ENV_FILE": os.devnull, "DATA_DIR": str(options.data_dir), "OMP_NUM_THREADS": "1"}
    os.environ |= environment | {"DJANGO_SETTINGS_MODULE": "assistant.settings"}
    manage(os.environ.copy(), "migrate", "--verbosity", "0")
    secret = make_token(os.environ.copy(), 10**8)
    import django

    django.setup()
    with server(os.environ.copy()) as (port, _pid):
        print(json.dumps(asyncio.run(measure(port, secret, options.calls)), indent=2))


if __name__ == "__main__":
    main()
