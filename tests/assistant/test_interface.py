"""Numbers, sizes and times in words; bars without a style attribute."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from assistant.templatetags import interface


@pytest.mark.parametrize(
    ("size", "words"),
    [(0, "0 bytes"), (999, "999 bytes"), (2_100_000, "2.1 MB"), (618_000, "618 KB"), (18_200_000_000, "18.2 GB")],
)
def test_it_writes_sizes(size: int, words: str) -> None:
    assert interface.bytesize(size) == words


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (timedelta(seconds=58), "58 s ago"),
        (timedelta(minutes=4), "4 min ago"),
        (timedelta(hours=2), "2 h ago"),
        (timedelta(days=1), "yesterday"),
        (timedelta(days=3), "3 days ago"),
    ],
)
def test_it_writes_how_long_ago(passed: timedelta, words: str) -> None:
    assert interface.ago(timezone.now() - passed) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(None, ""), (1, "about 5 s left"), (38, "about 40 s left"), (150, "about 2 min left")]
)
def test_it_rounds_the_time_left(seconds: float | None, words: str) -> None:
    assert interface.left(seconds) == words


def test_it_draws_a_bar_of_things_done_out_of_things_known() -> None:
    assert 'aria-valuenow="38"' in interface.meter(90, 236, "Files")
    assert '<rect width="38%"' in interface.meter(90, 236, "Files")
    assert interface.meter(5, 0, "Files") == ""


def test_it_never_draws_past_the_end() -> None:
    assert interface.percent(12, 10) == 100
    assert interface.percent(-1, 10) == 0


def test_it_escapes_labels() -> None:
    assert "<b>" not in interface.meter(1, 2, '"><b>')


@pytest.mark.parametrize(
    ("host", "here"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("10.0.0.7", False), ("gpu.lan", False), ("", False)],
)
def test_it_knows_the_names_of_its_own_machine(host: str, here: bool) -> None:
    assert interface.is_this_machine(host) == here
