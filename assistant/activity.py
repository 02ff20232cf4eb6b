"""PlantUML's activity syntax -> steps, and steps -> a flow chart in plain markup. Everything else stays text.

Drawn: start, stop, end, `:action;`, if / elseif / else, while, repeat. Arrows, notes, titles and swim lanes are
left out. A text with anything else, or that does not close what it opens, is no flow: its text is shown instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from indexing.highlighting import visible

MAX_STEPS = 300
MAX_DEPTH = 20
MAX_LINE_CHARS = 300  # the patterns below take time that grows faster than the line
MAX_ACTION_CHARS = 2_000

_IF = re.compile(
    r"(?:else\s*)?if\s*\((.*?)\)\s*(?:(?:is|equals)\s*\((.*?)\)\s*)?(?:then\s*(?:\((.*?)\))?)?\s*$", re.IGNORECASE
)
_ELSE = re.compile(r"else\s*(?:\((.*?)\))?\s*$", re.IGNORECASE)
_WHILE = re.compile(r"while\s*\((.*?)\)\s*(?:is\s*\((.*?)\))?\s*$", re.IGNORECASE)
_END_WHILE = re.compile(r"end\s?while\s*(?:\((.*?)\))?\s*$", re.IGNORECASE)
_REPEAT_WHILE = re.compile(r"repeat\s?while\s*\((.*?)\).*$", re.IGNORECASE)
_IGNORED = re.compile(
    r"@(start|end)uml\b|'|title\b|-+(\[.*?\])?-*>|skinparam\b|!|\|.*\|$|(floating )?note (left|right)?\s*:"
    r"|hide\b|scale\b",
    re.IGNORECASE,
)
_NOTE = re.compile(r"(floating )?note\b", re.IGNORECASE)


@dataclass(slots=True)
class Step:
    """`kind`: start, stop, action, if, while or repeat. `arms`: what a step with branches leads to, with its label."""

    kind: str
    text: str = ""
    arms: list[Arm] = field(default_factory=list)


@dataclass(slots=True)
class Arm:
    label: str
    steps: list[Step] = field(default_factory=list)


class _NoFlow(Exception):
    """The text has something that is not drawn."""


def parse(text: str) -> list[Step] | None:
    """The steps of an activity diagram; None for what cannot be drawn."""
    try:
        return _Parser().parse(text)
    except _NoFlow:
        return None


def draw(steps: list[Step]) -> str:
    """HTML, escaped: a column of steps, branches side by side."""
    return f'<div class="flow">{"".join(map(_drawn, steps))}</div>'


class _Parser:
    """Line by line; `open` holds the steps whose end has not come yet, the innermost last."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.open: list[Step] = []
        self.count = 0

    def parse(self, text: str) -> list[Step]:
        lines = iter(line.strip() for line in text.splitlines())
        for line in lines:
            if line.startswith(":"):
                while not line.endswith((";", "|", "<", ">", "/", "]", "}")):
                    following = next(lines, None)
                    if following is None or len(line) > MAX_ACTION_CHARS:
                        raise _NoFlow
                    line = f"{line}\n{following}"
                self._add(Step("action", line[1:-1].strip()))
            elif len(line) > MAX_LINE_CHARS:
                raise _NoFlow
            elif _NOTE.match(line) and ":" not in line:
                while line.lower().replace(" ", "") != "endnote":
                    line = next(lines, "end note")
            elif line and not _IGNORED.match(line):
                self._take(line)
        if self.open or not self.steps:
            raise _NoFlow
        return self.steps

    def _take(self, line: str) -> None:
        word = line.lower()
        if word in ("start", "stop", "end", "kill", "detach"):
            self._add(Step("start" if word == "start" else "stop"))
        elif word in ("endif", "end if"):
            self._close("if")
        elif (found := _END_WHILE.match(line)) is not None:
            self._close("while").arms.append(Arm(found[1] or ""))
        elif (found := _REPEAT_WHILE.match(line)) is not None:
            self._close("repeat").text = found[1]
        elif word == "repeat":
            self._begin(Step("repeat"), "")
        elif (found := _WHILE.match(line)) is not None:
            self._begin(Step("while", found[1]), found[2] or "")
        elif (found := _IF.match(line)) is not None:
            self._branch(line, found[1], found[3] or found[2] or "")
        elif (found := _ELSE.match(line)) is not None:
            self._current("if").arms.append(Arm(found[1] or ""))
        else:
            raise _NoFlow

    def _branch(self, line: str, condition: str, label: str) -> None:
        """`elseif` is one more arm, under the words of its own condition."""
        if line.lower().startswith("else"):
            self._current("if").arms.append(Arm(f"{condition} {label}".strip()))
        else:
            self._begin(Step("if", condition), label)

    def _begin(self, step: Step, label: str) -> None:
        self._add(step)
        step.arms.append(Arm(label))
        self.open.append(step)
        if len(self.open) > MAX_DEPTH:
            raise _NoFlow

    def _add(self, step: Step) -> None:
        self.count += 1
        if self.count > MAX_STEPS:
            raise _NoFlow
        (self.open[-1].arms[-1].steps if self.open else self.steps).append(step)

    def _current(self, kind: str) -> Step:
        if not self.open or self.open[-1].kind != kind:
            raise _NoFlow
        return self.open[-1]

    def _close(self, kind: str) -> Step:
        self._current(kind)
        return self.open.pop()


def _drawn(step: Step) -> str:
    if step.kind in ("start", "stop"):
        return f'<div class="node node--{step.kind}"><span>{step.kind}</span></div>'
    if step.kind == "action":
        return f'<div class="node">{_lines(step.text)}</div>'
    condition = f'<div class="node node--if">{_lines(step.text)}</div>'
    if step.kind == "if":
        arms = "".join(map(_arm, step.arms))
        return f'<div class="branch">{condition}<div class="arms">{arms}</div></div>'
    inside = "".join(map(_drawn, step.arms[0].steps))
    labels = [arm.label for arm in step.arms]
    again = f'<span class="when">{visible(labels[0] or "again")}</span>'
    after = f'<span class="when">{visible(labels[1])}</span>' if len(labels) > 1 and labels[1] else ""
    if step.kind == "while":
        return f'<div class="loop">{condition}{again}{inside}</div>{after}'
    return f'<div class="loop">{inside}{condition}{again}</div>'


def _arm(arm: Arm) -> str:
    label = f'<span class="when">{visible(arm.label)}</span>' if arm.label else ""
    return f'<div class="arm">{label}{"".join(map(_drawn, arm.steps))}</div>'


def _lines(text: str) -> str:
    return "<br>".join(visible(line.strip()) for line in text.split("\n"))
