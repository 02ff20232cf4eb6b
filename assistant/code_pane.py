"""The code viewer's page data: a window of a file with its links, alone or beside the conversation that cites it."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from django.http import HttpRequest
from django.urls import reverse

from assistant import conversations
from assistant.citations import Evidence
from assistant.errors import SourceNotFound
from assistant.models import Message
from assistant.source_view import SourceView, Symbol, read_view
from indexing.access import Principal
from indexing.links import blob_url, parse_range
from indexing.models import Repository

Context = dict[str, Any]  # Any: a template context
_HOSTS = {"github": "GitHub", "gitlab": "GitLab", "gitea": "Gitea", "codeberg": "Codeberg", "bitbucket": "Bitbucket"}


def code_pane(
    request: HttpRequest, repository: Repository, commit: str, message: Message | None, principal: Principal
) -> Context:
    """Raises SourceNotFound."""
    path = requested_path(request)
    start_byte, end_byte = parse_range(request.GET.get("bytes", ""))
    first_line = request.GET.get("line", "")
    evidence = conversations.evidence(message, principal) if message else []
    view = read_view(
        repository,
        commit,
        path,
        start_byte,
        end_byte,
        first_line=int(first_line) if first_line.isdecimal() and len(first_line) < 10 else None,
        evidence=evidence,
    )
    return _context(request, view, message, evidence)


def requested_path(request: HttpRequest) -> bytes:
    """The exact bytes of `path`: Git paths need not be UTF-8, so Django's decoded query is no use.

    Raises SourceNotFound when there is none.
    """
    for part in request.META.get("QUERY_STRING", "").split("&"):
        name, _, value = part.partition("=")
        if name == "path" and value:
            return unquote_to_bytes(value.replace("+", " "))
    raise SourceNotFound("No path was given.")


def _context(request: HttpRequest, view: SourceView, message: Message | None, evidence: list[Evidence]) -> Context:
    marked = (view.start_byte, view.end_byte)
    lines = (view.start_line, view.end_line)
    permalink = _url(view, None, byte_range=marked, line_range=lines)
    return {
        "view": view,
        "alone": message is None,
        "number": _number(view, evidence),
        "permalink": permalink,
        "absolute_permalink": request.build_absolute_uri(permalink),
        "earlier_url": _window_url(view, message, view.earlier),
        "later_url": _window_url(view, message, view.later),
        "outline": [(symbol, _symbol_url(view, message, symbol)) for symbol in view.outline],
        "cited_symbols": sum(bool(row.flags) for row in view.outline),
        "hosting_name": _hosting_name(view.hosting_url),
        "trace_url": reverse("trace", args=[message.pk]) if message else "",
        "close_url": reverse("conversation", args=[message.conversation_id]) if message else "",
    }


def _url(view: SourceView, message: Message | None, **ranges: tuple[int, int]) -> str:
    row = view.repository
    return blob_url(row.pk, row.slug, view.commit, view.path, message_id=message.pk if message else None, **ranges)


def _symbol_url(view: SourceView, message: Message | None, symbol: Symbol) -> str:
    marked = (symbol.start_byte, symbol.end_byte)
    return _url(view, message, byte_range=marked, line_range=(symbol.start_line, symbol.end_line))


def _window_url(view: SourceView, message: Message | None, first_line: int | None) -> str:
    if first_line is None:
        return ""
    marked = (view.start_byte, view.end_byte)
    return f"{_url(view, message, byte_range=marked)}&line={first_line}#L{first_line}"


def _number(view: SourceView, evidence: list[Evidence]) -> int | None:
    """The n of [n] when exactly this range is cited."""
    for item in evidence:
        row = item.citation
        if row and bytes(row.path) == view.path and (row.start_byte, row.end_byte) == (view.start_byte, view.end_byte):
            return item.number
    return None


def _hosting_name(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return next((name for word, name in _HOSTS.items() if word in host), host)
