"""The APIs of GitHub, GitLab and Gitea on loopback, in the shapes that they document, as far as an import needs them.

`with standing_in("github") as site:` serves the repositories of `site.repositories` in pages of two. Responses in
`site.answers` are given first, one a request: (status, headers, body).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

TOKEN = "token-only-for-tests"
PAGE_SIZE = 2
ROOTS = {"github": "/api/v3", "gitlab": "/api/v4", "gitea": "/api/v1"}
AUTHORIZATION = {"github": f"Bearer {TOKEN}", "gitlab": f"Bearer {TOKEN}", "gitea": f"token {TOKEN}"}
Json = dict[str, Any]


@dataclass
class StandIn:
    site: str
    organisation: str = "acme"
    person: bool = False  # listed under /users, as GitHub and Gitea do for people
    repositories: list[Json] = field(default_factory=list)
    readers: dict[str, list[Json]] = field(default_factory=dict)  # path below the root -> rows
    answers: list[tuple[int, dict[str, str], str]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)  # path with query, Authorization
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{ROOTS[self.site]}"

    def add(self, number: int, name: str, *, private: bool = False, archived: bool = False) -> Json:
        url = f"http://127.0.0.1:{self.port}/{name}.git"
        about: Json = {"id": number, "description": None, "archived": archived}
        if self.site == "gitlab":
            about |= {"path_with_namespace": name, "http_url_to_repo": url}
            about |= {"visibility": "private" if private else "public"}
        else:
            about |= {"full_name": name, "clone_url": url, "private": private, "fork": False}
            about |= {"internal": False} if self.site == "gitea" else {"visibility": "private" if private else "public"}
        self.repositories.append(about)
        return about

    def rows(self, path: str) -> list[Json] | Json | None:
        name = self.organisation if self.site != "gitlab" else self.organisation.replace("/", "%2F")
        listing = "projects" if self.site == "gitlab" else "repos"
        kind = "users" if self.person else "groups" if self.site == "gitlab" else "orgs"
        if path == f"/{kind}/{name}/{listing}":
            return self.repositories
        first, _, number = path[1:].partition("/")
        if first in ("projects", "repositories") and number.isdecimal():
            listed = next((row for row in self.repositories if str(row["id"]) == number), None)
            return listed or next(iter(self.readers.get(path, [])), None)
        return self.readers.get(unquote(path))


@contextmanager
def standing_in(name: str, **options: Any) -> Iterator[StandIn]:
    site = StandIn(name, **options)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    site.port = http.server_address[1]
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield site
    finally:
        http.shutdown()
        http.server_close()


def _handler(site: StandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers.get("Authorization", "")))
            if site.answers:
                self._send(*site.answers.pop(0))
            elif self.headers.get("Authorization") != AUTHORIZATION[site.site]:
                self._send(401, {}, '{"message": "Bad credentials"}')
            else:
                self._page()

        def log_message(self, *args: object) -> None:
            pass

        def _page(self) -> None:
            parts = urlsplit(self.path)
            rows = site.rows(parts.path.removeprefix(ROOTS[site.site]))
            if rows is None:
                return self._send(404, {}, '{"message": "Not Found"}')
            if isinstance(rows, dict):
                return self._send(200, {}, json.dumps(rows))
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            page, last = int(query.get("page", "1")), max(1, -(-len(rows) // PAGE_SIZE))
            links = []
            for rel, number in (("next", page + 1), ("last", last)):
                if number <= last:
                    there = f"http://127.0.0.1:{site.port}{parts.path}?{urlencode(query | {'page': number})}"
                    links.append(f'<{there}>; rel="{rel}"')
            headers = {"Link": ", ".join(links), "X-Total-Count": str(len(rows))}
            return self._send(200, headers, json.dumps(rows[(page - 1) * PAGE_SIZE : page * PAGE_SIZE]))

        def _send(self, status: int, headers: dict[str, str], body: str) -> None:
            self.send_response(status)
            for name, value in ({"Content-Type": "application/json"} | headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

    return Handler
