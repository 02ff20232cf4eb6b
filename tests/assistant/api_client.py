"""A program with a token of its own, as tests see it. Every reply it gets is held against the OpenAPI description."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from jsonschema import Draft202012Validator

from assistant import tokens
from assistant.api import api
from indexing.models import Repository


class ApiClient:
    """`get("/repositories")`, `post("/search", {...})`: below `/api/v1`, with the token in the header."""

    def __init__(self, user: User, scopes: Sequence[str], repositories: Sequence[Repository] | None = None) -> None:
        self.token, self.secret = tokens.create(user, "test", scopes=scopes, repositories=repositories)
        self.client = Client()

    @property
    def authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}

    def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        content_type: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> Any:
        headers = self.authorization | (headers or {})
        response = self.client.generic(method, f"/api/v1{path}", body, content_type=content_type, headers=headers)
        check_described(method, f"/api/v1{path}", response)
        return response

    def get(self, path: str, *, headers: dict[str, str] | None = None) -> Any:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: object = None, *, headers: dict[str, str] | None = None) -> Any:
        return self.request("POST", path, json.dumps(body or {}).encode(), headers=headers)

    def patch(self, path: str, body: object) -> Any:
        return self.request("PATCH", path, json.dumps(body).encode())

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path)


def check_described(method: str, address: str, response: Any) -> None:
    """The operation is described with this status, media type and body. What is no operation gets 404 or 405."""
    operation = operation_at(method, address.partition("?")[0])
    if operation is None:
        assert response.status_code in (404, 405), f"{method} {address}: {response.status_code}"
        return
    described = operation["responses"].get(str(response.status_code))
    assert described is not None, f"{method} {address} answers {response.status_code}, which is not described"
    if "content" not in described:
        assert response.content == b""
        return
    media_type = response["Content-Type"].partition(";")[0]
    schema = described["content"][media_type]["schema"]
    if media_type == "application/json":
        whole = {**schema, "components": openapi()["components"]}
        Draft202012Validator(whole).validate(response.json())


def operation_at(method: str, path: str) -> Any:
    for template, operations in openapi()["paths"].items():
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
        if method.lower() in operations and re.fullmatch(pattern, path):
            return operations[method.lower()]
    return None


@cache
def openapi() -> Any:
    """As programs read it: statuses become text in JSON."""
    return json.loads(json.dumps(api.get_openapi_schema(), default=str))
