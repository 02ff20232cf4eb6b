from __future__ import annotations

import json
import logging
import sys

import pytest
from django.test import Client

from assistant.json_logs import JsonFormatter

pytestmark = pytest.mark.django_db


def record(message: str = "index %d", *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("indexing.building", logging.WARNING, "x.py", 1, message, arguments, None)
    made.__dict__.update(fields)
    return made


def test_it_takes_the_id_of_the_caller_or_makes_one(client: Client) -> None:
    assert client.get("/healthz", headers={"X-Request-ID": "deploy-7"})["X-Request-ID"] == "deploy-7"
    assert len(client.get("/healthz", headers={"X-Request-ID": "<b>"})["X-Request-ID"]) == 32


def test_it_logs_each_page_with_its_id_and_without_its_query(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="assistant.observing"):
        client.get("/sign-in/?next=secret", headers={"X-Request-ID": "a-1"})
        client.get("/healthz")
    assert [line.getMessage().rsplit(" ", 2)[0] for line in caplog.records] == ["GET sign_in 200 in"]
    assert "secret" not in caplog.text


def test_it_writes_lines_of_json() -> None:
    line = json.loads(JsonFormatter().format(record("index %d failed", 7, status=503)))
    assert (line["level"], line["logger"], line["message"], line["status"]) == (
        "WARNING",
        "indexing.building",
        "index 7 failed",
        503,
    )
    assert "request_id" not in line


def test_it_keeps_what_an_error_quotes_out_of_the_line() -> None:
    try:
        raise ValueError("def secret_source(): ...")
    except ValueError:
        text = JsonFormatter().format(record("index %d", 7, exc_info=sys.exc_info()))
    line = json.loads(text)
    assert line["error"] == "ValueError"
    assert "test_it_keeps_what_an_error_quotes" in line["places"][0]
    assert "secret_source" not in text
