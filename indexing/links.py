"""Addresses of code: ids and commits, never names alone, because repositories get renamed."""

from __future__ import annotations

from urllib.parse import quote

from django.urls import reverse


def blob_url(
    repository_id: int,
    slug: str,
    commit: str,
    path: bytes,
    *,
    byte_range: tuple[int, int] = (0, 0),
    line_range: tuple[int, int] = (0, 0),
    message_id: object = None,
) -> str:
    """`/r/<id>/<slug>/blob/<commit>?path=<percent-encoded bytes>&bytes=<a>-<b>#L<x>-L<y>`.

    Empty ranges are left out. `message_id` opens the code beside the conversation it is cited in.
    """
    url = reverse("blob", args=[repository_id, slug, commit]) + f"?path={quote(path, safe='/')}"
    if byte_range[1]:
        url += f"&bytes={byte_range[0]}-{byte_range[1]}"
    if message_id is not None:
        url += f"&m={message_id}"
    return f"{url}#L{line_range[0]}-L{line_range[1]}" if line_range[0] else url


def parse_range(text: str) -> tuple[int, int]:
    """`a-b` -> (a, b); anything else is (0, 0), which marks nothing."""
    first, separator, last = text.partition("-")
    if not (separator and first.isdecimal() and last.isdecimal() and len(text) < 40):
        return 0, 0
    start, end = int(first), int(last)
    return (start, end) if start < end else (0, 0)
