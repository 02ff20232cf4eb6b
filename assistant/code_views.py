"""Pages about code at a commit: the viewer, what a chip shows on hover, folders, references, changes, similar code.

Each is a fragment for the pane beside a conversation, and a whole page by its address. What may not be read, what was
never indexed and what does not exist are the same 404.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from assistant import citation_uses, code_places
from assistant.code_pane import code_pane, requested_path
from assistant.errors import SourceNotFound
from assistant.source_view import read_excerpt
from assistant.versions import versions
from assistant.views import beside, cited_in
from indexing.access import Principal
from indexing.links import parse_range
from indexing.models import Repository

PREVIEW_LINES = 9

Context = dict[str, Any]  # Any: a template context
View = Callable[[HttpRequest, Repository, str], HttpResponse]


def of_code(view: View) -> Callable[..., HttpResponse]:
    """A view of a readable repository at a commit; what cannot be shown is a 404."""

    @require_GET
    @wraps(view)
    def wrapped(request: HttpRequest, repository_id: int, slug: str, commit: str) -> HttpResponse:
        readable = Repository.objects.visible_to(Principal.of_user(request.user))
        repository = get_object_or_404(readable.select_related("mirror", "current_index"), pk=repository_id)
        try:
            return view(request, repository, commit)
        except SourceNotFound as error:
            raise Http404 from error

    return wrapped


@of_code
def blob(request: HttpRequest, repository: Repository, commit: str) -> HttpResponse:
    """A file: beside the conversation it is cited in when the address names one, else alone."""
    message = cited_in(request)
    pane = code_pane(request, repository, commit, message, Principal.of_user(request.user))
    if pane["number"]:
        citation_uses.count(repository, "opened")
    return beside(request, message, "viewer.html", pane)


@of_code
def preview(request: HttpRequest, repository: Repository, commit: str) -> HttpResponse:
    """The first lines of a passage, for a chip that is pointed at."""
    path = requested_path(request)
    byte_range = parse_range(request.GET.get("bytes", ""))
    excerpt = read_excerpt(repository, commit, path, byte_range, max_lines=PREVIEW_LINES)
    return render(request, "places.html#preview", {"excerpt": excerpt, "name": code_places.file_name(path)})


@of_code
def folder(request: HttpRequest, repository: Repository, commit: str) -> HttpResponse:
    message = cited_in(request)
    path = requested_path(request, required=False)
    pane = code_places.folder_pane(repository, commit, path, message)
    principal = Principal.of_user(request.user)
    pane["versions"] = versions(repository, commit, path, principal=principal, message=message, folder=True)
    return beside(request, message, "folder.html", pane)


@of_code
def symbol_references(request: HttpRequest, repository: Repository, commit: str) -> HttpResponse:
    """Where a name is written, at the newest indexed commit; `commit` is where the question came from."""
    message = cited_in(request)
    pane = code_places.references_pane(repository, request.GET.get("name", ""), message)
    return beside(request, message, "places.html", pane | _way_back(request, repository, commit))


@of_code
def changes(request: HttpRequest, repository: Repository, commit: str) -> HttpResponse:
    """What the newest indexed commit made of a file."""
    message = cited_in(request)
    pane = code_places.changes_pane(repository, commit, requested_path(request), message)
    return beside(request, message, "places.html", pane | _way_back(request, repository, commit))


@of_code
def similar_code(request: HttpRequest, repository: Repository, commit: str) -> HttpResponse:
    """Code like a byte range (`bytes`) or like some whole lines (`lines`) of a file."""
    message = cited_in(request)
    excerpt = read_excerpt(
        repository,
        commit,
        requested_path(request),
        parse_range(request.GET.get("bytes", "")),
        line_range=_lines(request.GET.get("lines", "")),
    )
    principal = Principal.of_user(request.user)
    pane = code_places.similar_pane(repository, requested_path(request), excerpt, message, principal)
    return beside(request, message, "places.html", pane | _way_back(request, repository, commit))


def _lines(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,9})-(\d{1,9})", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _way_back(request: HttpRequest, repository: Repository, commit: str) -> Context:
    """To the code that the reader came from, where the address names it."""
    try:
        path = requested_path(request)
    except SourceNotFound:
        return {}
    byte_range = parse_range(request.GET.get("bytes", ""))
    return {"code_url": code_places.place_url(repository, commit, path, byte_range, cited_in(request))}
