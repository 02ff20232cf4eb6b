"""The row of five steps."""

from __future__ import annotations

from typing import Any

from assistant.models import Message
from assistant.stages import LiveSteps, steps_of

TRACE: dict[str, Any] = {
    "plan": {"notice": ""},
    "readable_repositories": 212,
    "repositories": [{}, {}, {}, {}],
    "candidates": [{}] * 60,
    "stages": [
        {"name": "plan", "started_ms": 0, "milliseconds": 800, "state": "done", "note": ""},
        {"name": "write", "started_ms": 900, "milliseconds": 6000, "state": "done", "note": ""},
    ],
}


def words(steps: list[Any]) -> list[str]:
    return [f"{step.state} {step.number} {step.label}".replace("  ", " ").strip() for step in steps]


def test_it_counts_what_a_finished_answer_looked_at() -> None:
    assert words(steps_of(Message(state="done"), TRACE, 8)) == [
        "done planned",
        "done 4 of 212 repositories",
        "done 60 candidates",
        "done 8 kept",
        "done 6.9 s",
    ]


def test_it_keeps_the_place_of_a_step_that_failed() -> None:
    trace = TRACE | {"plan": {"notice": "The model did not return a valid plan."}, "stages": [dict(TRACE["stages"][0])]}
    trace["stages"][0]["state"] = "failed"
    first, *_, last = steps_of(Message(state="stopped"), trace, 8)
    assert (first.state, first.label, first.note) == ("bad", "basic plan", "The model did not return a valid plan.")
    assert (last.state, last.label) == ("bad", "stopped")


def test_it_follows_stage_events() -> None:
    live = LiveSteps()
    assert words(live.steps) == ["wait plan", "wait repositories", "wait search", "wait rank", "wait write"]
    live.update("plan", "now")
    live.update("plan", "failed", "no valid plan")
    live.update("retrieve", "now")
    assert words(live.steps)[:3] == ["bad basic plan", "done repositories chosen", "now searching"]
    live.evidence_is_ready(8)
    live.update("write", "now")
    assert words(live.steps)[2:] == ["done searched", "done 8 kept", "now writing"]


def test_it_ignores_stages_it_does_not_know() -> None:
    live = LiveSteps()
    live.update("brew", "now")
    assert {step.state for step in live.steps} == {"wait"}
