"""Who an OpenID Connect provider lets in -> the account here, and its groups; loaded only when OIDC_ISSUER is set.

An account is found by the provider's own identifier of the person and by nothing else: a name or an address that
equals one here makes a new account. Nobody gets the rights of staff this way.
"""

from __future__ import annotations

import logging
from typing import Any

from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from django.conf import settings
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

FAILED = "Signing in with {} did not work. Try again, or ask whoever runs this server to look into its log."
NOT_ALLOWED = "{} knows you, but people of your mail domain may not sign in here. Ask whoever runs this server."
INACTIVE = "Your account here was switched off. Ask whoever runs this server."
MAX_GROUPS = 200

log = logging.getLogger(__name__)
Claims = dict[str, Any]  # Any: JSON


class Adapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Every time, before anything is made: whether this person may come in, and their groups as they are now."""
        claims = _claims(sociallogin)
        if not _domain_is_allowed(claims):
            raise ImmediateHttpResponse(_refusal(request, NOT_ALLOWED.format(settings.OIDC_NAME), 403))
        if sociallogin.is_existing:
            if not sociallogin.user.is_active:
                raise ImmediateHttpResponse(_refusal(request, INACTIVE, 403))
            _set_groups(sociallogin.user, claims)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:  # Any: allauth's
        user: User = super().save_user(request, sociallogin, form)
        _set_groups(user, _claims(sociallogin))
        return user

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        return True

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """There is no form to fill in."""
        return True

    def on_authentication_error(self, request: HttpRequest, provider: Any, **about: Any) -> None:  # Any: allauth's
        log.warning(
            "sign-in by OpenID Connect failed: %s %s", about.get("error"), type(about.get("exception")).__name__
        )
        raise ImmediateHttpResponse(_refusal(request, FAILED.format(settings.OIDC_NAME), 401))


def _claims(sociallogin: SocialLogin) -> Claims:
    stored: Claims = sociallogin.account.extra_data
    return {**stored.get("id_token", {}), **stored.get("userinfo", {})} or stored


def _domain_is_allowed(claims: Claims) -> bool:
    if not settings.OIDC_ALLOWED_DOMAINS:
        return True
    domain = str(claims.get("email", "")).rpartition("@")[2].lower()
    verified = claims.get("email_verified") in (True, "true")  # some providers write it as a text
    return verified and domain in {name.lower() for name in settings.OIDC_ALLOWED_DOMAINS}


def _set_groups(user: User, claims: Claims) -> None:
    """The provider decides: groups it does not name are left."""
    if not settings.OIDC_GROUPS_CLAIM:
        return
    named = claims.get(settings.OIDC_GROUPS_CLAIM, [])
    names = {str(name)[:150] for name in named[:MAX_GROUPS]} if isinstance(named, list) else set()
    user.groups.set([Group.objects.get_or_create(name=name)[0] for name in sorted(names)])


def _refusal(request: HttpRequest, sentence: str, status: int) -> HttpResponse:
    context = {"form": AuthenticationForm(request), "link_error": sentence}
    return render(request, "sign_in.html", context, status=status)
