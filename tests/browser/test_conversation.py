"""What a person does with a conversation: edit the last question, continue an answer, share it."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Person
from tests.browser.test_code import ask_and_wait
from tests.browser.test_whole_job import TEXT

pytestmark = pytest.mark.browser


def test_it_edits_the_last_question_with_a_key(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page = lead.page
    page.locator("h1").first.click()
    page.keyboard.press("e")
    page.locator(".edit textarea").fill("How is an order refunded?")
    page.get_by_role("button", name="Ask again").click()
    expect(page.locator(".message--q [data-question-text]")).to_have_text("How is an order refunded?")
    expect(page.locator(".prose:not([data-state])")).to_contain_text(TEXT, timeout=20_000)
    assert page.locator(".message--q").count() == 1


def test_it_shares_a_conversation_without_the_code_its_reader_may_not_see(
    lead: Person, reader: Person, indexed: str
) -> None:
    ask_and_wait(lead)
    page = lead.page
    page.locator("summary[aria-label=Share]").click()
    page.get_by_role("button", name="Make a link").click()
    page.locator("summary[aria-label=Share]").click()
    link = page.locator(".share input[readonly]").input_value()
    reader.page.goto(link)
    expect(reader.page.locator(".prose")).to_contain_text("that you cannot read")
    assert "orders.py" not in reader.page.content()


def test_it_continues_a_stopped_answer_under_the_same_passages(lead: Person, indexed: str) -> None:
    lead.server.model.script = [(200, {}, "Orders are cancelled " + "slowly " * 200)]
    page = lead.page
    page.goto("/")
    page.fill("#q", "How is an order cancelled?")
    page.press("#q", "Enter")
    expect(page.locator(".prose")).to_contain_text("slowly", timeout=20_000)
    page.get_by_role("button", name="Stop writing").click()
    go_on = page.get_by_role("button", name="Continue")
    expect(go_on).to_be_visible()
    lead.server.model.script = [(200, {}, "but surely [1].")]
    go_on.click()
    expect(page.locator(".prose:not([data-state])")).to_contain_text("but surely", timeout=20_000)
    expect(page.locator(".prose")).to_contain_text("Orders are cancelled slowly")
    expect(page.locator("a.citation")).to_have_count(1)
