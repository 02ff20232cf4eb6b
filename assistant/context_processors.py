"""What every full page shows around its content: theme, conversations, repositories, and where answers are written.

Everything is lazy: a fragment that does not draw the sidebar asks the database nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.utils import timezone
from django.utils.functional import SimpleLazyObject

from assistant import conversations, slack
from assistant.models import Conversation
from indexing import llm
from indexing.access import Principal
from indexing.models import Repository
from indexing.status import RepositoryStatus, statuses

SIDEBAR_CONVERSATIONS = 60
SIDEBAR_REPOSITORIES = 6
THEMES = ("light", "dark")


def interface(request: HttpRequest) -> dict[str, Any]:  # Any: a template context
    theme = request.COOKIES.get("theme", "")
    return {
        "theme": theme if theme in THEMES else "",
        "sidebar_conversations": SimpleLazyObject(lambda: conversation_groups(request, "")),
        "sidebar_repositories": SimpleLazyObject(lambda: _repositories(request)),
        "slack_configured": slack.configured(),
        "single_sign_on": settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        "model_place": SimpleLazyObject(lambda: llm.model_place() if llm.configured() else None),
        "reranker_place": SimpleLazyObject(llm.reranker_place),
    }


def conversation_groups(request: HttpRequest, query: str) -> list[tuple[str, list[Conversation]]]:
    """The person's conversations under the headings of the sidebar, newest first, pinned ones on top."""
    found = conversations.visible_to(request.user).order_by("-pinned", "-updated_at")
    if query:
        found = found.filter(title__icontains=query)
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    rows = found[:SIDEBAR_CONVERSATIONS]
    return [(heading, list(group)) for heading, group in groupby(rows, lambda row: _heading(row, today))]


def _heading(conversation: Conversation, today: datetime) -> str:
    if conversation.pinned:
        return "Pinned"
    if conversation.updated_at >= today:
        return "Today"
    if conversation.updated_at >= today - timedelta(days=1):
        return "Yesterday"
    if conversation.updated_at >= today - timedelta(days=7):
        return "Previous 7 days"
    return "Older"


def _repositories(request: HttpRequest) -> dict[str, Any]:  # Any: a template context
    visible = Repository.objects.visible_to(Principal.of_user(request.user))
    rows: list[RepositoryStatus] = statuses(visible.order_by("-golden", "name")[:SIDEBAR_REPOSITORIES])
    return {"rows": rows, "total": visible.count() if len(rows) == SIDEBAR_REPOSITORIES else len(rows)}
