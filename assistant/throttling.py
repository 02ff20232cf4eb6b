"""Password sign-in that slows guessing down: the only authentication backend that knows passwords.

In: what somebody typed at any door, the page or the admin. Out: the person, or nobody; after too many tries nobody
is looked for. Tries are rows in the database, so that the limits hold for any number of processes, and written
before the password is compared, so that tries at the same moment count. Names are kept as keyed hashes: people type
passwords into the wrong field. One table is enough for that; django-axes would bring a middleware, signals and pages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import salted_hmac

from assistant.models import SignInAttempt

WINDOW = timedelta(minutes=15)
# Tries within WINDOW. A name alone gets many, or anybody could lock anybody out; guessers from one address few.
LIMITS = {"name and address": 5, "address": 30, "name": 50}


class PasswordBackend(ModelBackend):
    """Notes in `request.sign_in_wait_seconds` that it refused to look."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any
    ) -> User | None:  # Any: Django's own signature
        if request is None or not username or password is None:
            return super().authenticate(request, username=username, password=password, **kwargs)
        keys = _keys(username, request.META.get("REMOTE_ADDR", ""))
        tries = [SignInAttempt.objects.create(kind=kind, key=key) for kind, key in keys.items()]
        if wait_seconds := _wait_seconds(keys):
            _delete(tries)
            request.sign_in_wait_seconds = wait_seconds  # type: ignore[attr-defined]  # for the page
            raise PermissionDenied
        user = super().authenticate(request, username=username, password=password, **kwargs)
        if user is None:
            raise PermissionDenied  # no other backend compares the password again
        SignInAttempt.objects.filter(kind="name and address", key=keys["name and address"]).delete()
        _delete(tries)
        return user


def _keys(username: str, address: str) -> dict[str, str]:
    texts = {"name and address": f"{username.lower()}\n{address}", "address": address, "name": username.lower()}
    return {
        kind: salted_hmac(f"assistant.throttling.{kind}", text, algorithm="sha256").hexdigest()
        for kind, text in texts.items()
    }


def _wait_seconds(keys: dict[str, str]) -> int:
    """0 while the try that was just noted is within each limit; else until the oldest that counts is forgotten."""
    now = timezone.now()
    SignInAttempt.objects.filter(at__lt=now - WINDOW).delete()
    wait = 0
    for kind, key in keys.items():
        times = list(_recent(kind, key).values_list("at", flat=True))
        if len(times) > LIMITS[kind]:
            wait = max(wait, int((times[0] + WINDOW - now).total_seconds()) + 1)
    return wait


def _recent(kind: str, key: str) -> QuerySet[SignInAttempt]:
    return SignInAttempt.objects.filter(kind=kind, key=key, at__gt=timezone.now() - WINDOW).order_by("at", "pk")


def _delete(tries: list[SignInAttempt]) -> None:
    SignInAttempt.objects.filter(pk__in=[row.pk for row in tries]).delete()
