"""The five steps a person sees above an answer, from what the pipeline reports.

In: stage events while an answer is made, or the stored trace of a finished one. Out: five `Step`s, always in the
same order, so that nothing in the row moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assistant.models import Message

Json = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Step:
    """`number` is printed in bold before `label`; `state` is wait, now, done or bad."""

    label: str
    state: str = "wait"
    number: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Words:
    stages: tuple[str, ...]
    waiting: str
    now: str
    done: str
    failed: str


_STEPS = (
    _Words(("plan",), "plan", "planning", "planned", "basic plan"),
    _Words(("repositories",), "repositories", "choosing repositories", "repositories chosen", "all repositories"),
    _Words(("embed", "retrieve"), "search", "searching", "searched", "searched by words"),
    _Words(("rank", "rerank", "read"), "rank", "ranking", "ranked", "retrieval order"),
    _Words(("first_token", "write"), "write", "writing", "written", "cut off"),
)


@dataclass(slots=True)
class LiveSteps:
    """The row of an answer that is being made; `update` takes one stage event."""

    steps: list[Step] = field(default_factory=lambda: [Step(words.waiting) for words in _STEPS])

    def update(self, name: str, state: str, note: str = "") -> None:
        for place, words in enumerate(_STEPS):
            if name not in words.stages:
                continue
            self.steps[place] = _step(words, state, note)
            if name in words.stages[1:] or place == len(_STEPS) - 1:
                self._finish_before(place)

    def _finish_before(self, place: int) -> None:
        """Steps that were skipped, or never said that they ended, are over once a later one has begun."""
        for earlier in range(1, place):
            if self.steps[earlier].state in ("wait", "now"):
                self.steps[earlier] = replace(self.steps[earlier], state="done", label=_STEPS[earlier].done)

    def evidence_is_ready(self, passages: int) -> None:
        self._finish_before(3)
        self.steps[3] = Step("kept", "done", str(passages))


def _step(words: _Words, state: str, note: str) -> Step:
    if state == "failed":
        return Step(words.failed, "bad", note=note)
    return Step(words.done, "done") if state == "done" else Step(words.now, "now")


def steps_of(message: Message, trace: Json, passages: int) -> list[Step]:
    """The row of a finished answer, or five waiting steps."""
    if not message.finished:
        return LiveSteps().steps
    return [*_search_steps(trace, passages), _ending(message, trace)]


def _search_steps(trace: Json, passages: int) -> list[Step]:
    if not trace:
        return []
    plan, readable = trace["plan"], trace["readable_repositories"]
    planned = Step("basic plan", "bad", note=plan["notice"]) if _failed(trace, "plan") else Step("planned", "done")
    kept = Step("kept", "bad" if _failed(trace, "rerank") else "done", str(passages), _note(trace, "rerank"))
    chosen = len(trace["repositories"])
    return [
        planned,
        Step(f"of {readable:,} repositor{'y' if readable == 1 else 'ies'}", "done", f"{chosen:,}"),
        Step("candidates", "done", f"{len(trace['candidates']):,}"),
        kept,
    ]


def _ending(message: Message, trace: Json) -> Step:
    if message.state == Message.State.STOPPED:
        return Step("stopped", "bad")
    if message.state == Message.State.FAILED:
        return Step("cut off" if message.answer else "failed", "bad", note=message.error)
    return Step("", "done", f"{total_milliseconds(trace['stages'] if trace else []) / 1000:.1f} s")


def total_milliseconds(stages: Sequence[Json]) -> float:
    return max((stage["started_ms"] + stage["milliseconds"] for stage in stages), default=0.0)


def _failed(trace: Json, name: str) -> bool:
    return any(stage["name"] == name and stage["state"] == "failed" for stage in trace["stages"])


def _note(trace: Json, name: str) -> str:
    return next((str(stage["note"]) for stage in trace["stages"] if stage["name"] == name), "")
