"""The page that links Slack accounts to a person: make a code, see which are linked, unlink them."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from assistant import slack, slack_accounts
from assistant.models import SlackAccount


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def account_page(request: HttpRequest) -> HttpResponse:
    """A new code is in the answer to the form and nowhere else."""
    if not slack.configured():
        raise Http404("Slack is not set up here.")
    user = _user(request)
    code = slack_accounts.make_code(user) if request.method == "POST" else ""
    rows = SlackAccount.objects.filter(user=user)
    return render(request, "slack_account.html", {"code": code, "rows": rows})


@require_POST
def unlink_account(request: HttpRequest, account_id: int) -> HttpResponse:
    row = get_object_or_404(SlackAccount, pk=account_id, user=_user(request))
    slack_accounts.unlink(row.team_id, row.slack_user_id)
    messages.success(request, f"{row} was unlinked. What is asked from there is not answered any more.")
    return redirect("slack_account")


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # LoginRequiredMiddleware
    return request.user
