"""Blocking work from asyncio code, without a database connection that outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from django.db import connections

Result = TypeVar("Result")

# Short units only: what may take seconds brings its own executor.
_DATABASE = ThreadPoolExecutor(max_workers=4, thread_name_prefix="database")


def in_thread(
    work: Callable[..., Result],
    *arguments: Any,  # Any: the arguments of `work`
    executor: ThreadPoolExecutor = _DATABASE,
) -> asyncio.Future[Result]:
    """Run `work` in a thread that closes its connections. A future, not a task: nobody who stops waiting ends it."""

    def run() -> Result:
        try:
            return work(*arguments)
        finally:
            connections.close_all()

    return asyncio.get_running_loop().run_in_executor(executor, run)
