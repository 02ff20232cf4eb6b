"""axe-core finds no serious violation on any page, in light and dark, on a desk and on a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import DESKTOP, PHONE, Person
from tests.browser.test_whole_job import ask

pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
ANSWER = """Orders are cancelled in `cancel_order` [1], and [9] is made up.

```diff
--- a/shop/orders.py
+++ b/shop/orders.py
@@ -1,3 +1,3 @@
 \"\"\"Orders of the shop.\"\"\"

-REFUND_DAYS = 14  # days after the delivery
+REFUND_DAYS = 30  # days after the delivery
```

```plantuml
start
:Read the order;
if (Late?) then (yes)
  :Refuse;
else (no)
  :Refund;
endif
stop
```

| a | b |
|---|---|
| 1 | 2 |
"""


def violations(page: Page) -> list[str]:
    """Serious and critical ones, each with the first element that has it."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations'], preload: false})")["violations"]
    return [
        f"{rule['id']}: {rule['nodes'][0]['html'][:160]} {rule['nodes'][0]['failureSummary'][:300]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]


def check(page: Page, where: str) -> list[str]:
    problems = []
    for scheme, viewport in (("light", DESKTOP), ("dark", PHONE)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size(viewport)
        problems += [f"{where}, {scheme}, {viewport['width']} px: {problem}" for problem in violations(page)]
    page.set_viewport_size(DESKTOP)
    return problems


def test_it_has_no_serious_violation_on_any_page(lead: Person, indexed: str) -> None:
    lead.server.model.script = [(200, {}, ANSWER)]
    lead.server.model.pause_seconds = 0
    ask(lead)
    page = lead.page
    expect(page.locator(".prose:not([data-state])")).to_contain_text("made up", timeout=20_000)
    conversation = page.url
    problems = check(page, "conversation")
    page.locator("a.citation").first.click()
    expect(page.locator("#pane .hit").first).to_be_visible()
    problems += check(page, "code")
    page.locator("#pane").get_by_role("link", name="References").click()
    expect(page.locator("#pane")).to_contain_text("definition")
    problems += check(page, "references")
    page.goto(conversation)
    page.locator("[data-trace]").last.click()
    expect(page.locator("#pane")).to_contain_text("1 of 1 repository")
    problems += check(page, "trace")
    page.goto(conversation)
    page.locator("summary[aria-label=Share]").click()
    page.get_by_role("button", name="Make a link").click()
    page.locator("summary[aria-label=Share]").click()
    shared = page.locator(".share input[readonly]").input_value()
    page.goto(conversation)
    page.locator("a.citation").first.click()
    page.locator("#pane .crumbs a").last.click()
    expect(page.locator("#pane ul.list")).to_be_visible()
    problems += check(page, "folder")
    message = page.locator("[data-answer]").first.get_attribute("data-answer")
    pages = ("/", "/repositories/", "/search/?q=cancel", "/dashboard/", "/evaluation/", "/account/tokens/")
    page.goto("/repositories/")
    readers = str(page.locator("a[href$='/settings/']").first.get_attribute("href"))
    of_one = [readers.replace("settings", name) for name in ("settings", "files", "skipped")]
    pages = (*pages, *of_one, "/repositories/organisations/", "/repositories/languages/", "/search/")
    admin = (
        "",
        "indexing/repository/",
        readers.replace("repositories", "indexing/repository")[1:],
        "assistant/message/",
    )
    pages = (*pages, shared, f"/evaluation/add/{message}/", *(f"/admin/{place}" for place in admin))
    for url in (*pages, f"/admin/assistant/message/{message}/change/", "/admin/indexing/goldenset/add/", "/not-there/"):
        page.goto(url.replace("settings/", "change/") if url.startswith("/admin/") else url)
        problems += check(page, url)
    page.goto("/")
    expect(page.locator("#q")).to_be_focused()  # which may be after the page has loaded; then keys would be typed
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    problems += check(page, "keys")
    lead.context.clear_cookies()
    page.goto("/sign-in/")
    problems += check(page, "sign in")
    lead.complaints[:] = [text for text in lead.complaints if "404 (Not Found)" not in text]
    assert not problems, "\n".join(problems)
