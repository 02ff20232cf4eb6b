"""This thread's database connections -> back to the pool, before it waits or works long without them."""

from __future__ import annotations

from django.db import connections


def let_go() -> None:
    """What a thread holds is missing from the pool for as long as it waits. Inside a transaction nothing happens."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
