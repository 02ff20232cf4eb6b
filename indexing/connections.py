"""This thread's database connections -> back to the pool, before it waits or works long without them."""

from __future__ import annotations

from django.db import connections


def let_go() -> None:
    """What a thread holds is missing from the pool for as long as it waits. Inside a transaction nothing happens."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


def return_to_pool() -> None:
    """As `let_go`, where there is a pool: SQLite has none, and opening its file again costs a search a millisecond."""
    for connection in connections.all(initialized_only=True):
        if connection.settings_dict["OPTIONS"].get("pool") and not connection.in_atomic_block:
            connection.close()
