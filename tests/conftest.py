"""Fixtures that every test may use, and the rules that hold for all: own data folder, no network but loopback."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from pytest_django import Settings

from assistant.celery import app as celery_app
from indexing.access import Principal
from search import planning
from tests import factories
from tests.fake_llm import fake_llm  # noqa: F401  a fixture
from tests.local_llm import local_llm, local_llm_server  # noqa: F401  fixtures


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, settings: Settings) -> Path:
    """`settings.DATA_DIR` of this test; repositories below `tmp_path` may be added by local path."""
    settings.DATA_DIR = tmp_path / "data"
    settings.DATA_DIR.mkdir()
    settings.LOCAL_REPOSITORY_ROOTS = [tmp_path]
    return settings.DATA_DIR


@pytest.fixture(autouse=True)
def no_plans() -> None:
    """Each test's model plans anew."""
    planning.forget()


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Refuse every connection but loopback, and fail the test that tried, even if the code swallowed the error."""
    attempts: list[str] = []
    real_connect, real_connect_ex = socket.socket.connect, socket.socket.connect_ex

    def check(sock: socket.socket, address: Any) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(str(address[0])):
            attempts.append(str(address))
            raise OSError(f"tests may not connect to {address}")

    def connect(sock: socket.socket, address: Any) -> None:
        check(sock, address)
        real_connect(sock, address)

    def connect_ex(sock: socket.socket, address: Any) -> int:
        check(sock, address)
        return real_connect_ex(sock, address)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "connect_ex", connect_ex)
    yield attempts
    assert not attempts, f"connections left this machine: {attempts}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# Where rows decide who does what, and whatever PostgreSQL treats unlike SQLite: JSON, bytes, times, constraints.
ON_ALL_SERVICES = (
    *("indexing/test_leases.py", "indexing/test_queueing.py", "indexing/test_tasks.py", "indexing/test_refreshing.py"),
    *("indexing/test_webhooks.py", "assistant/test_conversations.py", "assistant/test_answering.py"),
    *("assistant/test_retention.py", "assistant/test_metrics_page.py", "assistant/test_jobs.py"),
    *("assistant/test_dashboard.py", "assistant/test_health.py", "tests/test_upgrade.py"),
    *("assistant/test_slack.py", "assistant/test_mcp.py", "assistant/test_idempotency.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).endswith(ON_ALL_SERVICES):
            item.add_marker(pytest.mark.services)
        # What several processes share out among them: a file, and all of the browser's, which have one server.
        in_browser = item.get_closest_marker("browser") is not None
        item.add_marker(pytest.mark.xdist_group("browser" if in_browser else item.path.name))


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """PostgreSQL does not drop a test database that some thread of a test is still connected to."""
    yield
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


@pytest.fixture
def process_environment(settings: Settings) -> dict[str, str]:
    """Of another process of the product, with this test's database and data folder."""
    name = settings.DATABASES["default"]["NAME"]
    url = urlsplit(os.environ["DATABASE_URL"])
    return {
        **os.environ,
        "DATABASE_URL": url._replace(path=f"/{name}").geturl() if url.scheme else f"sqlite:///{name}",
        "DATA_DIR": str(settings.DATA_DIR),
        "DJANGO_SETTINGS_MODULE": "assistant.settings",
    }


@pytest.fixture
def celery_eager() -> Iterator[None]:
    """`task.delay()` runs at once, in this process, and raises what the task raises."""
    names = ("task_always_eager", "task_eager_propagates")
    before = {name: celery_app.conf[name] for name in names}
    celery_app.conf.update(dict.fromkeys(names, True))
    yield
    celery_app.conf.update(before)


@pytest.fixture
def user(db: None) -> User:
    return factories.make_user("user")


@pytest.fixture
def other_user(db: None) -> User:
    return factories.make_user("other_user")


@pytest.fixture
def staff(db: None) -> User:
    """A team lead with every permission, as an operator has."""
    return factories.make_user("staff", is_staff=True, is_superuser=True)


@pytest.fixture
def principal(user: User) -> Principal:
    return Principal.of_user(user)


@pytest.fixture
def user_client(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def other_client(other_user: User) -> Client:
    client = Client()
    client.force_login(other_user)
    return client


@pytest.fixture
def staff_client(staff: User) -> Client:
    client = Client()
    client.force_login(staff)
    return client
