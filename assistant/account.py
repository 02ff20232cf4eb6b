"""The page of a person's tokens: make one, see which there are, revoke them."""

from __future__ import annotations

from datetime import timedelta

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from assistant import tokens
from assistant.forms import TokenForm
from assistant.models import ApiToken


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
    days = form.cleaned_data["days"]
    _token, secret = tokens.create(
        user,
        form.cleaned_data["name"],
        scopes=form.cleaned_data["scopes"],
        repositories=form.cleaned_data["repositories"],
        lifetime=timedelta(days=days) if days else None,
    )
    return _page(request, TokenForm(user=user), secret=secret)


@require_POST
def revoke_token(request: HttpRequest, token_id: int) -> HttpResponse:
    token = get_object_or_404(ApiToken, pk=token_id, user=_user(request))
    tokens.revoke(token)
    messages.success(request, f"{token.name} was revoked. Programs that use it are refused from now on.")
    return redirect("tokens")


def _page(request: HttpRequest, form: TokenForm, *, secret: str = "", status: int = 200) -> HttpResponse:
    rows = ApiToken.objects.filter(user=_user(request)).prefetch_related("repositories")
    context = {"form": form, "secret": secret, "rows": rows, "now": timezone.now()}
    return render(request, "tokens.html", context, status=status)


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # LoginRequiredMiddleware
    return request.user
