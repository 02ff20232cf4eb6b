"""What goes wrong around a conversation and what people do with one: nothing lost, nothing doubled, and it is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Person, Server, manage
from tests.browser.test_code import ask_and_wait
from tests.browser.test_whole_job import TEXT, ask

pytestmark = pytest.mark.browser


def wait_for_answers(page: Page, number: int) -> None:
    expect(page.locator(".prose:not([data-state])")).to_have_count(number, timeout=60_000)


def test_it_stores_one_question_for_a_double_click(lead: Person, indexed: str) -> None:
    page = lead.page
    page.goto("/")
    page.fill("#q", "How is an order cancelled, twice?")
    page.get_by_role("button", name="Ask", exact=True).dblclick()
    page.wait_for_url("**/c/**")
    wait_for_answers(page, 1)
    page.fill("#q", "And after 14 days?")
    page.get_by_role("button", name="Ask", exact=True).dblclick()
    wait_for_answers(page, 2)
    page.reload()
    expect(page.locator(".message--q")).to_have_count(2)
    expect(page.locator("#conversations a", has_text="twice?")).to_have_count(1)


def test_it_keeps_what_two_tabs_ask_in_one_conversation(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    first, second = lead.page, lead.context.new_page()
    second.goto(first.url.split("#")[0])
    for page, question in ((first, "From the first tab?"), (second, "From the second tab?")):
        page.fill("#q", question)
        page.press("#q", "Enter")
    for page in (first, second):
        wait_for_answers(page, 2)
    second.reload()
    asked = second.locator(".message--q [data-question-text]").all_inner_texts()
    assert sorted(asked[1:]) == ["From the first tab?", "From the second tab?"]


def test_it_keeps_a_draft_for_each_conversation(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page = lead.page
    page.fill("#q", "half a thou")
    page.reload()
    assert page.input_value("#q") == "half a thou"
    page.goto("/")
    assert page.input_value("#q") == ""


def test_it_refuses_a_huge_paste_and_keeps_it(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page = lead.page
    page.fill("#q", "x" * 100_000)
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#composer-error")).to_contain_text("100,000 characters; at most 20,000")
    assert len(page.input_value("#q")) == 100_000
    expect(page.locator(".message--q")).to_have_count(1)
    assert page.locator("#composer").bounding_box()["height"] < 540  # the text 40 % of 900 px, the rest around it
    assert lead.complaints == [
        "Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)"
    ]
    lead.complaints.clear()


def test_it_answers_again_on_retry(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page = lead.page
    lead.server.model.script = [(200, {}, "Said otherwise [1].")]
    page.get_by_role("button", name="Retry").click()
    expect(page.locator(".prose:not([data-state])")).to_contain_text("Said otherwise", timeout=20_000)
    expect(page.locator(".message--q")).to_have_count(1)
    assert TEXT not in page.locator(".prose").inner_text()


def test_it_renames_pins_and_exports_a_conversation(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page = lead.page

    def menu() -> None:
        page.locator("summary[aria-label^=More]").click()

    menu()
    page.get_by_label("Title").fill("Cancelling orders")
    page.get_by_role("button", name="Rename").click()
    expect(page.locator("h1").first).to_have_text("Cancelling orders")
    menu()
    page.get_by_role("button", name="Pin", exact=True).click()
    expect(page.locator("#conversations h2").first).to_have_text("Pinned")
    expect(page.locator("#conversations h2", has_text="Today")).to_have_count(1)
    expect(page.locator("#conversations a").first).to_contain_text("Cancelling orders")
    exported = {}
    for name in ("Export as Markdown", "Export as JSON"):
        menu()
        with page.expect_download() as download:
            page.get_by_role("link", name=name).click()
        exported[name] = Path(download.value.path()).read_text()
        page.keyboard.press("Escape")
        page.locator("h1").first.click()
    assert "shop/orders.py" in exported["Export as Markdown"]
    assert "How is an order cancelled?" in json.dumps(json.loads(exported["Export as JSON"]))
    menu()
    page.get_by_role("button", name="Unpin").click()
    expect(page.locator("#conversations h2", has_text="Pinned")).to_have_count(0)


def test_it_stays_readable_when_its_repository_is_removed(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page = lead.page
    conversation = page.evaluate("document.body.dataset.conversation").split("/")[2]
    gone = f"from assistant.models import Citation\nCitation.objects.filter(message__conversation='{conversation}')"
    manage(lead.server.environment, "shell", "--verbosity", "0", "--command", f"{gone}.update(repository=None)")
    page.reload()
    expect(page.locator(".prose")).to_contain_text(TEXT)
    expect(page.locator("a.citation")).to_have_count(0)
    expect(page.locator(".citation[data-state=removed]")).to_have_count(2)
    expect(page.get_by_role("note")).to_have_text(
        f"{indexed} was removed. The answer stays readable, its citations no longer open."
    )
    page.fill("#q", "And after 14 days?")
    page.press("#q", "Enter")
    wait_for_answers(page, 2)


def test_it_grows_with_what_is_typed_up_to_a_part_of_the_window(lead: Person, indexed: str) -> None:
    page = lead.page
    page.goto("/")
    heights = []
    for lines in (1, 4, 8, 100):
        page.fill("#q", "\n".join(["line"] * lines))
        heights.append(page.locator("#q").bounding_box()["height"])
    one, four, eight, most = heights
    assert one < four < eight < most <= 0.4 * page.viewport_size["height"] + 1
    assert page.locator("#composer").get_by_role("button", name="Ask", exact=True).is_visible()


def test_it_keeps_both_questions_that_are_sent_from_one_page_with_the_back_button(lead: Person, indexed: str) -> None:
    page = lead.page
    for question in ("Sent first?", "Sent after going back?"):
        ask(lead, question) if question == "Sent first?" else page.fill("#q", question)
        if question != "Sent first?":
            page.press("#q", "Enter")
            page.wait_for_url("**/c/**")
        wait_for_answers(page, 1)
        expect(page.locator(".message--q")).to_contain_text(question)
        page.go_back()
        page.wait_for_url("**/")


def test_it_shows_the_whole_conversation_to_who_comes_back_to_it(lead: Person, indexed: str) -> None:
    ask_and_wait(lead)
    page = lead.page
    page.fill("#q", "And after 14 days?")
    page.press("#q", "Enter")
    wait_for_answers(page, 2)
    page.goto("/search/")
    page.go_back()
    expect(page.locator(".message--q")).to_have_count(2)


def test_it_says_so_when_its_reader_signed_out_in_mid_answer(lead: Person, indexed: str, server: Server) -> None:
    context = lead.context.browser.new_context(base_url=server.url)
    page, other = context.new_page(), context.new_page()
    page.goto(server.link("lead"))
    page.goto("/")
    server.model.script = [(200, {}, "Orders are cancelled by number. HANG And refunded [1].")]
    page.fill("#q", "How is an order cancelled?")
    page.press("#q", "Enter")
    expect(page.locator(".tail")).to_contain_text("by number")
    other.goto("/")
    other.get_by_role("button", name="Sign out").click()
    server.model.go_on.set()
    expect(page.get_by_role("status").filter(has_text="You have been signed out.")).to_be_visible(timeout=20_000)
    server.model.go_on.clear()
    expect(page.locator(".prose")).to_contain_text("Orders are cancelled by number.")
    page.fill("#q", "Still there?")
    page.press("#q", "Enter")
    page.wait_for_url("**/sign-in/**")
    context.close()


_SOURCES = """
window.sources = [];
window.EventSource = class extends EventSource { constructor(url) { super(url); window.sources.push(this); } };
"""


def test_it_goes_on_after_the_stream_was_cut(lead: Person, indexed: str) -> None:
    page = lead.page
    page.add_init_script(_SOURCES)
    lead.server.model.pause_seconds = 0.15
    ask(lead)
    expect(page.locator(".tail")).to_contain_text("Orders")
    for _ in range(2):
        page.evaluate("(() => { const cut = window.sources.at(-1); cut.close(); cut.onerror(); })()")
        page.wait_for_timeout(300)
    wait_for_answers(page, 1)
    assert page.locator(".prose").inner_text().count("Orders are cancelled") == 1
    assert page.evaluate("window.sources.length") >= 3


_IS_STORED = """
import time
from assistant.models import AnswerEvent
texts = AnswerEvent.objects.filter(message__state="running", name="text").values_list("data__text", flat=True)
for _ in range(300):
    if "paragraph" in "".join(texts.all()):
        break
    time.sleep(0.1)
