"""A program with a token of its own, as tests see it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from assistant import tokens
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
        return self.client.generic(method, f"/api/v1{path}", body, content_type=content_type, headers=headers)

    def get(self, path: str, *, headers: dict[str, str] | None = None) -> Any:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: object = None, *, headers: dict[str, str] | None = None) -> Any:
        return self.request("POST", path, json.dumps(body or {}).encode(), headers=headers)

    def patch(self, path: str, body: object) -> Any:
        return self.request("PATCH", path, json.dumps(body).encode())

    def delete(self, path: str) -> Any:
        return self.request("DELETE", path)
