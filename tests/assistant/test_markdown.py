from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from assistant.markdown import Chip, chip_html, render, render_next

CHIPS = {
    1: Chip(
        "sessions.py:303–321", "pallets/flask src/sessions.py, lines 303–321", "/r/1/flask/blob/abc?path=s.py", "ok"
    ),
    2: Chip("app.py:7", "pallets/flask app.py, line 7", "", "broken"),
}
PAYLOADS = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<a href='javascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](vbscript:msgbox(1))",
    "[x](java\nscript:alert(1))",
    "<javascript:alert(1)>",
    "![a](https://evil.test/?q=history)",
    '![a](x" onerror="alert(1))',
    "![a](data:image/svg+xml;base64,PHN2Zz4=)",
    "[![a](https://evil.test/p.png)](https://evil.test)",
    '[x](https://ok.test "title\\" onmouseover=alert(1)")',
    "[x](/admin/logout/)",
    "[x](//evil.test/a)",
    "[1]: https://evil.test\n\n[1]",
    "```python\n</pre><script>alert(1)</script>\n```",
    '```"><img src=x onerror=alert(1)>\nx\n```',
    '```mermaid\nclick A href "javascript:alert(1)"\n```',
    "```html\n<iframe src=https://evil.test></iframe>\n```",
    "`<img src=x onerror=alert(1)>`",
    "<style>*{background:url(https://evil.test)}</style>",
    "<form action=https://evil.test><input></form>",
    "<base href=https://evil.test>",
    "<meta http-equiv=refresh content=0;url=https://evil.test>",
    "| a |\n|:-:|\n| <img src=x onerror=alert(1)> |",
    "&lt;img src=x onerror=alert(1)&gt;",
    "<!--><img src=x onerror=alert(1)>-->",
]


class _Elements(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def _elements(html: str) -> list[tuple[str, dict[str, str | None]]]:
    return _Elements(html).found


@pytest.mark.parametrize("payload", PAYLOADS)
def test_it_renders_hostile_text_inert(payload: str) -> None:
    for tag, attributes in _elements(render(f"Before {payload}\n\n{payload}\n\nafter", CHIPS)):
        assert tag not in {"script", "img", "svg", "style", "form", "input", "iframe", "base", "meta", "object"}
        assert not [name for name in attributes if name.startswith("on") or name in {"style", "src"}]
        href = attributes.get("href")
        assert href is None or href == CHIPS[1].href or re.match(r"https?://[a-z]", href)


def test_it_shows_the_host_of_an_external_link() -> None:
    html = render("[docs](https://github.com@evil.test/a)", {})
    assert 'rel="noopener noreferrer nofollow"' in html
    assert '</a> <span class="dim">(evil.test)</span>' in html


def test_it_shows_the_words_of_an_image_and_loads_nothing() -> None:
    assert "[image: chart, not loaded from evil.test]" in render("![chart](https://evil.test/?q=1)", {})


def test_it_names_the_place_at_the_first_mention_and_only_the_number_later() -> None:
    first, later = (element for element in _elements(render("A [1]. B [1].", CHIPS)) if element[0] == "a")
    html = render("A [1]. B [1].", CHIPS)
    assert html.count("sessions.py:303–321</a>") == 1
    assert first[1]["href"] == later[1]["href"] == CHIPS[1].href
    assert later[1]["aria-label"] == "Citation 1: sessions.py:303–321"


def test_it_carries_mentions_over_from_block_to_block() -> None:
    mentioned: set[int] = set()
    blocks = [render_next(block, CHIPS, mentioned) for block in ("A [1].", "B [1].")]
    assert "".join(blocks) == render("A [1].\n\nB [1].", CHIPS)


def test_it_never_links_a_broken_or_unknown_citation() -> None:
    html = render("A [2], B [9].", CHIPS)
    assert "<a" not in html
    assert html.count('data-state="broken"') == 2


def test_it_marks_a_citation_that_is_still_being_checked() -> None:
    chip = Chip("a.py:1", "a.py", "/r/1/a", "pending")
    assert 'data-state="pending"' in chip_html(3, chip)


def test_it_escapes_file_names_in_chips() -> None:
    chip = Chip('"><img src=x onerror=alert(1)>.py:1', '"><script>', "/r/1/x/blob/abc?path=a&bytes=1-2", "ok")
    assert [tag for tag, _ in _elements(render("[1]", {1: chip}))] == ["p", "a", "span"]


def test_it_highlights_fenced_code_and_leaves_markers_in_it_alone() -> None:
    html = render("```python\ndef f(): return a[1]  # x\n```", CHIPS)
    assert '<figure class="codebox"><header><span class="grow cut">Python</span>' in html
    assert '<span class="k">def</span> <span class="f">f</span>' in html
    assert "citation" not in html


def test_it_shows_what_a_patch_adds_and_removes() -> None:
    html = render("```diff\n--- a/x.py\n+++ b/x.py\n-old\n+new\n same\n```", {})
    assert '<li class="del"><span class="ln"></span><span>-old</span></li>' in html
    assert '<li class="add"><span class="ln"></span><span>+new</span></li>' in html
    assert '<li><span class="ln"></span><span>--- a/x.py</span></li>' in html


@pytest.mark.parametrize("language", ["mermaid", "plantuml"])
def test_it_keeps_diagrams_as_text_that_can_be_copied(language: str) -> None:
    html = render(f"```{language}\nA --> B\n```", {})
    assert "A --&gt; B" in html
    assert "data-copy" in html


def test_it_makes_reordering_characters_visible() -> None:
    assert "⟨U+202E⟩" in render("see `a\u202eb`", {})


def test_it_puts_headings_below_those_of_the_page() -> None:
    assert render("# One\n\n##### Five", {}) == "<h3>One</h3>\n<h6>Five</h6>\n"


def test_it_keeps_the_style_attribute_out_of_tables() -> None:
    assert "style" not in render("| a |\n|:-:|\n| 1 |", {})