else:
    raise SystemExit("what is on the screen was not stored within 30 s")
"""
_LEASE_RUNS_OUT = """
from django.utils import timezone
from assistant.models import Message
assert Message.objects.filter(state="running").update(leased_until=timezone.now()) == 1
"""


def test_it_keeps_the_stored_part_when_the_server_is_killed_in_mid_answer(lead: Person, indexed: str) -> None:
    page, server = lead.page, lead.server
    server.model.script = [(200, {}, "Orders are cancelled by number.\n\nThe second paragraph WAIT never comes.")]
    server.model.hang_seconds = 60.0  # longer than a loaded machine needs to start a process
    ask(lead)
    expect(page.locator(".prose .tail")).to_contain_text("paragraph", timeout=60_000)
    manage(server.environment, "shell", "--verbosity", "0", "--command", _IS_STORED)
    server.kill_web()
    server.model.hang_seconds = 6.0
    manage(server.environment, "shell", "--verbosity", "0", "--command", _LEASE_RUNS_OUT)
    server.start_web()
    for _ in ("the page that stayed open", "the page loaded anew"):
        expect(page.locator(".prose:not([data-state])")).to_have_count(1, timeout=60_000)
        expect(
            page.locator("article", has_text="The server restarted while this answer was being written.")
        ).to_have_count(1)
        assert page.locator(".prose").inner_text().count("Orders are cancelled by number.") == 1
        assert page.locator(".message--q").count() == 1
        page.reload()
    asked = len([request for request in server.model.requests if request.get("stream")])
    server.model.script = [(200, {}, "is here now [1].")]
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".prose:not([data-state])")).to_contain_text("is here now", timeout=60_000)
    assert page.locator(".prose").inner_text().count("Orders are cancelled by number.") == 1
    expect(page.locator(".message--q")).to_have_count(1)
    assert len([request for request in server.model.requests if request.get("stream")]) == asked + 1
    assert all(text.startswith("Failed to load resource") for text in lead.complaints), lead.complaints
    lead.complaints.clear()
