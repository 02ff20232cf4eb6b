"""PlantUML's activity syntax becomes a flow chart; anything else stays text."""

from __future__ import annotations

import pytest

from assistant.activity import MAX_DEPTH, Step, draw, parse
from assistant.markdown import render

FLOW = """@startuml
title Refund
start
:Read the order
from the book;
-> loaded;
if (Late?) then (yes)
  :Refuse;
  stop
elseif (Paid?) then (no)
  :Close;
else (yes)
  while (More payments?) is (yes)
    :Refund <b>one</b>;
  endwhile (no)
endif
note right: money is back
stop
@enduml
"""


def kinds(steps: list[Step]) -> list[object]:
    return [(step.kind, [kinds(arm.steps) for arm in step.arms]) if step.arms else step.kind for step in steps]


def test_it_reads_steps_branches_and_loops() -> None:
    steps = parse(FLOW)
    assert steps is not None
    loop = ("while", [["action"], []])
    assert kinds(steps) == ["start", "action", ("if", [["action", "stop"], ["action"], [loop]]), "stop"]
    assert [arm.label for arm in steps[2].arms] == ["yes", "Paid? no", "yes"]


def test_it_draws_escaped_markup() -> None:
    steps = parse(FLOW)
    assert steps is not None
    html = draw(steps)
    assert "Read the order<br>from the book" in html
    assert "Refund &lt;b&gt;one&lt;/b&gt;" in html
    assert html.count("<div") == html.count("</div")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@startuml\nAlice -> Bob: hello\n@enduml",
        "start\nif (a) then (b)\n:x;\nstop",
        "start\nendif",
        "endwhile",
        "else",
        ":never closed",
        ":never closed\n" * 5000,
        "fork\n:a;\nend fork",
        "-" * 100_000,
        "\n".join(["if (a) then (b)"] * (MAX_DEPTH + 1) + ["endif"] * (MAX_DEPTH + 1)),
        "start\n" + ":x;\n" * 1000,
        "start\n<script>alert(1)</script>",
    ],
)
def test_it_leaves_what_it_cannot_draw_as_text(text: str) -> None:
    assert parse(text) is None


def test_it_keeps_the_text_beside_the_drawing() -> None:
    html = render(f"Before [1].\n\n```plantuml\n{FLOW}```\n\nAfter.", {})
    assert '<div class="flow">' in html
    assert "<details><summary>Text</summary><pre" in html
    assert "After." in html
    broken = render("```plantuml\nstart\nif (a) then (b)\n```\n\nAfter.", {})
    assert "flow" not in broken
    assert "if (a) then (b)" in broken
