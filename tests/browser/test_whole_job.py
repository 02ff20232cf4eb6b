"""What a newcomer does: sign in, add a repository, ask, watch the answer, open a citation; and what others see."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import PHONE, Person, Server

pytestmark = pytest.mark.browser
TEXT = "After that it is too late."


def ask(person: Person, question: str = "How is an order cancelled?") -> None:
    person.page.goto("/")
    person.page.fill("#q", question)
    person.page.press("#q", "Enter")
    person.page.wait_for_url("**/c/**")


def test_it_shows_the_new_repository_being_indexed_and_then_ready(lead: Person, indexed: str) -> None:
    lead.page.goto("/repositories/")
    row = lead.page.locator(".repos > li", has_text=indexed)
    expect(row).to_contain_text("Private")
    expect(row).to_contain_text("4 files")
    row.get_by_text("1 of 4 files were skipped").click()
    expect(row).to_contain_text("Binary file")


def test_it_streams_an_answer_whose_citation_opens_the_exact_lines(lead: Person, indexed: str) -> None:
    ask(lead)
    page = lead.page
    expect(page.locator(".evidence a").first).to_contain_text("orders.py")
    expect(page.locator(".prose[data-state=streaming]")).to_contain_text("Orders are cancelled")
    expect(page.locator(".prose:not([data-state])")).to_contain_text(TEXT)
    page.locator("a.citation").first.click()
    hits = page.locator("#pane .hit")
    expect(hits.first).to_be_visible()
    assert "cancel_order" in "".join(hits.all_inner_texts())
    assert "/blob/" in page.url
    assert page.locator("#pane .flag--on").first.inner_text() == "1"


def test_it_shows_words_one_by_one(lead: Person, indexed: str) -> None:
    lead.server.model.pause_seconds = 0.15
    ask(lead)
    lengths = set()
    prose = lead.page.locator(".prose").last
    while lead.page.locator("[data-stream]").count():
        lengths.add(len(prose.inner_text()))
        lead.page.wait_for_timeout(60)
    assert len(lengths) >= 6


_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => window.shifts.push(...list.getEntries().filter((entry) => !entry.hadRecentInput)
  .map((entry) => entry.value))).observe({type: "layout-shift", buffered: true});
"""


def test_it_moves_nothing_when_a_block_is_complete_and_checked(lead: Person, indexed: str) -> None:
    page, model = lead.page, lead.server.model
    page.add_init_script(_SHIFTS)
    model.script = [
        (200, {}, "They are cancelled in `cancel_order` [1], **once** only [1], not as in [77] WAIT or so.")
    ]
    ask(lead)
    chips = page.locator(".tail .citation[data-state=pending]")
    expect(chips).to_have_count(2)
    expect(chips.first).to_contain_text("orders.py")
    expect(chips.nth(1)).to_have_text("1")
    assert page.locator(".tail code").inner_text() == "cancel_order"
    assert page.locator(".tail strong").inner_text() == "once"
    expect(page.locator(".tail")).to_contain_text("as in [77]")
    places = [chips.nth(place).bounding_box() for place in range(2)]
    model.go_on.set()
    expect(page.locator(".prose:not([data-state])")).to_contain_text("or so")
    model.go_on.clear()
    verified = page.locator(".prose a.citation")
    assert [verified.nth(place).bounding_box() for place in range(2)] == places
    assert sum(page.evaluate("window.shifts")) < 0.01


_LISTS = """## Steps

It takes **three**:

1. `cancel_order` looks the order up [1]
2. then, within 14 days:
   - the state is `cancelled`
   - the payment goes back
3. otherwise it says *too late*

```python
order = self.orders[number]

return "refunded"
```

- a last one WAIT"""


