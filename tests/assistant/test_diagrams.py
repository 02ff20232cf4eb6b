from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

from django.test import Client

from assistant import markdown

VENDOR = Path(__file__).parents[2] / "static" / "vendor"
SCRIPT = "/static/vendor/mermaid.min.js.gz"


def test_it_ships_the_libraries_as_they_were_published() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|.*?`([0-9a-f]{64})`", (VENDOR / "README.md").read_text(), re.MULTILINE)
    assert [name for name, _ in listed] == ["htmx.min.js", "mermaid.min.js.gz"]
    for name, checksum in listed:
        content = (VENDOR / name).read_bytes()
        content = gzip.decompress(content) if name.endswith(".gz") else content
        assert hashlib.sha256(content).hexdigest() == checksum, name


def test_it_sends_the_script_compressed(client: Client) -> None:
    response = client.get(SCRIPT)
    assert response.headers["Content-Encoding"] == "gzip"
    assert response.headers["Content-Type"].startswith("text/javascript")


def test_it_draws_in_a_page_that_can_reach_nothing(client: Client) -> None:
    response = client.get("/diagram/")
    policy = dict(part.strip().split(" ", 1) for part in response.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["sandbox"] == "allow-scripts"
    assert policy["frame-ancestors"] == "'self'"
    assert response.headers["X-Frame-Options"] == "SAMEORIGIN"
    assert response.cookies == {}


def test_it_keeps_the_text_of_a_diagram_in_the_page() -> None:
    html = markdown.render("```mermaid\nflowchart LR\n  A --> B\n```", {})
    assert '<figure class="codebox" data-mermaid="">' in html
    assert "A --&gt; B" in html
    assert "data-copy" in html


def test_it_loads_no_drawing_library_with_a_page(client: Client) -> None:
    assert "mermaid" not in client.get("/sign-in/", follow=True).content.decode()
