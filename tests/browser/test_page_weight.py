"""What a first visit loads: little, and from here."""

from __future__ import annotations

import gzip

import pytest

from tests.browser.conftest import DESKTOP, Person
from tests.browser.test_code import ask_and_wait

pytestmark = pytest.mark.browser
MOST_BYTES = 150_000


def test_it_loads_little_and_from_this_host_only(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    conversation = lead.page.url
    cold = lead.context.browser.new_context(viewport=DESKTOP, base_url=lead.server.url)
    cold.add_cookies(lead.context.cookies())
    for address in ("/", conversation, "/search/?q=cancel", "/repositories/", "/dashboard/"):
        page, bodies = cold.new_page(), {}
        page.on("response", lambda response, bodies=bodies: bodies.setdefault(response.url, response))
        page.goto(address)
        page.wait_for_load_state("networkidle")
        assert {url for url in bodies if not url.startswith(lead.server.url)} == set()
        weight = sum(len(gzip.compress(response.body())) for response in list(bodies.values()) if response.ok)
        assert weight < MOST_BYTES, f"{address}: {weight:,} bytes compressed in {len(bodies)} responses"
        assert not [url for url in bodies if "mermaid" in url]
        page.close()
    cold.close()
