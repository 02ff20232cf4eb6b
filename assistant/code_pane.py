"""The code viewer's page data: a window of a file with its links, alone or beside the conversation that cites it."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from django.http import HttpRequest
from django.urls import reverse

from assistant import conversations
from assistant.citations import Evidence
from assistant.code_places import crumbs, page_url, place_url
from assistant.errors import SourceNotFound
from assistant.freshness import GONE, freshness
from assistant.models import Citation, Message
from assistant.source_view import SourceView, Symbol, read_view
from assistant.versions import versions
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
    at = versions(
        repository, commit, path, principal=principal, message=message, byte_range=(view.start_byte, view.end_byte)
    )
    return _context(request, view, message, evidence) | {"versions": at}


def requested_path(request: HttpRequest, *, required: bool = True) -> bytes:
    """The exact bytes of `path`: Git paths need not be UTF-8, so Django's decoded query is no use.

    Raises SourceNotFound when there is none but one is required.
    """
    for part in request.META.get("QUERY_STRING", "").split("&"):
        name, _, value = part.partition("=")
        if name == "path" and value:
            return unquote_to_bytes(value.replace("+", " "))
    if required:
        raise SourceNotFound("No path was given.")
    return b""


def _context(request: HttpRequest, view: SourceView, message: Message | None, evidence: list[Evidence]) -> Context:
    marked = (view.start_byte, view.end_byte)
    lines = (view.start_line, view.end_line)
    permalink = _url(view, None, byte_range=marked, line_range=lines)
    return {
        "view": view,
        "title": view.name,
        "repository": view.repository,
        "commit": view.commit,
        "alone": message is None,
        "number": (number := _number(view, evidence)),
        "copied_url": reverse("citation_copied", args=[message.pk, number]) if message and number else "",
        "permalink": permalink,
        "absolute_permalink": request.build_absolute_uri(permalink),
        "earlier_url": _window_url(view, message, view.earlier),
        "later_url": _window_url(view, message, view.later),
        "outline": [(symbol, _symbol_url(view, message, symbol)) for symbol in view.outline],
        "cited_symbols": sum(bool(row.flags) for row in view.outline),
        "hosting_name": _hosting_name(view.hosting_url),
        "crumbs": crumbs(view.repository, view.commit, view.path, message),
        "trace_url": reverse("trace", args=[message.pk]) if message else "",
        "close_url": reverse("conversation", args=[message.conversation_id]) if message else "",
    } | _ways_on(view, message)


def _ways_on(view: SourceView, message: Message | None) -> Context:
    """From this passage to its references, to code like it, and to the newest indexed commit."""
    at = (view.repository, view.commit, view.path, message)
    marked = {"bytes": f"{view.start_byte}-{view.end_byte}"} if view.end_byte else {}
    symbol = next((symbol.name for symbol in view.outline if symbol.current), "")
    fresh = freshness(view.repository, view.commit, view.path, (view.start_byte, view.end_byte))
    newest = (view.repository, fresh.newest, view.path) if fresh and fresh.state != GONE else None
    return {
        "similar_url": page_url("similar_code", *at, marked) if marked else "",
        "selection_url": page_url("similar_code", *at),
        "symbol": symbol,
        "references_url": page_url("references", *at, {"name": symbol} | marked) if symbol else "",
        "word_url": page_url("references", *at, marked),
        "fresh": fresh,
        "newest_url": place_url(*newest, fresh.moved_to, message) if newest and fresh else "",
        "changes_url": page_url("changes", *at, marked) if fresh and fresh.touched else "",
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
        if row and _at(row) == (view.repository.pk, view.commit, view.path, view.start_byte, view.end_byte):
            return item.number
    return None


def _at(row: Citation) -> tuple[int | None, str, bytes, int, int]:
    return row.repository_id, row.commit, bytes(row.path), row.start_byte, row.end_byte


def _hosting_name(url: str) -> str:
    host = urlsplit(url).hostname or ""
    return next((name for word, name in _HOSTS.items() if word in host), host)
