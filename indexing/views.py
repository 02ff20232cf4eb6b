"""The repositories page: what is indexed and how it stands, adding, updating, stopping, removing.

Everyone sees what they may read and may ask for an update; the owner and staff also stop, remove and change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.db.models import Count, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from indexing import git, registering
from indexing.access import Principal
from indexing.audit import record
from indexing.building import request_build
from indexing.errors import IndexingError
from indexing.forms import AddRepositoryForm, FilesForm, RepositorySettingsForm, choosable_groups
from indexing.highlighting import drawn
from indexing.models import Index, Job, Mirror, Repository, RepositoryQuerySet, SkippedFile
from indexing.previewing import Preview, fetch_mirror, preview_files
from indexing.sources import Source
from indexing.status import RepositoryStatus, statuses
from indexing.walking import SkipReason

PAGE_SIZE = 100
SKIPPED_FILES_SHOWN = 1000
FILTERS = ("all", "golden", "indexing", "failed")


@dataclass(frozen=True, slots=True)
class SkipPart:
    """One reason in the bar of skipped files: from `start` to `start + width` per cent of it."""

    label: str
    files: int
    start: float
    width: float


@require_GET
def repositories(request: HttpRequest) -> HttpResponse:
    return render(request, "repositories.html", _page(request, AddRepositoryForm(user=_user(request))))


@require_POST
def add_repository(request: HttpRequest) -> HttpResponse:
    form = AddRepositoryForm(request.POST, user=_user(request))
    if not form.is_valid():
        return render(request, "repositories.html", _page(request, form), status=422)
    repository, created = registering.register(
        form.cleaned_data["source"],
        owner=_user(request),
        principal=_principal(request),
        ref=form.cleaned_data["ref"],
        visibility=form.cleaned_data["visibility"],
        golden=form.cleaned_data["golden"],
        secret=form.cleaned_data["secret"],
    )
    record(request.user, "repository added" if created else "repository asked for again", repository)
    if "look" in request.POST and _may_manage(request, repository):
        return redirect("repository_files", repository.pk)
    request_build(repository)
    outcome = "was added" if created else "is here already and is updated"
    messages.success(request, f"{repository.name} {outcome}.")
    return redirect(f"{_list_url()}#repository-{repository.pk}")


@require_POST
def probe(request: HttpRequest) -> HttpResponse:
    """The line under the address: whether Git gets an answer there, and from which branch."""
    form = AddRepositoryForm(request.POST, user=_user(request))
    form.is_valid()
    context: dict[str, Any] = {"errors": form.errors.get("source")}
    if isinstance(form.cleaned_data.get("source"), Source):
        try:
            data = form.cleaned_data
            context["branch"] = git.probe(data["source"], data.get("ref", ""), data["secret"])
        except IndexingError as error:
            context["errors"] = [str(error)]
    return render(request, "repositories.html#hint", context)


@require_GET
def repository_row(request: HttpRequest, repository_id: int) -> HttpResponse:
    """One row, asked for every two seconds while its build runs."""
    return _row(request, _visible(request, repository_id))


@require_GET
def skipped_files(request: HttpRequest, repository_id: int) -> HttpResponse:
    """Counts by reason, and the files of one reason or of all."""
    repository, reason = _visible(request, repository_id), request.GET.get("reason", "")
    files = repository.current_index.skip_list if repository.current_index else SkippedFile.objects.none()
    shown = (files.filter(reason=reason) if reason in SkipReason.values else files)[:SKIPPED_FILES_SHOWN]
    context = {
        "repository": repository,
        "manageable": _may_manage(request, repository),
        "counts": _counts(repository.current_index.skipped if repository.current_index else {}),
        "reason": reason,
        "rows": [(drawn(file.path), _label(file.reason), file.detail) for file in shown],
    }
    return render(request, "skipped_files.html", context)


def _counts(skipped: Mapping[str, int]) -> list[tuple[str, str, int]]:
    """(reason, its label, files), most files first."""
    ordered = sorted(skipped.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(reason, _label(reason), files) for reason, files in ordered]


def _label(reason: str) -> str:
    return str(dict(SkipReason.choices).get(reason, reason))


@require_POST
def update_repository(request: HttpRequest, repository_id: int) -> HttpResponse:
    repository = _visible(request, repository_id)
    request_build(repository)
    return _row(request, repository)


@require_POST
def stop_build(request: HttpRequest, repository_id: int) -> HttpResponse:
    repository = _managed(request, repository_id)
    registering.cancel_build(repository)
    return _row(request, repository)


@require_POST
def set_golden(request: HttpRequest, repository_id: int) -> HttpResponse:
    if not _user(request).is_staff:
        raise Http404
    repository = _visible(request, repository_id)
    repository.golden = request.POST.get("golden") == "1"
    repository.save(update_fields=["golden"])
    record(request.user, f"repository made {'golden' if repository.golden else 'not golden'}", repository)
    return _row(request, repository)


@require_http_methods(["GET", "HEAD", "POST"])
def repository_settings(request: HttpRequest, repository_id: int) -> HttpResponse:
    """Who may read it, and with which login it is fetched."""
    repository = _managed(request, repository_id)
    if request.method != "POST":
        return _settings_page(
            request, repository, RepositorySettingsForm(_settings_of(repository), editor=_user(request))
        )
    form = RepositorySettingsForm(request.POST, editor=_user(request))
    if not form.is_valid() or not _save_settings(request, repository, form):
        return _settings_page(request, repository, form, status=422)
    messages.success(request, f"The settings of {repository.name} were saved.")
    return redirect(f"{_list_url()}#repository-{repository.pk}")


@require_http_methods(["GET", "HEAD", "POST"])
def repository_files(request: HttpRequest, repository_id: int) -> HttpResponse:
    """Which files are indexed, as the rules say that were saved or are just typed; saving them indexes."""
    repository = _managed(request, repository_id)
    if request.method != "POST":
        megabytes = repository.max_file_bytes / 1_000_000 if repository.max_file_bytes else None
        return _files_page(request, repository, FilesForm({"rules": repository.file_rules, "max_megabytes": megabytes}))
    form = FilesForm(request.POST)
    if not form.is_valid() or "save" not in request.POST:
        return _files_page(request, repository, form, fetch="fetch" in request.POST)
    changed = registering.set_file_choice(
        repository, rules=form.cleaned_data["rules"], max_file_bytes=form.max_file_bytes
    )
    if changed:
        record(request.user, "files chosen", repository, changed)
    request_build(repository)
    messages.success(request, f"{repository.name} is being indexed.")
    return redirect(f"{_list_url()}#repository-{repository.pk}")


def _files_page(request: HttpRequest, repository: Repository, form: FilesForm, *, fetch: bool = False) -> HttpResponse:
    context: dict[str, Any] = {"repository": repository, "form": form, "default_bytes": settings.MAX_FILE_BYTES}
    try:
        if fetch:
            fetch_mirror(repository)
        if repository.mirror.fetched_at and form.is_valid():
            rules, limit = form.cleaned_data["rules"], form.max_file_bytes
            context |= _preview_context(preview_files(repository, rules=rules, max_file_bytes=limit))
    except IndexingError as error:
        context["error"] = str(error)
    return render(request, "repository_files.html", context, status=200 if form.is_valid() else 422)


def _preview_context(preview: Preview) -> dict[str, Any]:  # Any: a template context
    skipped = [(drawn(path), _label(reason), detail) for path, reason, detail in preview.skipped_files]
    return {
        "preview": preview,
        "counts": _counts(preview.skipped),
        "skipped_total": preview.skipped.total(),
        "skipped": skipped,
        "indexed": [drawn(path) for path in preview.indexed_paths],
        "languages": preview.languages.most_common(12),
    }


def _settings_of(repository: Repository) -> dict[str, Any]:  # Any: a form's data
    return {
        "visibility": repository.visibility,
        "people": ", ".join(repository.members.order_by("username").values_list("username", flat=True)),
        "groups": list(repository.groups.values_list("pk", flat=True)),
    }


def _save_settings(request: HttpRequest, repository: Repository, form: RepositorySettingsForm) -> bool:
    """False, with the reason in the form, when the login does not fit the address."""
    data = form.cleaned_data
    replaced, removed = data["secret"] is not None, data["login"] == "remove"
    if replaced or removed:
        try:
            registering.set_login(repository, data["secret"])
        except IndexingError as error:
            form.add_error(None, str(error))
            return False
        record(request.user, "login replaced" if replaced else "login removed", repository)
        request_build(repository)
    changed = registering.set_readers(
        repository,
        visibility=data["visibility"],
        people=data["people"],
        groups=data["groups"],
        choosable=choosable_groups(_user(request)),
    )
    if changed:
        record(request.user, "readers changed", repository, changed)
    return True


def _settings_page(
    request: HttpRequest, repository: Repository, form: RepositorySettingsForm, status: int = 200
) -> HttpResponse:
    others = repository.groups.exclude(pk__in=choosable_groups(_user(request)))
    context = {"repository": repository, "form": form, "login": repository.mirror.credential, "other_groups": others}
    return render(request, "repository_settings.html", context, status=status)


@require_POST
def delete_repository(request: HttpRequest, repository_id: int) -> HttpResponse:
    repository = _managed(request, repository_id)
    record(request.user, "repository removed", repository)
    registering.remove(repository)
    messages.success(request, f"{repository.name} was removed. Answers that cite it stay readable.")
    return redirect(_list_url())


def _page(request: HttpRequest, form: AddRepositoryForm) -> dict[str, Any]:  # Any: a template context
    query = request.GET.get("q", "").strip()
    everything = statuses(_readable(request).select_related("mirror"))
    shown = [row for row in everything if query.lower() in row.repository.name.lower()]
    chosen = request.GET.get("show", "all")
    groups = {name: [row for row in shown if _is_in(row, name)] for name in FILTERS}
    page = Paginator(groups.get(chosen, shown), PAGE_SIZE).get_page(request.GET.get("page"))
    return {
        "form": form,
        "query": query,
        "show": chosen if chosen in groups else "all",
        "filters": [(name, name.capitalize(), len(rows)) for name, rows in groups.items()],
        "page": page,
        "rows": [_row_context(request, row) for row in page],
        "server": _server() if _user(request).is_staff else None,
    }


def _is_in(row: RepositoryStatus, name: str) -> bool:
    return {"golden": row.repository.golden, "indexing": row.active, "failed": row.failed}.get(name, True)


def _row_context(request: HttpRequest, row: RepositoryStatus) -> dict[str, Any]:  # Any: a template context
    skips = skip_parts(row.current)
    skipped = sum(part.files for part in skips)
    return {
        "status": row,
        "manageable": _may_manage(request, row.repository),
        "skips": skips,
        "skipped_total": skipped,
        "tracked_total": row.current.files_known if row.current else 0,
    }


def skip_parts(index: Index | None) -> list[SkipPart]:
    counts = sorted((index.skipped if index else {}).items(), key=lambda entry: (-entry[1], entry[0]))
    total = sum(files for _, files in counts) or 1
    labels = dict(SkipReason.choices)
    parts, done = [], 0
    for reason, files in counts:
        label = str(labels.get(reason, reason)).capitalize()
        parts.append(SkipPart(label, files, round(100 * done / total, 2), round(100 * files / total, 2)))
        done += files
    return parts


def _server() -> dict[str, Any]:  # Any: a template context
    """For staff: sums over every repository of the server."""
    jobs = dict(Job.objects.values_list("state").annotate(Count("pk")).order_by())
    return {
        "index_bytes": Repository.objects.aggregate(total=Sum("current_index__size_bytes"))["total"],
        "mirror_bytes": Mirror.objects.aggregate(total=Sum("size_bytes"))["total"],
        "running": jobs.get(Job.State.RUNNING, 0),
        "waiting": jobs.get(Job.State.QUEUED, 0),
    }


def _row(request: HttpRequest, repository: Repository) -> HttpResponse:
    """The changed row for HTMX, the whole page for everyone else."""
    if not request.htmx:  # type: ignore[attr-defined]  # set by HtmxMiddleware
        return redirect(f"{_list_url()}#repository-{repository.pk}")
    (row,) = statuses([repository])
    return render(request, "repositories.html#row", {"row": _row_context(request, row)})


def _visible(request: HttpRequest, repository_id: int) -> Repository:
    return get_object_or_404(_readable(request).select_related("mirror", "current_index"), pk=repository_id)


def _managed(request: HttpRequest, repository_id: int) -> Repository:
    repository = _visible(request, repository_id)
    if not _may_manage(request, repository):
        raise Http404
    return repository


def _may_manage(request: HttpRequest, repository: Repository) -> bool:
    user = _user(request)
    return user.is_staff or repository.owner_id == user.pk


def _readable(request: HttpRequest) -> RepositoryQuerySet:
    return Repository.objects.visible_to(_principal(request))


def _principal(request: HttpRequest) -> Principal:
    return Principal.of_user(_user(request))


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # LoginRequiredMiddleware
    return request.user


def _list_url() -> str:
    return reverse("repositories")
