"""A button under an answer in Slack -> an opinion of the person who pressed it, and what they are told."""

from __future__ import annotations

import uuid
from typing import Any

from django.http import HttpRequest

from assistant import citations, conversations, slack_accounts
from assistant.conversations import FEEDBACK_REASONS
from assistant.models import Message
from assistant.slack_messages import HELPFUL, NOT_HELPFUL, reason_buttons, section
from indexing.access import Principal

REASON = "reason:"
THANKS = "Noted, thank you."
GONE = "This answer is not here any more, or you may not read it, so it cannot be rated."

Reply = dict[str, Any]  # Any: a message of Slack


def rate(team_id: str, slack_user_id: str, action: dict[str, Any], request: HttpRequest) -> Reply | None:
    """What the person is told, and nobody else. None for a button that is not ours. Any: JSON of Slack."""
    name = str(action.get("action_id", ""))
    if name not in (HELPFUL, NOT_HELPFUL) and not name.startswith(REASON):
        return None
    user = slack_accounts.person_of(team_id, slack_user_id)
    if user is None or not user.is_active:
        return _reply(slack_accounts.how_to_link(request.build_absolute_uri("/").rstrip("/")))
    message = _message(action.get("value", ""), Principal.of_user(user))
    if message is None:
        return _reply(GONE)
    reason = name.removeprefix(REASON) if name.startswith(REASON) else ""
    conversations.save_feedback(message, user, helpful=name == HELPFUL, reason=reason)
    if name != NOT_HELPFUL:
        return _reply(THANKS)
    return {
        "text": f"{THANKS} What was wrong with it?",
        "blocks": [
            section(f"{THANKS} What was wrong with it?"),
            reason_buttons(str(message.pk), FEEDBACK_REASONS),
        ],
        "replace_original": False,
    }


def _message(pk: object, principal: Principal) -> Message | None:
    """An answer that the person may read all of: whoever sees it in a channel may say what they think."""
    try:
        message = Message.objects.select_related("conversation").filter(pk=uuid.UUID(str(pk))).first()
    except ValueError:
        return None
    if message is None:
        return None
    mine = message.conversation.owner_id == principal.user_id or message.conversation.for_everyone
    readable = not citations.withheld(conversations.evidence(message, principal))
    return message if mine and readable else None


def _reply(text: str) -> Reply:
    return {"text": text, "replace_original": False}
