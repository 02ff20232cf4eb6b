"""The page of a person's tokens, and for staff of service tokens: make one, see which there are, revoke them."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count, Prefetch, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from assistant import tokens
from assistant.forms import TokenForm
from indexing.access import Principal
from indexing.audit import record
from indexing.models import Repository


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def token_page(request: HttpRequest) -> HttpResponse:
    """A new token is in the answer to the form and nowhere else: the page cannot show it again."""
    user = _user(request)
    if request.method != "POST":
        return _page(request, TokenForm(user=user))
    form = TokenForm(request.POST, user=user)
    if not form.is_valid():
        return _page(request, form, status=422)
    data = form.cleaned_data
    make = tokens.create_service if data["service"] else tokens.create
    token, secret = make(
        user,
        data["name"],
        scopes=data["scopes"],
        repositories=data["repositories"],
        lifetime=timedelta(days=data["days"]) if data["days"] else None,
    )
    record(user, "service token made" if data["service"] else "token made", token, ", ".join(token.scopes))
    return _page(request, TokenForm(user=user), secret=secret)


@require_POST
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    token = get_object_or_404(tokens.managed_by(_user(request)).select_related("user"), pk=token_id)
    tokens.revoke(token)
    record(request.user, "token revoked", token)
    messages.success(request, f"{token.name} was revoked. Programs that use it are refused from now on.")
    return redirect("tokens")


def _page(request: HttpRequest, form: TokenForm, *, secret: str = "", status: int = 200) -> HttpResponse:
    readable = Repository.objects.visible_to(Principal.of_user(_user(request)))
    rows = (
        tokens.managed_by(_user(request))
        .select_related("user__service_account__made_by")
        .annotate(hidden=Count("repositories", filter=~Q(repositories__in=readable)))
        .prefetch_related(Prefetch("repositories", queryset=readable, to_attr="readable"))
    )
    context = {"form": form, "secret": secret, "rows": rows, "now": timezone.now()}
    return render(request, "tokens.html", context, status=status)


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # LoginRequiredMiddleware
    return request.user
