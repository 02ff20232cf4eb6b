"""The product as operators run it, for tests that kill parts of it and for load: real processes, chosen services.

`with Stack(folder, database_url=..., broker_url=...) as stack` migrates, starts web, builds and answers, and ends them.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

PROJECT = Path(__file__).resolve().parents[1]
READY_SECONDS = 300.0  # on a machine that is busy with other things
COMMAND_SECONDS = 900.0  # a command of `manage.py` that takes longer is stuck

_SETUP = """
from django.contrib.auth.models import User
from assistant.tokens import create
user, _ = User.objects.get_or_create(username="lead", is_staff=True, is_superuser=True)
print(create(user, "stack", scopes=["read", "ask", "write", "admin"])[1])
"""


class Stack:
    """`url` of the web server, `token` of a superuser, `environment` for more processes."""

    def __init__(
        self, folder: Path, *, database_url: str = "", broker_url: str = "filesystem://", **environment: str
    ) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "log"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.token = ""
        self._database = _own_database(database_url) if database_url.startswith("postgres") else ""
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TEST_", "PYTEST"))},
            "DJANGO_SETTINGS_MODULE": "assistant.settings",
            "ENV_FILE": os.devnull,
            "DATA_DIR": str(folder / "data"),
            "DATABASE_URL": self._database,
            "CELERY_BROKER_URL": broker_url,
            "LOCAL_REPOSITORY_ROOTS": str(folder),
            "API_REQUESTS_PER_MINUTE": "1000000",
            "SECRET_KEY": "only-for-tests-" + "x" * 50,
            "EMBEDDING_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "PASSIVE",
            "HF_HUB_OFFLINE": "1",
            "PYTHONWARNINGS": "ignore",
            **environment,
        }

    def __enter__(self) -> Self:
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        self.manage("migrate", "--verbosity", "0")
        self.token = self.manage("shell", "--verbosity", "0", "--command", _SETUP).strip()
        try:
            for name in ("web", "builds", "answers"):
                self.start(name)
            self.wait_until_ready()
        except BaseException:  # nothing may be left that would take messages of the next one
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self.processes):
            self.stop(name)
        if self._database:
            _drop(self._database)

    def manage(self, *arguments: str, **environment: str) -> str:
        """Its output. Raises CalledProcessError, TimeoutExpired."""
        command = [sys.executable, "manage.py", *arguments]
        env = self.environment | environment
        with self.log.open("ab") as log:
            return subprocess.run(
                command,
                cwd=PROJECT,
                env=env,
                check=True,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                timeout=COMMAND_SECONDS,
            ).stdout

    def start(self, name: str, **environment: str) -> subprocess.Popen[bytes]:
        """`web`, `builds`, `answers` or `schedule`; with a suffix such as `builds.2` there may be several."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command(name.partition(".")[0], name),
                cwd=PROJECT,
                env=self.environment | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def _command(self, kind: str, name: str) -> list[str]:
        if kind == "web":
            server = ["uvicorn", "assistant.asgi:application", "--port", str(self.port), "--log-level", "warning"]
            return [sys.executable, "-m", *server, "--timeout-graceful-shutdown", "3"]
        if kind == "schedule":
            return [sys.executable, "manage.py", "schedule"]
        queues = {"builds": "builds,descriptions", "answers": "answers"}[kind]
        pool = {"builds": ["--pool", "solo"], "answers": ["--pool", "threads", "--concurrency", "2"]}[kind]
        worker = ["celery", "--quiet", "-A", "assistant", "worker", "-Q", queues, "-n", f"{name}-{self.port}@%h"]
        quiet = ["--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        return [sys.executable, "-m", *worker, *pool, *quiet]

    def kill(self, name: str) -> None:
        """As the kernel does when memory is out: no handler runs."""
        self._signal(name, signal.SIGKILL)
        self.processes.pop(name).wait()

    def stop(self, name: str, seconds: float = 20.0) -> int:
        self._signal(name, signal.SIGTERM)
        process = self.processes.pop(name)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def empty_database(self) -> None:
        if self._database:
            _drop(self._database)
            _create(self._database)

    def _signal(self, name: str, number: signal.Signals) -> None:
        try:
            os.killpg(self.processes[name].pid, number)
        except ProcessLookupError:
            return

    def wait_until_ready(self) -> None:
        self.wait_for(lambda: self.status("/readyz") == 200, seconds=READY_SECONDS)

    def wait_for(self, fulfilled: Callable[[], bool], *, seconds: float = 60.0) -> float:
        """Seconds it took. What raises a network error is not fulfilled yet."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            try:
                if fulfilled():
                    return time.monotonic() - begun
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"not within {seconds:.0f} s; the log ends with\n{self.log.read_text()[-3000:]}")

    def status(self, path: str, seconds: float = 5.0) -> int:
        """0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=seconds) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def api(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        seconds: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # Any: JSON
        """Raises HTTPError, URLError."""
        with self.open(method, path, body, seconds=seconds, headers=headers) as response:
            text = response.read()
        return json.loads(text) if text else None

    def open(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        seconds: float = 60.0,
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # Any: what urlopen returns
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                **(headers or {}),
            },
        )
        return urllib.request.urlopen(request, timeout=seconds)

    def at(self, url: str) -> Stack:
        """The same one behind another address, such as that of a proxy."""
        other = copy.copy(self)
        other.url = url
        return other

    def add_repository(self, path: Path) -> int:
        return int(self.api("POST", "/repositories", {"source": str(path)})["id"])

    def wait_until_indexed(self, repository_id: int, *, seconds: float = 120.0) -> float:
        return self.wait_for(lambda: self.index_state(repository_id) in ("ready", "empty"), seconds=seconds)

    def index_state(self, repository_id: int) -> str:
        latest = self.api("GET", f"/repositories/{repository_id}/status")["latest"]
        return str(latest["status"]) if latest else ""


