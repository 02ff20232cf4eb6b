from __future__ import annotations

from pathlib import Path

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from pytest_django import Settings

from assistant import health
from indexing import embedding

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(health.CHECKS, "embedding_model", lambda: True)


def refuse() -> None:
    raise DatabaseError("secret host name")


def test_it_is_alive_for_anyone_who_asks(client: Client) -> None:
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_it_is_alive_without_a_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "cursor", refuse)
    assert client.get("/healthz").status_code == 200


def test_it_is_ready_when_all_is_there(client: Client) -> None:
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json() == {
        "status": "ok",
        "checks": {"database": True, "broker": True, "index_volume": True, "embedding_model": True},
    }


@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
def test_it_answers_without_a_detour_to_https(client: Client, settings: Settings, address: str) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get(address).status_code == 200


def test_it_is_not_ready_without_an_index_volume(client: Client, settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "gone"
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["index_volume"] is False


def test_it_is_not_ready_without_a_database_and_tells_no_details(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "cursor", refuse)
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["database"] is False
    assert "secret" not in response.content.decode()


def test_it_is_not_ready_without_a_broker(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health.celery_app, "connection_for_write", refuse_broker)
    assert client.get("/readyz").json()["checks"]["broker"] is False


def refuse_broker() -> None:
    raise OSError("no broker")


def test_it_is_not_ready_before_the_model_is_loaded(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_loaded", {})
    monkeypatch.setitem(health.CHECKS, "embedding_model", embedding.is_loaded)
    assert client.get("/readyz").status_code == 503
