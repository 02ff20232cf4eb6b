"""What is exported loads nothing in a program that runs HTML and shows images, and still reads as it was written."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from assistant.inert_markdown import closed, inert, plain
from tests.browser import payloads

OTHER_VIEWER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.mark.parametrize(
    "text",
    [
        "Use `Vec<T>` and `![a](b)` [1].",
        "```html\n<img src=x>\n```",
        "    <b>indented code</b>",
        "1. See [the docs](https://docs.example.org/a).\n2. Then **stop** [2-4].",
        "a < b, `c\nd`",
    ],
)
def test_it_leaves_alone_what_only_says_something(text: str) -> None:
    assert inert(text).replace("\\<", "<") == text


@pytest.mark.parametrize(
    ("text", "exported"),
    [
        ("<img src=x> `<b>`", "\\<img src=x> `<b>`"),
        ("![a](https://evil.test/?q=1)", "!\\[a](https://evil.test/?q=1)"),
        ("[x](javascript:owned())", "[x]\\(javascript:owned())"),
        ("[x](//evil.test)", "[x]\\(//evil.test)"),
        ("[1]: https://evil.test", "[1]\\: https://evil.test"),
        ("| a |\n|---|\n| <b> `<c>` |\n| ![x](y) |", "| a |\n|---|\n| \\<b> `<c>` |\n| !\\[x]\\(y) |"),
        ("\\`<img>`", "\\`\\<img>`"),
        ("> `a\n> <b` <img>", "> `a\n> &#60;b` &#60;img>"),  # in doubt what is code
    ],
)
def test_it_breaks_what_would_act(text: str, exported: str) -> None:
    assert inert(text) == exported


@pytest.mark.parametrize("block", [*payloads.ANSWER_BLOCKS, *payloads.CODE, *payloads.INJECTIONS, *payloads.QUESTIONS])
def test_it_gives_another_viewer_nothing_to_load_or_run(block: str) -> None:
    around = f"before\n\n{closed(block)}\n\nafter <img src=x>"
    html = OTHER_VIEWER.render(inert(around))
    tags = {token.tag for token in OTHER_VIEWER.parse(inert(around)) if token.type == "html_block"}
    assert not tags
    for mark in (
        "<img",
        "<svg",
        "<script",
        "<iframe",
        "<details",
        'href="javascript',
        'href="//',
        'href="data',
        "<div",
    ):
        assert mark not in html


def test_it_closes_a_fence_that_was_left_open() -> None:
    assert closed("```\n<b>") == "```\n<b>\n```"
    assert closed("~~~~\n") == "~~~~\n\n~~~~"
    assert closed("```\nx\n```") == "```\nx\n```"
    assert closed("- ```\n  x") == "- ```\n  x"


def test_it_shows_plain_text_as_it_is_written() -> None:
    assert plain("a_b\n<i> [x](y) `z`") == "a_b \\<i\\> \\[x\\](y) \\`z\\`"
