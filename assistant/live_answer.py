"""An answer in the making -> server-sent events with small pieces of HTML, safe to receive twice.

Stages and evidence are sent whole. Text is sent with the range of characters it covers, and a block of Markdown once
it is complete, with the range it replaces: a browser that reconnects drops what it has already.

    text   {"at": 120, "end": 126, "text": "cookie"}        appended to the unfinished block, as plain text
    block  {"at": 0, "end": 118, "html": "<p>...</p>"}      replaces the plain text of those characters
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connections
from django.template.loader import render_to_string

from assistant import answering, following, markdown
from assistant.citations import Evidence
from assistant.exchanges import EvidenceLink, evidence_links
from assistant.models import Message
from assistant.stages import LiveSteps

Json = dict[str, Any]  # Any: JSON
TERMINAL = ("done", "stopped", "error")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_CONTINUES = re.compile(r"\s|[-*+]\s|\d{1,3}[.)]\s")
_SURE_CHARS = 5  # a line this long cannot become a list item any more


async def events(
    message: Message,
    after: int,
    load_evidence: Callable[[Message], Sequence[Evidence]],
    is_signed_in: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Everything after `after`; what came before is replayed silently, because later blocks depend on it.

    Ends without a word once its reader is not signed in any more: a page that is connects again.
    """
    live, checked = _LiveAnswer(), time.monotonic()
    async for sequence, name, data in answering.event_stream(message, 0):
        if time.monotonic() - checked > following.RECHECK_SECONDS:
            if not await is_signed_in():
                return
            checked = time.monotonic()
        if name == "heartbeat":
            yield b": still here\n\n"
            continue
        if name == "evidence":
            live.take_evidence(message, await sync_to_async(_loaded)(load_evidence, message))
        for event, payload in live.pieces(name, data):
            if sequence > after or event in TERMINAL:
                yield _encoded(sequence, event, payload)


def _loaded(load_evidence: Callable[[Message], Sequence[Evidence]], message: Message) -> Sequence[Evidence]:
    """A stream lives for minutes; it must not hold a database connection meanwhile."""
    try:
        return load_evidence(message)
    finally:
        connections.close_all()


def _encoded(sequence: int, name: str, data: Json) -> bytes:
    return f"id: {sequence}\nevent: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


@dataclass(slots=True)
class _LiveAnswer:
    steps: LiveSteps = field(default_factory=LiveSteps)
    links: list[EvidenceLink] = field(default_factory=list)
    chips: dict[int, markdown.Chip] = field(default_factory=dict)
    mentioned: set[int] = field(default_factory=set)
    text: str = ""
    rendered: int = 0  # characters of `text` that were sent as blocks

    def take_evidence(self, message: Message, evidence: Sequence[Evidence]) -> None:
        self.links = evidence_links(message, evidence)
        hrefs = {link.number: link.href for link in self.links}
        self.chips = markdown.chips_of(evidence, lambda item: hrefs[item.number])
        self.steps.evidence_is_ready(len(evidence))

    def pieces(self, name: str, data: Json) -> list[tuple[str, Json]]:
        if name == "text":
            return self._text(str(data["text"]))
        if name == "stage":
            self.steps.update(data["name"], data["state"], data.get("note", ""))
            return [self._stages()]
        if name == "evidence":
            html = render_to_string("conversation.html#evidence", {"evidence": self.links})
            return [("evidence", {"html": html}), self._stages()]
        return [(name, {"text": data.get("text", "")})]

    def _stages(self) -> tuple[str, Json]:
        return "stage", {"html": render_to_string("conversation.html#stages", {"stages": self.steps.steps})}

    def _text(self, delta: str) -> list[tuple[str, Json]]:
        at = len(self.text)
        self.text += delta
        found: list[tuple[str, Json]] = [("text", {"at": at, "end": len(self.text), "text": delta})]
        complete = self.rendered + complete_length(self.text[self.rendered :])
        if complete > self.rendered:
            html = markdown.render_next(self.text[self.rendered : complete], self.chips, self.mentioned)
            found.append(("block", {"at": self.rendered, "end": complete, "html": html}))
            self.rendered = complete
        return found


def complete_length(text: str) -> int:
    """How many characters of unfinished Markdown are whole blocks, which no later character can change.

    >>> complete_length("One.\\n\\nTwo is being writ")
    6
    """
    complete = position = 0
    in_fence, after_blank = False, False
    for line in text.splitlines(keepends=True):
        if after_blank and not in_fence and _is_sure(line) and not _CONTINUES.match(line):
            complete = position
        if _FENCE.match(line):
            in_fence = not in_fence
            if not in_fence and line.endswith("\n") and not line.startswith(" "):
                complete = position + len(line)
        if line.strip() or not after_blank:
            after_blank = not line.strip() and position > 0
        position += len(line)
    return complete


def _is_sure(line: str) -> bool:
    return bool(line.strip()) and (line.endswith("\n") or len(line) >= _SURE_CHARS)
