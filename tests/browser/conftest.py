"""A real server, worker and browser: uvicorn and Celery on their own data folder, a scripted model on loopback.

The tests share one server, because its start takes longer than any of them. They never touch the database of the
test process: everything goes through the pages, as a person does it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.error import URLError

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.factories import make_repo
from tests.stub_llm_server import StubServer, serve

PROJECT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
READY_WITHIN_SECONDS = 90
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}

FILES: dict[str, str | bytes] = {
    "README.md": "# Shop\n\nA small shop that keeps its orders in a file on disk.\n",
    "shop/orders.py": '''"""Orders of the shop."""

REFUND_DAYS = 14  # days after the delivery


class OrderBook:
    """Every order, by number."""

    def __init__(self) -> None:
        self.orders = {}

    def cancel_order(self, number: int) -> str:
        """Cancel an order and refund the payment when it is not too late."""
        order = self.orders[number]
        if order.days_since_delivery > REFUND_DAYS:
            return "too late"
        order.state = "cancelled"
        return "refunded"
''',
    "shop/stock.py": "class Stock:\n    def take(self, item):\n        self.items.remove(item)\n        return item\n",
    "logo.png": b"\x89PNG\r\n\x1a\n\x00\x00",
}
ANSWER = (
    "Orders are cancelled in `cancel_order` [1].\n\n"
    "A refund is given for 14 days after the delivery [1]. After that it is too late."
)


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    model: StubServer
    environment: dict[str, str]
    work_tree: Path
    processes: list[subprocess.Popen[bytes]]
    log: Path

    def kill_web(self) -> None:
        """As a machine without memory does it: nothing is tidied up."""
        os.killpg(self.processes[0].pid, signal.SIGKILL)
        self.processes[0].wait()

    def start_web(self) -> None:
        """On the same port and data folder, ready when this returns."""
        with self.log.open("ab") as log:
            self.processes[0] = _start(_web(int(self.url.rpartition(":")[2])), self.environment, log)
        _wait_until_healthy(f"{self.url}/healthz", self.log)

    def link(self, user: str) -> str:
        """A fresh sign-in link, as the terminal prints it."""
        return str(
            json.loads(manage(self.environment, "sign_in_link", "--user", user, "--url", self.url, "--json"))["link"]
        )


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    work_tree = make_repo(folder, FILES, name="shop")
    with serve() as model, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        environment = _environment(folder, model)
        manage(environment, "migrate", "--verbosity", "0")
        manage(environment, "shell", "--verbosity", "0", "--command", _USERS)
        worker = ["celery", "--quiet", "-A", "assistant", "worker", "--pool", "solo", "--loglevel", "WARNING"]
        log = (folder / "log").open("wb")
        processes = [_start(arguments, environment, log) for arguments in (_web(port), worker)]
        try:
            _wait_until_healthy(f"http://127.0.0.1:{port}/healthz", folder / "log")
            yield Server(f"http://127.0.0.1:{port}", model, environment, work_tree, processes, folder / "log")
        finally:
            _stop(processes)
            log.close()


_USERS = """
from django.contrib.auth.models import User
User.objects.create_superuser("lead")
User.objects.create_user("reader")
"""


def _environment(folder: Path, model: StubServer) -> dict[str, str]:
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "assistant.settings",
        "ENV_FILE": os.devnull,
        "DATA_DIR": str(folder / "data"),
        "CELERY_BROKER_URL": "filesystem://",
        "LOCAL_REPOSITORY_ROOTS": str(folder),
        "LLM_MODEL": "openai/stub",
        "LLM_API_BASE": model.base,
        "LLM_API_KEY": "none",
        "LLM_PLAN_TIMEOUT_SECONDS": "10",
        "LLM_RERANK_TIMEOUT_SECONDS": "10",
        "EMBEDDING_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "STAFF_SEES_QUESTIONS": "true",
        "PYTHONWARNINGS": "ignore",
    }


def _web(port: int) -> list[str]:
    return ["uvicorn", "assistant.asgi:application", "--port", str(port), "--log-level", "warning"]


def manage(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    return subprocess.run(command, cwd=PROJECT, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def _start(arguments: list[str], environment: dict[str, str], log: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # a group of its own, so that nothing is left behind
        [sys.executable, "-m", *arguments], cwd=PROJECT, env=environment, stdout=log, stderr=log, start_new_session=True
    )


def _wait_until_healthy(url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"the server did not become healthy:\n{log.read_text()[-4000:]}")


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):  # a test killed it and failed before it was started again
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(timeout=8)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield started
        started.close()


class Person:
    """A signed-in browser window; anything the browser complains about fails the test."""

    _cookies: ClassVar[dict[tuple[str, str], Any]] = {}

    def __init__(self, browser: Browser, server: Server, name: str, viewport: dict[str, int]) -> None:
        self.server = server
        self.context = browser.new_context(viewport=viewport, base_url=server.url)
        self.complaints: list[str] = []
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self._sign_in(name)

    def _sign_in(self, name: str) -> None:
        """By a link the first time, then with the session it gave: making a link starts a process."""
        key = (self.server.url, name)
        if key in self._cookies:
            self.context.add_cookies(self._cookies[key])
            return
        self.page.goto(self.server.link(name))
        self._cookies[key] = self.context.cookies()

    def _note(self, message: ConsoleMessage) -> None:
        icon = message.location["url"].endswith("/favicon.ico")  # asked for where a fragment is opened as a page
        if message.type in ("error", "warning") and not icon:
            self.complaints.append(message.text)


@pytest.fixture
def lead(browser: Browser, server: Server) -> Iterator[Person]:
    """Staff at a desk."""
    yield from _person(browser, server, "lead", DESKTOP)


@pytest.fixture
def reader(browser: Browser, server: Server) -> Iterator[Person]:
    """Someone else, with no rights beyond signing in."""
    yield from _person(browser, server, "reader", DESKTOP)


def _person(browser: Browser, server: Server, name: str, viewport: dict[str, int]) -> Iterator[Person]:
    server.model.script = [(200, {}, ANSWER)]
    server.model.pause_seconds = 0.05
    person = Person(browser, server, name, viewport)
    yield person
    person.context.close()
    assert person.complaints == []


@pytest.fixture(scope="package")
def indexed(browser: Browser, server: Server) -> str:
    """The name of a private repository of `lead` that is indexed; added through the page."""
    person = Person(browser, server, "lead", DESKTOP)
    page = person.page
    page.goto("/repositories/")
    page.fill("#source", str(server.work_tree))
    page.select_option("#visibility", "private")
    page.click("button:has-text('Add repository')")
    row = page.locator(".repos > li", has_text="shop")
    row.get_by_text("Up to date").wait_for(timeout=90_000)
    name = row.locator(".name").inner_text()
    person.context.close()
    return name
