"""Start everything on this machine: database, web server and worker, kept running until Ctrl-C.

The embedded mode in one process to watch. Refuses to run twice on the same data; needs no network, key or service.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from argparse import ArgumentParser
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from filelock import FileLock, Timeout

from assistant.sign_in import ensure_operator, make_link_token
from assistant.supervising import KeepsDying, Program, supervise
from indexing.access import Principal
from indexing.building import request_build
from indexing.errors import IndexingError
from indexing.models import Repository
from indexing.registering import register
from indexing.sources import parse_source

DEFAULT_PORT = 8000
PORTS_TRIED = 20  # 8000, 8001, ... before any free one is taken
READY_WITHIN_SECONDS = 120
ANSWERS_AT_ONCE = 4
WORKER_NICENESS = 10  # indexing never starves questions


class Command(BaseCommand):
    help = "Start the web server and the worker together; Ctrl-C ends both."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
        parser.add_argument("--port", type=int, default=0, help=f"default: {DEFAULT_PORT}, or the next free one")

    def handle(self, *args: Any, **options: Any) -> None:  # Any: Django passes what argparse parsed
        lock = FileLock(settings.DATA_DIR / "up.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise CommandError(_already_running()) from None
        stop = threading.Event()
        _stop_on_signals(stop)
        try:
            self._run(options["host"], options["port"], stop)
        except KeepsDying as error:
            raise CommandError(f"{error}. Everything was stopped.") from error
        finally:
            _state_file().unlink(missing_ok=True)
            lock.release()
        self._say("Stopped.")

    def _run(self, host: str, wanted_port: int, stop: threading.Event) -> None:
        self._say("Preparing the database ...")
        call_command("migrate", verbosity=0)
        self._add_first_repository()
        port = self._choose_port(host, wanted_port)
        url = f"http://{_reachable(host)}:{port}"
        link = f"{url}/sign-in/{make_link_token(ensure_operator())}/"
        connections.close_all()
        _state_file().write_text(json.dumps({"pid": os.getpid(), "url": url}))
        threading.Thread(target=self._announce, args=(url, link, stop), daemon=True).start()
        supervise(_programs(host, port), write=self._say, stop=stop)

    def _add_first_repository(self) -> None:
        """The project's own checkout, so that the first question has something to be asked about."""
        if Repository.objects.exists():
            return
        if not _has_commit(settings.BASE_DIR):
            self._say(f"{settings.BASE_DIR} is not a Git checkout; add a repository on the page.")
            return
        try:
            source = parse_source(str(settings.BASE_DIR), from_staff=True, local_roots=[settings.BASE_DIR])
            repository, _ = register(source, owner=ensure_operator(), principal=Principal.operator())
            request_build(repository)
        except IndexingError as error:
            self._say(f"The checkout itself was not added: {error}")
        else:
            self._say(f"Added {repository.name}, this checkout; it is indexed while you look around.")

    def _choose_port(self, host: str, wanted: int) -> int:
        if wanted:
            if _is_free(host, wanted):
                return wanted
            raise CommandError(f"port {wanted} on {host} is taken; leave --port out to use one that is free")
        for port in [*range(DEFAULT_PORT, DEFAULT_PORT + PORTS_TRIED), 0]:
            if free := _is_free(host, port):
                if free != DEFAULT_PORT:
                    self._say(f"Port {DEFAULT_PORT} is taken; using {free}.")
                return free
        raise CommandError(f"cannot listen on {host}; is it an address of this machine?")

    def _announce(self, url: str, link: str, stop: threading.Event) -> None:
        """Say where to go once the server answers; the log of the children goes on below."""
        deadline = time.monotonic() + READY_WITHIN_SECONDS
        while not _is_healthy(url):
            if stop.wait(0.2):
                return
            if time.monotonic() > deadline:
                self._say(f"The web server is not healthy after {READY_WITHIN_SECONDS} s; its lines above say why.")
                return
        self._say(f"\nReady: {url}/\nSign in (works once, within 24 hours): {link}\nStop with Ctrl-C.\n")

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _has_commit(folder: Path) -> bool:
    """Whether `folder` is the top of a work tree, not merely somewhere inside one, and has something to index."""
    git = ["git", "-c", "safe.directory=*", "-C", str(folder), "rev-parse", "--verify", "--quiet", "HEAD"]
    return (folder / ".git").exists() and subprocess.run(git, capture_output=True, check=False).returncode == 0


def _state_file() -> Path:
    return Path(settings.DATA_DIR) / "up.json"


def _already_running() -> str:
    try:
        running = json.loads(_state_file().read_text())
        where = f"as process {running['pid']} at {running['url']}; stop it with Ctrl-C there or `kill {running['pid']}`"
    except (OSError, ValueError, KeyError):
        where = "and is still starting"
    return f"the data in {settings.DATA_DIR} is in use: `manage.py up` runs already, {where}"


def _stop_on_signals(stop: threading.Event) -> None:
    """Ctrl-C, SIGTERM, a closed terminal (unless under nohup), and the death of the `make` that started us."""

    def note(_number: int, _frame: object) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, note)
    if "MAKELEVEL" in os.environ:
        threading.Thread(target=_stop_with_parent, args=(os.getppid(), stop), daemon=True).start()


def _stop_with_parent(parent: int, stop: threading.Event) -> None:
    while os.getppid() == parent:
        if stop.wait(1.0):
            return
    stop.set()


def _programs(host: str, port: int) -> list[Program]:
    cores = os.cpu_count() or 1
    web = [sys.executable, "-m", "uvicorn", "assistant.asgi:application", "--host", host, "--port", str(port)]
    web += ["--lifespan", "on", "--log-level", "warning", "--no-server-header", "--timeout-graceful-shutdown", "3"]
    # One process: killed with -9 it takes its build with it, and the lease of the build brings it back.
    builds = [*_worker("builds,descriptions"), "--pool", "solo"]
    # Answers for Slack and the like, which must not wait behind a build; mostly they wait for a model.
    answers = [*_worker("answers"), "--pool", "threads", "--concurrency", str(ANSWERS_AT_ONCE)]
    worker_environment = {
        "OMP_NUM_THREADS": str(settings.EMBEDDING_THREADS or max(1, cores - 1)),
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",  # it runs what `up` runs as
    }
    return [
        Program("web", web, {"OMP_NUM_THREADS": "1"}),  # one question is one short text
        Program("worker", builds, worker_environment, niceness=WORKER_NICENESS),
        Program("answers", answers, worker_environment | {"OMP_NUM_THREADS": "1"}),
    ]


def _worker(queues: str) -> list[str]:
    name = queues.partition(",")[0]
    celery = [sys.executable, "-m", "celery", "--quiet", "-A", "assistant", "worker", "-Q", queues, "-n", f"{name}@%h"]
    return [*celery, "--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]


def _is_free(host: str, port: int) -> int:
    """The port if it can be listened on (a free one for 0), else 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    return 0


def _reachable(host: str) -> str:
    """How this machine reaches itself when it listens on `host`."""
    if host in ("0.0.0.0", "::", ""):  # noqa: S104 (compared, not listened on)
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=2) as response:  # noqa: S310 (our own http URL)
            return bool(response.status == 200)
    except (URLError, OSError):
        return False
