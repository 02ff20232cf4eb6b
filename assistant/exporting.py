"""A conversation as a Markdown file: questions, answers and where each passage is. No source text is added."""

from __future__ import annotations

from assistant import conversations
from assistant.citations import withheld
from assistant.models import Conversation
from indexing.access import Principal


def to_markdown(conversation: Conversation, principal: Principal) -> str:
    rows = list(conversation.messages.order_by("position"))
    evidence = conversations.evidence_of(rows, principal)
    parts = [f"# {conversation.title or 'Conversation'}"]
    for row in rows:
        sources = evidence[row.pk]
        hidden = withheld(sources)
        parts.append(f"## {row.question}")
        parts.append("This answer draws on code that you cannot read any more." if hidden else row.answer.strip())
        parts.append("\n".join(_source_line(item.number, item.title) for item in sources if item.citation))
    return "\n\n".join(part for part in parts if part) + "\n"


def _source_line(number: int, title: str) -> str:
    return f"- [{number}] {title}"
