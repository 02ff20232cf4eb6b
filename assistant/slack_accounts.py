"""Which person of a Slack workspace is which person here: linked by a code that works once.

The code is made on the account page and typed in Slack, never the other way round: a link that a stranger sends to
somebody can then give nobody that person's rights.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from assistant.models import SlackAccount, SlackLinkCode
from indexing import audit

LIFETIME = timedelta(minutes=10)
_ALPHABET = "23456789ABCDEFGHJKMNPQRSTVWXYZ"  # no 0 and O, no 1, I and L, no U
_CODE_CHARS = 12  # 58 bits, asked for over a signed connection, for ten minutes


def how_to_link(origin: str) -> str:
    """What a person is told whose account nobody knows."""
    return (
        "I do not know yet who you are here, so I cannot tell what you may read. "
        f"Make a code at <{origin}{reverse('slack_account')}> and type `/ask link CODE`, or send me `link CODE` "
        "in a direct message."
    )


def make_code(user: User) -> str:
    """A new code in place of the person's older ones, written in groups of four."""
    code = "".join(secrets.choice(_ALPHABET) for _ in range(_CODE_CHARS))
    SlackLinkCode.objects.filter(user=user).delete()
    SlackLinkCode.objects.create(user=user, code_sha256=_hash(code), expires_at=timezone.now() + LIFETIME)
    return "-".join(code[start : start + 4] for start in range(0, _CODE_CHARS, 4))


def use_code(code: str, *, team_id: str, slack_user_id: str, name: str) -> User | None:
    """Link the account to whoever made the code; None for a code that is wrong, used or too old."""
    user = _taken(code)
    if user is None:
        return None
    SlackAccount.objects.update_or_create(
        team_id=team_id, slack_user_id=slack_user_id, defaults={"user": user, "name": name[:200]}
    )
    audit.record(user, "Slack account linked", f"{team_id} {slack_user_id}")
    return user


def void_code(code: str) -> None:
    """A code that others have seen."""
    _taken(code)


def person_of(team_id: str, slack_user_id: str) -> User | None:
    """Whoever the account is linked to, also when that person may not sign in any more."""
    account = SlackAccount.objects.select_related("user")
    row = account.filter(team_id=team_id, slack_user_id=slack_user_id).first()
    return row.user if row is not None else None


def unlink(team_id: str, slack_user_id: str) -> bool:
    row = SlackAccount.objects.select_related("user").filter(team_id=team_id, slack_user_id=slack_user_id).first()
    if row is None:
        return False
    row.delete()
    audit.record(row.user, "Slack account unlinked", f"{team_id} {slack_user_id}")
    return True


def _taken(code: str) -> User | None:
    """The code's person; of two that come with one code at once, one gets it."""
    known = SlackLinkCode.objects.filter(code_sha256=_hash(code), expires_at__gt=timezone.now(), user__is_active=True)
    row = known.select_related("user").first()
    if row is None or not SlackLinkCode.objects.filter(pk=row.pk).delete()[0]:
        return None
    return row.user


def _hash(code: str) -> str:
    plain = "".join(character for character in code.upper() if character in _ALPHABET)
    return hashlib.sha256(plain.encode()).hexdigest()
