"""Cursor pagination: rows of a queryset after the last row of the page before.

A cursor says where the page before ended, so rows that come or go meanwhile shift nothing. It is opaque and grants
nothing: the queryset is narrowed to what the reader may see before it gets here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from indexing.errors import InvalidCursor

PAGE_SIZE = 50
MAX_PAGE_SIZE = 200
MAX_CURSOR_CHARS = 500

Row = TypeVar("Row", bound=Model)


def page(
    rows: QuerySet[Row], cursor: str, limit: int, *, by: Sequence[str] = ("pk",), newest_first: bool = False
) -> tuple[list[Row], str]:
    """At most `limit` rows ordered by the fields `by`, and the cursor of the next page, empty at the end.

    Raises InvalidCursor.
    """
    ordered = rows.order_by(*(f"-{name}" if newest_first else name for name in by))
    try:
        if cursor:
            ordered = ordered.filter(_after(by, _decoded(cursor, len(by)), "lt" if newest_first else "gt"))
        found = list(ordered[: limit + 1])
    except (ValueError, TypeError, ValidationError) as error:
        raise InvalidCursor("This cursor was not made by this server. Begin again without one.") from error
    more = len(found) > limit
    return found[:limit], _encoded([getattr(found[limit - 1], name) for name in by]) if more else ""


def _after(by: Sequence[str], values: Sequence[Any], operator: str) -> Q:  # Any: a value of any field
    """(a, b) > (x, y) as a > x or (a = x and b > y)."""
    condition = Q(**{f"{by[-1]}__{operator}": values[-1]})
    for name, value in zip(reversed(by[:-1]), reversed(values[:-1]), strict=True):
        condition = Q(**{f"{name}__{operator}": value}) | (Q(**{name: value}) & condition)
    return condition


def _encoded(values: Sequence[Any]) -> str:  # Any: a value of any field
    plain = [
        value if isinstance(value, int) else value.isoformat() if hasattr(value, "isoformat") else str(value)
        for value in values
    ]
    return base64.urlsafe_b64encode(json.dumps(plain).encode()).decode().rstrip("=")


def _decoded(cursor: str, count: int) -> list[Any]:  # Any: JSON
    if len(cursor) > MAX_CURSOR_CHARS:
        raise ValueError("too long")
    values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    if not isinstance(values, list) or len(values) != count or any(not isinstance(v, int | str) for v in values):
        raise ValueError("not a cursor")
    return values
