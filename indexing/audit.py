"""Who did what to what -> a row of the audit log, that is added to and never changed.

For what staff and owners do: rights, tokens, repositories, golden sets, evaluation questions. Refuses nothing and keeps
no secret: details are names and counts, and what looks like a key in them is masked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexing.masking import mask_secrets
from indexing.models import AuditEvent, Repository

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser, User
    from django.db.models import Model

SHELL = "(server)"  # whoever ran a command there


def record(actor: User | AnonymousUser | None, action: str, target: Model | str, detail: str = "") -> None:
    """`action` says what happened, in the past: "repository removed". Call it where it happened, after it did."""
    AuditEvent.objects.create(
        actor_user_id=actor.pk if actor is not None else None,
        actor=(actor.get_username() if actor is not None else SHELL)[:150],
        action=action[:60],
        target=_name(target)[:300],
        repository_id=target.pk if isinstance(target, Repository) else None,
        detail=mask_secrets(detail)[:1000],
    )


def _name(target: Model | str) -> str:
    return target if isinstance(target, str) else f"{target._meta.verbose_name} {target.pk}: {target}"
