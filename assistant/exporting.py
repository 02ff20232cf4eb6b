"""A conversation as Markdown or as JSON: questions, answers and where each passage is. No source text is added.

The Markdown is as inert as the page: whatever program shows the file, it runs and loads nothing.
"""

from __future__ import annotations

from typing import Any

from assistant import conversations
from assistant.citations import Evidence, withheld
from assistant.inert_markdown import closed, inert, plain
from assistant.models import Conversation, Message
from indexing.access import Principal

Json = dict[str, Any]  # Any: JSON


def to_markdown(conversation: Conversation, principal: Principal) -> str:
    rows = list(conversation.messages.order_by("position"))
    evidence = conversations.evidence_of(rows, principal)
    parts = [f"# {plain(conversation.title) or 'Conversation'}"]
    for row in rows:
        sources = evidence[row.pk]
        hidden = withheld(sources)
        parts.append(f"## {plain(row.question)}")
        parts.append(
            "This answer draws on code that you cannot read any more." if hidden else closed(row.answer.strip())
        )
        parts.append("\n".join(_source_line(item.number, item.title) for item in sources if item.citation))
    return inert("\n\n".join(part for part in parts if part) + "\n")


def to_json(conversation: Conversation, principal: Principal) -> Json:
    """`answer` is null where it draws on code that may not be read (any more)."""
    rows = list(conversation.messages.order_by("position"))
    evidence = conversations.evidence_of(rows, principal)
    return {
        "id": str(conversation.pk),
        "title": conversation.title,
        "created_at": conversation.created_at.isoformat(),
        "messages": [_message(row, evidence[row.pk]) for row in rows],
    }


def _message(row: Message, sources: list[Evidence]) -> Json:
    hidden = withheld(sources)
    return {
        "id": str(row.pk),
        "question": row.question,
        "mode": row.mode,
        "state": row.state,
        "created_at": row.created_at.isoformat(),
        "answer": None if hidden else row.answer,
        "answered_by": row.answered_by,
        "notices": [] if hidden else row.notices,
        "citations": [_place(item) for item in sources if item.citation is not None],
    }


def _place(item: Evidence) -> Json:
    row = item.citation
    assert row is not None
    return {
        "number": row.number,
        "repository": row.repository.name if row.repository is not None else row.repository_name,
        "commit": row.commit,
        "path": row.display_path,
        "symbol": row.symbol,
        "start_line": row.start_line,
        "end_line": row.end_line,
        "start_byte": row.start_byte,
        "end_byte": row.end_byte,
        "cited": row.cited,
        "verified": row.verified,
    }


def _source_line(number: int, title: str) -> str:
    return f"- [{number}] {plain(title)}"
