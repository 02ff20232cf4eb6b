"""Tokens for programs, of a person or of no person: made in the account page, shown once, kept as a hash.

In: a person and what a token may do, or the text of a token. Out: that text once; later the row behind it and the
`Principal` it reads as. A token never has more rights than its person has at that moment. A service token has a user
of its own, which reads what is public to all and what it was given; it never has the rights of staff.
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
from django.db.models import Case, F, PositiveBigIntegerField, PositiveIntegerField, Q, QuerySet, When
from django.db.models.functions import Greatest
from django.utils import timezone
from django.utils.text import slugify

from assistant.models import ApiToken, ServiceAccount
from indexing.access import Principal
from indexing.models import Repository

PREFIX = "cba_"  # so that scanners for leaked secrets can know them
SHOWN_CHARS = 10
MAX_TOKEN_CHARS = 200
USED_UP = "This token has used up its requests of this minute. `RateLimit-Reset` says when to go on."
QUOTA_USED_UP = "This token has used up its requests of this day. `Quota-Reset` says when to go on."
MINUTE, DAY = 60, 24 * 60 * 60  # seconds
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


@transaction.atomic
def create_service(
    made_by: User,
    name: str,
    *,
    scopes: Collection[str],
    repositories: Sequence[Repository] | None = None,
    lifetime: timedelta | None = None,
) -> tuple[ApiToken, str]:
    """A token of a new service account, which becomes a reader of the private ones among `repositories`."""
    user = User.objects.create_user(username=_free_name(name))  # without a password: nobody can sign in
    ServiceAccount.objects.create(user=user, made_by=made_by)
    for repository in repositories or ():
        if repository.visibility == Repository.Visibility.PRIVATE:
            repository.members.add(user)
    usable = set(scopes) - {ApiToken.Scope.ADMIN}
    return create(user, name, scopes=usable, repositories=repositories, lifetime=lifetime)


def _free_name(name: str) -> str:
    start = f"service-{slugify(name)[:100] or 'token'}"
    taken = set(User.objects.filter(username__startswith=start).values_list("username", flat=True))
    return next(free for n in range(1, len(taken) + 2) if (free := start if n == 1 else f"{start}-{n}") not in taken)


def managed_by(user: User) -> QuerySet[ApiToken]:
    """A person's own tokens; for staff those of service accounts too."""
    mine = Q(user=user) | Q(user__service_account__isnull=False) if user.is_staff else Q(user=user)
    return ApiToken.objects.filter(mine)


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
    """What is left of this minute's and of this day's requests. Days are those of UTC."""

    limit: int
    remaining: int
    reset_seconds: int
    exceeded: bool
    quota: int
    quota_remaining: int
    quota_reset_seconds: int
    quota_exceeded: bool

    @property
    def refusal(self) -> str:
        """Why this request is not taken; empty when it is."""
        if self.exceeded:
            return USED_UP
        return QUOTA_USED_UP if self.quota_exceeded else ""

    @property
    def retry_seconds(self) -> int:
        return self.reset_seconds if self.exceeded else self.quota_reset_seconds


def count_request(token: ApiToken) -> Allowance:
    """Count one request, of the day only when the minute has room for it.

    One UPDATE of one row, so the limits hold exactly for any number of processes; a process whose clock is behind
    counts in the minute that others have begun.
    """
    now = time.time()
    minute, day = int(now // MINUTE), int(now // DAY)
    limit = token.requests_per_minute or settings.API_REQUESTS_PER_MINUTE
    quota = token.requests_per_day or settings.API_REQUESTS_PER_DAY
    fits = Q(minute__lt=minute) | Q(requests_in_minute__lt=limit)
    row = ApiToken.objects.filter(pk=token.pk)
    with transaction.atomic():
        row.update(
            requests_in_minute=Case(
                When(minute__lt=minute, then=1),
                default=F("requests_in_minute") + 1,
                output_field=PositiveIntegerField(),
            ),
            requests_in_day=Case(
                When(fits & Q(day__lt=day), then=1),
                When(fits, then=F("requests_in_day") + 1),
                When(day__lt=day, then=0),
                default=F("requests_in_day"),
                output_field=PositiveIntegerField(),
            ),
            minute=Greatest("minute", minute, output_field=PositiveBigIntegerField()),
            day=Greatest("day", day, output_field=PositiveIntegerField()),
        )
        used, used_of_day = row.values_list("requests_in_minute", "requests_in_day").get()
    return Allowance(
        limit=limit,
        remaining=max(0, limit - used),
        reset_seconds=MINUTE - int(now % MINUTE),
        exceeded=used > limit,
        quota=quota,
        quota_remaining=max(0, quota - used_of_day),
        quota_reset_seconds=DAY - int(now % DAY),
        quota_exceeded=used_of_day > quota,
    )


@transaction.atomic
def revoke(token: ApiToken) -> None:
    """A service account without a token keeps no rights."""
    if token.revoked_at is None:
        token.revoked_at = timezone.now()
        token.save(update_fields=["revoked_at"])
    if ServiceAccount.objects.filter(user=token.user_id).exists() and not valid().filter(user=token.user_id).exists():
        Repository.members.through.objects.filter(user=token.user_id).delete()
        token.user.groups.clear()
        User.objects.filter(pk=token.user_id).update(is_active=False)


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - LAST_USED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