def test_it_moves_nothing_when_lists_and_code_are_complete(lead: Person, indexed: str) -> None:
    page, model = lead.page, lead.server.model
    page.add_init_script(_SHIFTS)
    head, code = _LISTS.partition("\n\n```")[::2]
    model.script = [(200, {}, f"{head} WAIT")]
    ask(lead)
    tail = page.locator(".tail")
    expect(tail.locator("> ol > li")).to_have_count(3)
    assert tail.locator("> ol > li > ul > li code").all_inner_texts() == ["cancelled"]
    assert page.locator(".prose h4").inner_text() == "Steps"
    inside = ".prose ol > li, .prose ul > li"
    before = [item.bounding_box() for item in page.locator(inside).all()]
    assert len(before) == 5
    model.go_on.set()
    expect(page.locator(".prose:not([data-state])")).to_be_visible()
    model.go_on.clear()
    assert [item.bounding_box() for item in page.locator(inside).all()] == before
    assert sum(page.evaluate("window.shifts")) < 0.01

    model.script = [(200, {}, f"See:\n\n```{code}")]
    ask(lead)
    expect(tail).to_contain_text("a last one")
    shown = page.locator(".prose").last.locator("pre")
    assert shown.inner_text().splitlines() == ["order = self.orders[number]", "", 'return "refunded"']
    before = [shown.bounding_box(), tail.locator("li").bounding_box()]
    model.go_on.set()
    expect(page.locator(".prose:not([data-state])")).to_be_visible()
    model.go_on.clear()
    prose = page.locator(".prose").last
    assert [prose.locator("pre").bounding_box(), prose.locator("li").last.bounding_box()] == before


def test_it_resumes_after_a_reload_without_writing_anything_twice(lead: Person, indexed: str) -> None:
    lead.server.model.pause_seconds = 0.2
    asked_before = len([request for request in lead.server.model.requests if request.get("stream")])
    ask(lead)
    expect(lead.page.locator(".tail")).to_contain_text("Orders")
    lead.page.reload()
    expect(lead.page.locator(".prose:not([data-state])")).to_contain_text(TEXT)
    assert lead.page.locator(".prose").inner_text().count("Orders are cancelled") == 1
    assert lead.page.locator(".message--q").count() == 1
    asked = [request for request in lead.server.model.requests if request.get("stream")]
    assert len(asked) == asked_before + 1


def test_it_keeps_what_was_written_when_it_is_stopped(lead: Person, indexed: str) -> None:
    lead.server.model.script = [(200, {}, "Orders are cancelled " + "slowly " * 200)]
    ask(lead)
    page = lead.page
    expect(page.locator(".prose")).to_contain_text("slowly")
    page.get_by_role("button", name="Stop writing").click()
    expect(page.locator(".stages").last).to_contain_text("stopped")
    expect(page.locator(".prose")).to_contain_text("Orders are cancelled")
    expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible()


def test_it_appends_a_follow_up_to_the_conversation(lead: Person, indexed: str) -> None:
    ask(lead)
    page = lead.page
    expect(page.locator(".prose:not([data-state])")).to_contain_text(TEXT)
    page.fill("#q", "And after 14 days?")
    page.press("#q", "Enter")
    expect(page.locator(".message--q")).to_have_count(2)
    expect(page.locator(".prose:not([data-state])")).to_be_visible()
    assert page.input_value("#q") == ""


def test_it_takes_an_opinion_and_its_reason(lead: Person, indexed: str) -> None:
    ask(lead)
    lead.page.get_by_role("button", name="Not helpful").click()
    lead.page.get_by_role("button", name="Wrong lines").click()
    expect(lead.page.get_by_role("button", name="Wrong lines")).to_have_attribute("aria-pressed", "true")


def test_it_shows_how_the_answer_came_about(lead: Person, indexed: str) -> None:
    ask(lead)
    lead.page.locator("[data-trace]").last.click()
    pane = lead.page.locator("#pane")
    expect(pane).to_contain_text("1 of 1 repository")
    expect(pane.locator(".table--trace tbody tr").first).to_contain_text("orders.py")
    lead.page.keyboard.press("t")
    expect(pane).to_be_hidden()