@contextmanager
def nginx(stack: Stack) -> Iterator[str]:
    """The address of an nginx with the configuration that operators get, in front of the stack's web server."""
    port, folder = free_port(), stack.folder / "nginx"
    folder.mkdir(exist_ok=True)
    server = (PROJECT / "deploy/nginx.conf.template").read_text()
    server = server.replace("${WEB_ADDRESS}", f"127.0.0.1:{stack.port}").replace("${LISTEN}", f"127.0.0.1:{port}")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = f"pid {folder}/pid; error_log {folder}/error.log; worker_rlimit_nofile 4096;\n"
    main += f"events {{ worker_connections 2048; }}\nhttp {{ access_log off; {temporary}\n{server}}}\n"
    (folder / "nginx.conf").write_text(main)
    command = ["nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off;"]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        stack.wait_for(lambda: urllib.request.urlopen(f"{url}/healthz", timeout=2).status == 200, seconds=20)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _own_database(url: str) -> str:
    """A new database on the server of `url`."""
    own = urlsplit(url)._replace(path=f"/stack_{os.getpid()}_{uuid.uuid4().hex[:6]}").geturl()
    _create(own)
    return own


def _create(url: str) -> None:
    import psycopg

    with psycopg.connect(_server(url), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{urlsplit(url).path[1:]}"')  # type: ignore[arg-type]


def _drop(url: str) -> None:
    import psycopg

    with psycopg.connect(_server(url), autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{urlsplit(url).path[1:]}" WITH (FORCE)')  # type: ignore[arg-type]


def _server(url: str) -> str:
    return urlsplit(url)._replace(scheme="postgresql", path="/postgres").geturl()


@contextmanager
def chosen_services(folder: Path, **environment: str) -> Iterator[Stack]:
    """With what TEST_DATABASE_URL and TEST_BROKER_URL name; else the embedded ones."""
    database, broker = os.environ.get("TEST_DATABASE_URL", ""), os.environ.get("TEST_BROKER_URL", "")
    with Stack(folder, database_url=database, broker_url=broker or "filesystem://", **environment) as stack:
        yield stack
