from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant import mrkdwn


def cite(number: int) -> str:
    return mrkdwn.link(f"https://code.example/r/1?n={number}", f"[{number}]")


def convert(text: str) -> str:
    return "\n\n".join(mrkdwn.sections(text, cite)).replace("\u200b", "")


@pytest.mark.parametrize(
    ("markdown", "expected"),
    [
        ("# How **it** works", "*How it works*"),
        ("a **bold** and *leaning* and ~~gone~~ word", "a *bold* and _leaning_ and ~gone~ word"),
        ("signed [1] twice [1, 2]", "signed <https://code.example/r/1?n=1|[1]> twice "),
        ("[docs](https://docs.example/a?b=1|2)", "<https://docs.example/a?b=1%7C2|docs> (docs.example)"),
        ("[here](/admin/) and [x](javascript:alert)", "here and "),
        ("![plan](https://evil.example/?q=1)", "[image: plan]"),
        ("- one\n- two\n  - three", "• one\n• two\n    ◦ three"),
        ("3. one\n4. two", "3. one\n4. two"),
        ("> quoted", "> quoted"),
        ("| a | b |\n|---|---|\n| 1 | long |", "```\na | b\n--+-----\n1 | long\n```"),
        ("```py\nif a < b:\n    c()\n```", "```\nif a &lt; b:\n    c()\n```"),
        ("call `a<b>` then", "call `a&lt;b&gt;` then"),
    ],
)
def test_it_writes_markdown_as_slack_reads_it(markdown: str, expected: str) -> None:
    assert convert(markdown).startswith(expected)


@pytest.mark.parametrize("text", ["<!channel> look", "<@U123> look", "`<!here>`", "```\n<!subteam^S1>\n```", "# <#C1>"])
def test_it_mentions_nobody(text: str) -> None:
    assert "<" not in convert(text)


def test_it_shows_names_as_code_that_slack_would_format() -> None:
    assert convert(r"call \_\_init\_\_, \*args and snake_case_name * 2") == (
        "call `__init__`, `*args` and snake_case_name * 2"
    )


def test_it_keeps_a_fence_whole_over_sections() -> None:
    lines = [f"line {number} < {number}" for number in range(600)]
    found = mrkdwn.sections("Before.\n\n```\n" + "\n".join(lines) + "\n```\n\nAfter.", cite)
    assert len(found) > 3
    assert all(mrkdwn.length(text) <= mrkdwn.SECTION_CHARS for text in found)
    fences = [part for text in found for part in text.split("```")[1::2]]
    assert "".join(fences).replace("\n\n", "\n").strip().split("\n") == [mrkdwn.escape(line) for line in lines]
    assert found[0].startswith("Before.")
    assert found[-1].endswith("After.")


def test_it_cuts_a_long_paragraph_between_words() -> None:
    text = " ".join(["word [1]"] * 800)
    found = mrkdwn.sections(text, cite)
    assert len(found) > 1
    for section in found:
        assert section.count("<https://") == section.count("|[1]>")


@given(st.text(alphabet="ab \n`*_~<>&|[]()#-!@1.:/\\🙂é", max_size=400))
def test_it_stays_inert_and_within_its_limit(text: str) -> None:
    for section in mrkdwn.sections(text, cite, limit=200):
        assert 0 < mrkdwn.length(section) <= 200
        assert section.count("```") % 2 == 0
        for tag in section.split("<")[1:]:
            assert tag.startswith(("https://", "http://"))