def test_it_moves_between_citations_with_keys(lead: Person, indexed: str) -> None:
    ask(lead)
    page = lead.page
    expect(page.locator(".prose:not([data-state])")).to_contain_text(TEXT)
    page.locator("h1").first.click()
    page.keyboard.press("j")
    page.keyboard.press("o")
    expect(page.locator("#pane .hit").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#pane")).to_be_hidden()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()


def test_it_goes_back_from_code_to_the_conversation(lead: Person, indexed: str) -> None:
    ask(lead)
    page = lead.page
    page.locator("a.citation").first.click()
    expect(page.locator("#pane .hit").first).to_be_visible()
    page.go_back()
    expect(page.locator("#pane")).to_be_hidden()
    expect(page.locator(".prose")).to_contain_text(TEXT)
    page.go_forward()
    expect(page.locator("#pane .hit").first).to_be_visible()
    page.reload()
    expect(page.locator(".prose")).to_contain_text(TEXT)
    expect(page.locator("#pane .hit").first).to_be_visible()


def test_it_completes_a_repository_into_a_chip(lead: Person, indexed: str) -> None:
    page = lead.page
    page.goto("/")
    page.locator("#q").press_sequentially("@sh")
    expect(page.locator("#completion")).to_contain_text(indexed)
    page.keyboard.press("Tab")
    expect(page.locator(".chip")).to_contain_text(f"@{indexed}")
    assert page.input_value("#q") == ""


def test_it_finds_code_and_filters_it(lead: Person, indexed: str) -> None:
    page = lead.page
    page.goto("/search/")
    page.fill("#search-input", "cancel order")
    page.keyboard.press("Enter")
    expect(page.locator(".result").first).to_contain_text("orders.py")
    expect(page.locator(".result .hit").first).to_be_visible()
    page.get_by_label("python").check()
    expect(page.locator(".result").first).to_contain_text("orders.py")
    expect(page).to_have_url(re.compile("language=python"))


def test_it_hides_a_private_repository_from_everyone_else(lead: Person, reader: Person, indexed: str) -> None:
    ask(lead)
    lead.page.locator("a.citation").first.click()
    expect(lead.page.locator("#pane .hit").first).to_be_visible()
    conversation, code = lead.page.evaluate("document.body.dataset.conversation"), lead.page.url
    page = reader.page
    for url in ("/", "/repositories/", "/search/?q=cancel+order", f"/complete/?typed=@{indexed[:2]}"):
        text = page.request.get(url).text()
        assert f">{indexed}<" not in text
        assert f"@{indexed}" not in text
        assert "orders.py" not in text
    assert [page.request.get(url).status for url in (code, conversation, code.split("&m=")[0])] == [404, 404, 404]


def test_it_follows_the_end_only_for_someone_who_is_there(lead: Person, indexed: str) -> None:
    lead.server.model.script = [(200, {}, "\n\n".join(f"Paragraph {n} says a little." for n in range(60)))]
    lead.server.model.pause_seconds = 0.01
    ask(lead)
    page = lead.page
    expect(page.locator(".prose")).to_contain_text("Paragraph 25")
    page.evaluate("document.querySelector('#thread').scrollTop = 0")
    expect(page.locator(".prose")).to_contain_text("Paragraph 50")
    assert page.evaluate("document.querySelector('#thread').scrollTop") == 0


def test_it_fits_a_phone(lead: Person, indexed: str) -> None:
    page = lead.page
    page.set_viewport_size(PHONE)
    ask(lead)
    expect(page.locator(".prose:not([data-state])")).to_contain_text(TEXT)
    for url in (page.url, "/", "/repositories/", "/search/?q=cancel"):
        page.goto(url)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.get_by_role("button", name="Open menu").click()
    expect(page.locator("#sidebar")).to_be_visible()


def test_it_reads_without_javascript(lead: Person, indexed: str, server: Server) -> None:
    ask(lead)
    expect(lead.page.locator(".prose:not([data-state])")).to_contain_text(TEXT)
    plain = lead.context.browser.new_context(java_script_enabled=False, base_url=server.url)
    plain.add_cookies(lead.context.cookies())
    page = plain.new_page()
    page.goto(lead.page.url)
    expect(page.locator(".prose")).to_contain_text(TEXT)
    page.locator("a.citation").first.click()
    expect(page.locator(".hit").first).to_be_visible()
    page.goto("/")
    page.fill("#q", "How is an order cancelled?")
    page.click("button:has-text('Ask')")
    expect(page.locator(".message--q")).to_contain_text("How is an order cancelled?")
    plain.close()


def test_it_asks_no_other_host(lead: Person, indexed: str) -> None:
    hosts: set[str] = set()
    lead.page.on("request", lambda request: hosts.add(re.sub(r"^\w+://([^/]*).*", r"\1", request.url)))
    ask(lead)
    lead.page.locator("a.citation").first.click()
    expect(lead.page.locator("#pane .hit").first).to_be_visible()
    assert hosts == {lead.server.url.removeprefix("http://")}
