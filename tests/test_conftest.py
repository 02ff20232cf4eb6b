"""The rules that hold for all tests do hold."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from tests.factories import git, make_index, make_message, make_repo, make_repository


def test_it_keeps_tests_out_of_the_data_of_the_checkout(data_dir: Path) -> None:
    for used in (data_dir, Path(settings.DATABASES["default"]["NAME"])):
        assert not used.is_relative_to(settings.BASE_DIR)


def test_it_refuses_connections_that_leave_the_machine(no_network: list[str]) -> None:
    with socket.socket() as outside, pytest.raises(OSError, match="tests may not connect"):
        outside.connect(("192.0.2.1", 80))
    assert no_network == ["('192.0.2.1', 80)"]
    no_network.clear()


def test_it_makes_a_repository_with_the_same_commit_every_time(tmp_path: Path) -> None:
    first, second = (make_repo(tmp_path, {"a.py": "x = 1\n", "b/é": b"\0"}, name=name) for name in ("one", "two"))
    assert git(first, "rev-parse", "HEAD") == git(second, "rev-parse", "HEAD")


@pytest.mark.django_db(transaction=True)
def test_it_shows_committed_rows_to_other_threads() -> None:
    make_index(make_repository(), current=True)
    make_message()
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(User.objects.count()))
    thread.start()
    thread.join()
    assert seen == [1]
