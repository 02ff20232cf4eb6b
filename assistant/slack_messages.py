"""A stored answer, as one reader may see it now -> the messages that Slack gets: blocks within Slack's limits.

The first message replaces the one that showed the progress. Buttons for an opinion are under the last one. What does
not fit into MAX_MESSAGES is in the conversation, which is linked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assistant import citations, mrkdwn
from assistant.citations import Evidence
from assistant.exchanges import citation_url, page_url
from assistant.models import Message
from assistant.rendering import WITHHELD

# 12,000 characters is what Slack documents for the Markdown of one message; messages of sections were refused from
# about 11,300 on (slackapi/bolt-js issue 2867), and the largest one that is reported as taken has 9,597.
MESSAGE_CHARS = 9000
MESSAGE_BLOCKS = 45  # Slack takes 50
MAX_MESSAGES = 4  # a command's address for replies takes five
FALLBACK_CHARS = 300  # for notifications and screen readers
MAX_SOURCES = 20
HELPFUL, NOT_HELPFUL = "helpful", "not_helpful"
FOR_EVERYONE = "Made from repositories that everyone here may read; ask me in a direct message for the others."

Block = dict[str, Any]  # Any: JSON of Slack


@dataclass(frozen=True, slots=True)
class _Links:
    """Where a conversation and its passages are: pages that ask who opens them."""

    origin: str
    message: Message
    for_everyone: bool

    @property
    def conversation(self) -> str:
        return f"{self.origin}/c/{self.message.conversation_id}/#m-{self.message.pk}"

    def passage(self, item: Evidence) -> str:
        """Beside the conversation for whoever asked; as a page of its own for a channel, where others open it too."""
        address = page_url if self.for_everyone else citation_url
        url = address(self.message, item) if item.linkable else ""
        return f"{self.origin}{url}" if url else ""


def answer_messages(
    message: Message, evidence: Sequence[Evidence], origin: str, *, for_everyone: bool = False
) -> list[dict[str, Any]]:  # Any: JSON of Slack
    """Never empty. `text` of each is the short form for notifications."""
    links = _Links(origin, message, for_everyone)
    if citations.withheld(evidence):
        return [_message([section(WITHHELD)])]
    blocks = [section(text) for text in _texts(message, evidence, links)] or [section("There is no answer.")]
    messages = _split(blocks)
    if len(messages) > MAX_MESSAGES:
        more = section(f"The answer is longer than this. {mrkdwn.link(links.conversation, 'Read all of it')}")
        messages = [*messages[: MAX_MESSAGES - 1], [more]]
    messages[-1] += [*_afterword(message, evidence, links), _buttons(message)]
    return [_message(blocks) for blocks in messages]


def section(text: str) -> Block:
    """`text` is mrkdwn. Slack looks for nothing in it, and does not fold it."""
    return {"type": "section", "expand": True, "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def reason_buttons(message_id: str, reasons: dict[str, str]) -> Block:
    return {
        "type": "actions",
        "elements": [_button(label, f"reason:{reason}", message_id) for reason, label in reasons.items()],
    }


def _texts(message: Message, evidence: Sequence[Evidence], links: _Links) -> list[str]:
    by_number = {item.number: item for item in evidence}

    def cite(number: int) -> str:
        item = by_number.get(number)
        url = links.passage(item) if item is not None else ""
        return mrkdwn.link(url, f"[{number}]") if url else f"[{number}]"

    found = mrkdwn.pieces(message.answer, cite)
    if message.error:
        found.append(mrkdwn.Piece(mrkdwn.plain(message.error)))
    sources = _sources(evidence, links)
    if sources:
        found.append(mrkdwn.Piece("\n".join(["*Sources*", *sources])))
    return mrkdwn.pack(found)


def _sources(evidence: Sequence[Evidence], links: _Links) -> list[str]:
    """One line a passage that the text refers to, with its place in words."""
    lines = []
    for item in evidence:
        row, url = item.citation, links.passage(item)
        if row is None or not item.cited or not url:
            continue
        name = row.repository.name if row.repository is not None else row.repository_name
        lines.append(f"[{item.number}] {mrkdwn.link(url, item.label)} {mrkdwn.plain(name)}")
    more = len(lines) - MAX_SOURCES
    return lines if more <= 0 else [*lines[:MAX_SOURCES], f"and {more} more"]


def _split(blocks: Sequence[Block]) -> list[list[Block]]:
    messages: list[list[Block]] = [[]]
    size = 0
    for block in blocks:
        needed = mrkdwn.length(block["text"]["text"])
        if messages[-1] and (size + needed > MESSAGE_CHARS or len(messages[-1]) == MESSAGE_BLOCKS):
            messages.append([])
            size = 0
        messages[-1].append(block)
        size += needed
    return messages


def _afterword(message: Message, evidence: Sequence[Evidence], links: _Links) -> list[Block]:
    """What was doubtful or missing, who wrote it, and where it can be read with its trace."""
    lines = [mrkdwn.plain(notice) for notice in message.notices]
    lines += [FOR_EVERYONE] if links.for_everyone else []
    cited = [item for item in evidence if item.cited]
    checked = f"{sum(item.verified for item in cited)} of {len(cited)} citations verified" if cited else ""
    about = [mrkdwn.plain(message.answered_by), checked, mrkdwn.link(links.conversation, "Open in the browser")]
    lines.append(" · ".join(part for part in about if part))
    texts = mrkdwn.pack([mrkdwn.Piece(line, tight=True) for line in lines], limit=2000)[:10]
    return [{"type": "context", "elements": [{"type": "mrkdwn", "text": text, "verbatim": True} for text in texts]}]


def _buttons(message: Message) -> Block:
    words = {HELPFUL: "Helpful", NOT_HELPFUL: "Not helpful"}
    elements = [_button(label, action, str(message.pk)) for action, label in words.items()]
    return {"type": "actions", "elements": elements}


def _button(label: str, action: str, value: str) -> Block:
    return {"type": "button", "text": {"type": "plain_text", "text": label}, "action_id": action, "value": value}


def _message(blocks: list[Block]) -> dict[str, Any]:  # Any: JSON of Slack
    texts = [block["text"]["text"] for block in blocks if block["type"] == "section"]
    short = "".join(mrkdwn.cut(texts[0], FALLBACK_CHARS)[:1]) if texts else "An answer"
    return {"text": short, "blocks": blocks}
