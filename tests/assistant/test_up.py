from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import connection
from pytest_django import Settings

from assistant.management.commands import up
from indexing.models import Repository
from tests.factories import make_repo, make_repository

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture
def command() -> up.Command:
    return up.Command(stdout=StringIO())


def said(command: up.Command) -> str:
    return str(command.stdout._out.getvalue())


@contextmanager
def listening() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_it_takes_the_next_port_when_its_own_is_taken(command: up.Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as taken:
        monkeypatch.setattr(up, "DEFAULT_PORT", taken)
        port = command._choose_port("127.0.0.1", 0)
    assert port > 0
    assert port != taken
    assert said(command) == f"Port {taken} is taken; using {port}.\n"


def test_it_refuses_a_port_that_was_asked_for_and_is_taken(command: up.Command) -> None:
    with listening() as taken, pytest.raises(CommandError, match=f"port {taken} on 127.0.0.1 is taken"):
        command._choose_port("127.0.0.1", taken)


def test_it_refuses_an_address_of_another_machine(command: up.Command) -> None:
    with pytest.raises(CommandError, match=r"cannot listen on 192\.0\.2\.1"):
        command._choose_port("192.0.2.1", 0)


@pytest.mark.parametrize(
    ("host", "reached_as"), [("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("127.0.0.1", "127.0.0.1")]
)
def test_it_prints_an_address_that_a_browser_can_open(host: str, reached_as: str) -> None:
    assert up._reachable(host) == reached_as


def test_it_stops_when_the_make_that_started_it_is_gone() -> None:
    stop = threading.Event()
    up._stop_with_parent(os.getppid() + 1, stop)
    assert stop.is_set()


@pytest.mark.django_db
def test_it_adds_its_own_checkout_first_and_only_once(command: up.Command, settings: Settings, tmp_path: Path) -> None:
    settings.BASE_DIR = make_repo(tmp_path, {"manage.py": "x = 1\n"}, name="codebase-assistant")
    settings.LOCAL_REPOSITORY_ROOTS = []
    command._add_first_repository()
    command._add_first_repository()
    repository = Repository.objects.get()
    assert (repository.name, repository.mirror.kind, repository.indexes.get().active) == (
        *("codebase-assistant", "local", True),
    )


@pytest.mark.django_db
@pytest.mark.parametrize("files", [{}, None])
def test_it_starts_without_a_checkout_as_well(
    command: up.Command, settings: Settings, tmp_path: Path, files: dict[str, str | bytes] | None
) -> None:
    settings.BASE_DIR = tmp_path if files is None else make_repo(tmp_path, files)
    command._add_first_repository()
    assert "is not a Git checkout" in said(command)
    assert not Repository.objects.exists()


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def child_with(pid: int, word: str) -> int:
    return next(child for child in children(pid) if word in command_of(child))


class Running:
    """`manage.py up` in a process of its own, and the lines it wrote so far."""

    def __init__(self, data_dir: Path) -> None:
        self.environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "assistant.settings",
            "DATA_DIR": str(data_dir),
            "ENV_FILE": os.devnull,
            "CELERY_BROKER_URL": "filesystem://",
            "EMBEDDING_THREADS": "1",
        }
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            self.command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(PROJECT / "manage.py"), "up"]

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def find(self, pattern: str, seconds: float = 60) -> re.Match[str]:
        """The first line that matches, as soon as there is one."""
        matches = self.wait(lambda: [m for line in list(self.lines) if (m := re.search(pattern, line))], seconds)
        return matches[0]

    def wait(self, look: Callable[[], Any], seconds: float = 60) -> Any:
        deadline = time.monotonic() + seconds
        while not (found := look()):
            assert time.monotonic() < deadline, "\n".join(self.lines)
            time.sleep(0.05)
        return found


@pytest.fixture
def running(transactional_db: None, data_dir: Path) -> Iterator[Running]:
    """Started on a copy of the test database with one repository that has nothing to build."""
    if connection.vendor != "sqlite":
        pytest.skip("`up` is for the embedded database")
    make_repository()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(data_dir / "db.sqlite3")])
    running = Running(data_dir)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_it_serves_restarts_what_dies_and_leaves_nothing_behind(running: Running) -> None:
    url = running.find(r"Ready: (http://127\.0\.0\.1:\d+)/")[1]
    link = running.find(r"Sign in .*: (http\S+)")[1]
    with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(link, timeout=20) as page:
        assert page.status == 200
        assert "/sign-in/" not in page.url

    second = subprocess.run(running.command, env=running.environment, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"process {running.process.pid} at {url}" in second.stderr

    for word, name in (("builds", "worker"), ("answers", "answers"), ("uvicorn", "web")):
        os.kill(child_with(running.process.pid, word), signal.SIGKILL)
        running.find(rf"{name} +\| was killed by signal 9; starting it again")
    running.wait(lambda: up._is_healthy(url))

    left = children(running.process.pid)
    assert len(left) == 3
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(20) == 0
    assert not [child for child in left if Path(f"/proc/{child}").exists()]
    running.find(r"^Stopped\.$", seconds=5)
    assert not (Path(running.environment["DATA_DIR"]) / "up.json").exists()
    assert json.dumps(running.lines).count("Traceback") == 0
