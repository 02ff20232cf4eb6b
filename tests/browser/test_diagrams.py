"""Mermaid in the page: drawn in a frame that reaches nothing, in both themes, live and after a reload."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Person
from tests.browser.test_whole_job import ask

pytestmark = pytest.mark.browser
ANSWER = """Orders are cancelled in `cancel_order` [1].

```mermaid
sequenceDiagram
  Customer->>Shop: cancel
  Shop-->>Customer: refunded
```

```mermaid
flowchart LR
  A[Order --> B{
```

```mermaid
%%{init: {"securityLevel": "loose", "themeCSS": "svg{background:url(https://example.org/a)}"}}%%
flowchart TD
  X["<img src=x onerror=alert(1)>"] --> Y["List<String>"]
  click Y href "https://example.org/b"
```

After the diagrams [1].
"""


def test_it_draws_what_can_be_drawn_and_keeps_the_text_of_the_rest(lead: Person, indexed: str) -> None:
    page, asked = lead.page, []
    page.on("request", lambda request: asked.append(request.url))
    lead.server.model.script = [(200, {}, ANSWER)]
    ask(lead)
    boxes = page.locator("[data-mermaid]")
    expect(page.locator(".prose:not([data-state])")).to_contain_text("After the diagrams", timeout=20_000)
    check_boxes(page, boxes)
    page.reload()
    check_boxes(page, boxes)
    assert [url for url in asked if not url.startswith(lead.server.url)] == []
    page.goto("/")
    assert page.locator("script[src*=mermaid], iframe").count() == 0


def check_boxes(page, boxes) -> None:
    for place, state in enumerate(["drawn", "failed", "drawn"]):
        boxes.nth(place).scroll_into_view_if_needed()
        expect(boxes.nth(place)).to_have_attribute("data-mermaid", state, timeout=20_000)
    assert boxes.nth(0).locator("iframe").get_attribute("sandbox") == "allow-scripts"
    drawn = boxes.nth(0).frame_locator("iframe")
    expect(drawn.locator("svg")).to_contain_text("refunded")
    expect(boxes.nth(1)).to_contain_text("This diagram could not be drawn: Parse error")
    expect(boxes.nth(1).locator("pre")).to_contain_text("A[Order --> B{")
    hostile = boxes.nth(2).frame_locator("iframe")
    expect(hostile.locator("svg")).to_contain_text("onerror=alert(1)")
    assert hostile.locator("img, a[href]").count() == 0


def test_it_takes_the_colours_of_the_theme(lead: Person, indexed: str) -> None:
    page = lead.page
    lead.server.model.script = [(200, {}, ANSWER.split("```mermaid\nflowchart LR")[0])]
    page.emulate_media(color_scheme="light")
    ask(lead)
    frame = page.locator("[data-mermaid]").frame_locator("iframe")
    actor = frame.locator("rect.actor").first
    expect(actor).to_have_css("fill", "rgb(245, 247, 247)", timeout=20_000)
    page.emulate_media(color_scheme="dark")
    expect(actor).to_have_css("fill", "rgb(21, 27, 28)")
    expect(frame.locator("body")).to_have_css("background-color", "rgb(16, 21, 22)")
