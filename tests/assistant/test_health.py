from __future__ import annotations

from pathlib import Path

import pytest
from django.db import DatabaseError, connection
from django.test import Client
from pytest_django import Settings

pytestmark = pytest.mark.django_db


def test_it_is_healthy_for_anyone_who_asks(client: Client) -> None:
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {"status": "ok", "checks": {"database": True, "data_folder": True}}


def test_it_answers_without_a_detour_to_https(client: Client, settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    assert client.get("/healthz").status_code == 200


def test_it_fails_without_a_data_folder(client: Client, settings: Settings, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path / "gone"
    response = client.get("/healthz")
    assert response.status_code == 503
    assert response.json()["checks"] == {"database": True, "data_folder": False}


def test_it_fails_without_a_database_and_tells_no_details(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise DatabaseError("secret host name")

    monkeypatch.setattr(connection, "cursor", refuse)
    response = client.get("/healthz")
    assert response.status_code == 503
    assert "secret" not in response.content.decode()
