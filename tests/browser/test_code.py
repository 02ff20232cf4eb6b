"""The code beside an answer: what a chip shows, and the ways on from a file."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Person
from tests.browser.test_whole_job import TEXT, ask

pytestmark = pytest.mark.browser


def ask_and_wait(person: Person) -> None:
    """The first question of a server also loads the embedding model."""
    ask(person)
    expect(person.page.locator(".prose:not([data-state])")).to_contain_text(TEXT, timeout=60_000)


def open_citation(person: Person) -> None:
    ask_and_wait(person)
    person.page.locator("a.citation").first.click()
    expect(person.page.locator("#pane .hit").first).to_be_visible()


def test_it_previews_a_citation_that_is_pointed_at_or_focused(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page, preview = lead.page, lead.page.locator("#preview")
    page.locator("a.citation").first.hover()
    expect(preview).to_contain_text("cancel_order")
    page.mouse.move(5, 5)
    expect(preview).to_be_hidden()
    page.keyboard.press("j")
    expect(preview).to_contain_text("orders.py")


def test_it_leads_from_a_passage_to_references_folders_and_back(lead: Person, indexed: str) -> None:
    open_citation(lead)
    pane = lead.page.locator("#pane")
    pane.get_by_role("link", name="References").click()
    expect(pane).to_contain_text("definition")
    pane.get_by_role("link", name="Back to the code").click()
    pane.get_by_role("link", name="shop", exact=True).last.click()
    pane.get_by_role("link", name="stock.py").click()
    expect(pane.locator(".code")).to_contain_text("class Stock")
    assert lead.page.locator(".message--q").is_visible()


def test_it_offers_similar_code_for_a_selection(lead: Person, indexed: str) -> None:
    open_citation(lead)
    page = lead.page
    page.locator("#pane .code .hit span", has_text="cancel_order").first.dblclick()
    offer = page.locator("#selection")
    expect(offer).to_be_visible()
    expect(offer.get_by_role("link").first).to_have_attribute("href", re.compile(r"/similar/.*lines=\d+-\d+"))
    offer.get_by_role("link", name="Similar code").click()
    expect(page.locator("#pane")).to_contain_text("lines")
