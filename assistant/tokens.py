"""Personal tokens for programs: made in the account page, shown once, kept as a hash.

In: a person and what a token may do, or the text of a token. Out: that text once; later the row behind it and the
`Principal` it reads as. A token never has more rights than its person has at that moment.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from assistant.models import ApiToken
from indexing.access import Principal
from indexing.models import Repository

PREFIX = "cba_"  # so that scanners for leaked secrets can know them
SHOWN_CHARS = 10
MAX_TOKEN_CHARS = 200
USED_UP = "This token has used up its requests of this minute. `RateLimit-Reset` says when to go on."
LAST_USED_EVERY = timedelta(minutes=1)


@transaction.atomic
def create(
    user: User,
    name: str,
    *,
    scopes: Collection[str],
    repositories: Sequence[Repository] | None = None,
    lifetime: timedelta | None = None,
) -> tuple[ApiToken, str]:
    """The new row and the token's text, which exists nowhere else. `repositories` None: all its person may read."""
    secret = PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        token_sha256=_hash(secret),
        prefix=secret[:SHOWN_CHARS],
        scopes=[scope for scope in ApiToken.Scope.values if scope in scopes],
        restricted=repositories is not None,
        expires_at=timezone.now() + lifetime if lifetime else None,
    )
    token.repositories.set(repositories or [])
    return token, secret


def find(secret: str) -> ApiToken | None:
    """The valid token with this text; notes that it was used."""
    if len(secret) > MAX_TOKEN_CHARS:
        return None
    token = valid().select_related("user").filter(token_sha256=_hash(secret)).first()
    if token is not None:
        _note_use(token)
    return token


def valid() -> QuerySet[ApiToken]:
    """Neither revoked nor past their time, of people who may sign in."""
    unexpired = Q(expires_at=None) | Q(expires_at__gt=timezone.now())
    return ApiToken.objects.filter(unexpired, revoked_at=None, user__is_active=True)


def principal_of(token: ApiToken) -> Principal:
    """What its person may read now, narrowed to the token's repositories."""
    whole = Principal.of_user(token.user)
    if not token.restricted:
        return whole
    ids = frozenset(token.repositories.values_list("pk", flat=True))
    return Principal(user_id=whole.user_id, sees_all=whole.sees_all, repository_ids=ids)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of this minute's requests."""

    limit: int
    remaining: int
    reset_seconds: int
    exceeded: bool


def count_request(token: ApiToken) -> Allowance:
    """Count one request of this minute. In the database, so the limit holds exactly for any number of processes."""
    now = time.time()
    minute, limit = int(now // 60), settings.API_REQUESTS_PER_MINUTE
    with transaction.atomic():
        row = ApiToken.objects.filter(pk=token.pk)
        if not row.filter(minute=minute).update(requests_in_minute=F("requests_in_minute") + 1):
            row.update(minute=minute, requests_in_minute=1)
        used = row.values_list("requests_in_minute", flat=True).get()
    return Allowance(limit, max(0, limit - used), 60 - int(now % 60), exceeded=used > limit)


def revoke(token: ApiToken) -> None:
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - LAST_USED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
