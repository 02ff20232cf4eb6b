"""Sign-in links that work once: made on the server's terminal, redeemed in the browser.

In: a user, or the token of a link. Out: a token, or the signed-in session. Only the hash of a token is stored,
so neither the database nor a backup of it lets anyone in.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import get_user_model, login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from assistant.models import SignInLink

LINK_LIFETIME = timedelta(hours=24)
OPERATOR_NAME = "operator"
EXPIRED_LINK = "This sign-in link was used before or is older than 24 hours. Run manage.py sign_in_link for a new one."


def ensure_operator() -> User:
    """The first superuser; made without a password when there is none yet."""
    users = get_user_model().objects
    operator = users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    return operator or users.create_superuser(username=_free_name(OPERATOR_NAME))


def _free_name(name: str) -> str:
    """`name`, unless a person without the rights of an operator has it already."""
    taken = set(get_user_model().objects.filter(username__startswith=name).values_list("username", flat=True))
    return next(free for n in range(len(taken) + 1) if (free := f"{name}{n or ''}") not in taken)


def make_link_token(user: User) -> str:
    """A new token for `/sign-in/<token>/`; links past their time are forgotten on the way."""
    now = timezone.now()
    SignInLink.objects.filter(expires_at__lt=now).delete()
    token = secrets.token_urlsafe(32)
    SignInLink.objects.create(token_sha256=_hash(token), user=user, expires_at=now + LINK_LIFETIME)
    return token


def redeem(token: str) -> User | None:
    """The user of the link, once. One conditional update decides, so that two browsers cannot both get in."""
    now = timezone.now()
    links = SignInLink.objects.filter(token_sha256=_hash(token), user__is_active=True)
    if not links.filter(used_at=None, expires_at__gte=now).update(used_at=now):
        return None
    return links.select_related("user").get().user


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@login_not_required
@never_cache
@require_GET
def use_link(request: HttpRequest, token: str) -> HttpResponse:
    """GET on purpose: the link is followed from a terminal. Browsers that only look ahead do not use it up."""
    if "prefetch" in request.headers.get("Sec-Purpose", ""):
        return HttpResponse(status=503)
    user = redeem(token)
    if user is None:
        context = {"form": AuthenticationForm(request), "link_error": EXPIRED_LINK}
        return render(request, "sign_in.html", context, status=410)
    login(request, user, backend=settings.AUTHENTICATION_BACKENDS[0])
    return redirect(settings.LOGIN_REDIRECT_URL)
