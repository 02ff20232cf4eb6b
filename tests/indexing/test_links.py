"""Addresses of code."""

from __future__ import annotations

import pytest

from indexing.links import blob_url, parse_range


def test_it_writes_ids_commit_percent_encoded_path_bytes_and_lines() -> None:
    url = blob_url(7, "pallets-flask", "c" * 40, b"src/caf\xe9 #1.py", byte_range=(12, 40), line_range=(3, 9))
    assert url == f"/r/7/pallets-flask/blob/{'c' * 40}?path=src/caf%E9%20%231.py&bytes=12-40#L3-L9"


def test_it_leaves_empty_ranges_out() -> None:
    assert blob_url(7, "x", "c" * 40, b"a.py") == f"/r/7/x/blob/{'c' * 40}?path=a.py"


@pytest.mark.parametrize("text", ["", "5", "9-3", "3-3", "-1-4", "a-b", "1-2-3", "1-" + "9" * 60, "²-³"])
def test_it_reads_nonsense_as_no_range(text: str) -> None:
    assert parse_range(text) == (0, 0)


def test_it_reads_a_range() -> None:
    assert parse_range("12-40") == (12, 40)
