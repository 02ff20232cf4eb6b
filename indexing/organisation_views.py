"""The staff's page of imported organisations: look at what would be added, add it, keep it in step, let it go."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from indexing import hosting_api, organisations
from indexing.audit import record
from indexing.errors import HostingError
from indexing.forms import OrganisationForm
from indexing.models import Organisation

PATIENCE_SECONDS = 3.0  # somebody waits for the page
SHOWN = 200  # of the names that match


@require_http_methods(["GET", "HEAD", "POST"])
def organisation_page(request: HttpRequest) -> HttpResponse:
    """The form is looked at first and imported with its second button; both show what the site lists now."""
    _need_staff(request)
    if request.method != "POST":
        return _page(request, OrganisationForm(initial={"include": "*"}))
    form = OrganisationForm(request.POST)
    if not form.is_valid():
        return _page(request, form, status=422)
    if request.POST.get("do") == "import":
        _synchronise(request, form.save())
        return redirect("organisations")
    wanted = form.instance  # as it would be; not saved
    try:
        listed = hosting_api.repositories_of(wanted.site, wanted.name, patience_seconds=PATIENCE_SECONDS)
    except HostingError as error:
        form.add_error(None, str(error))
        return _page(request, form, status=422)
    found = organisations.chosen(wanted, listed)
    preview = {"found": found[:SHOWN], "matching": len(found), "listed": len(listed), "more": len(found) - SHOWN}
    return _page(request, form, preview=preview)


@require_POST
def synchronise_organisation(request: HttpRequest, organisation_id: int) -> HttpResponse:
    _need_staff(request)
    _synchronise(request, get_object_or_404(Organisation, pk=organisation_id))
    return redirect("organisations")


@require_POST
def forget_organisation(request: HttpRequest, organisation_id: int) -> HttpResponse:
    """Its repositories stay; they only follow its list no more."""
    _need_staff(request)
    organisation = get_object_or_404(Organisation, pk=organisation_id)
    record(request.user, "organisation forgotten", organisation)
    organisation.repositories.update(hosted_id="", organisation=None)
    organisation.delete()
    messages.success(request, f"{organisation} is not followed any more. Its repositories stay.")
    return redirect("organisations")


def _synchronise(request: HttpRequest, organisation: Organisation) -> None:
    assert isinstance(request.user, User)  # LoginRequiredMiddleware
    try:
        outcome = organisations.synchronise(organisation, actor=request.user, patience_seconds=PATIENCE_SECONDS)
    except HostingError as error:
        messages.error(request, str(error))
        return
    organisations.build_added()
    messages.success(request, f"{organisation}: {outcome}.")
    for reason in outcome.skipped[:5]:
        messages.warning(request, reason)


def _page(
    request: HttpRequest, form: OrganisationForm, *, preview: dict[str, Any] | None = None, status: int = 200
) -> HttpResponse:
    rows = Organisation.objects.annotate(count=Count("repositories"))
    return render(request, "organisations.html", {"form": form, "rows": rows, "preview": preview}, status=status)


def _need_staff(request: HttpRequest) -> None:
    if not (isinstance(request.user, User) and request.user.is_staff):
        raise Http404
