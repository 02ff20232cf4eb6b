"""The search page: ranked passages grouped by file, with the matching lines marked. Works without any model.

Text is read from the mirrors for what is shown and masked; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.safestring import SafeString
from django.utils.text import slugify
from django.views.decorators.http import require_GET

from indexing import llm
from indexing.access import Principal
from indexing.highlighting import drawn
from indexing.links import blob_url
from search.marking import marked_lines
from search.pipeline import search
from search.results import Hit, SearchResult
from search.scoping import read_question, scope_tokens
from search.snippets import read_snippets

HITS = 60
FILES_SHOWN = 10
INDENTATION_BYTES = 200  # read before a passage; even, for files of two bytes a character
LINES_SHOWN = 14
PASSAGES_SHOWN = 3  # of one file with their code; the others as links
LEGS = {
    "vectors.code": "code",
    "vectors.descriptions": "description",
    "vectors.files": "file",
    "terms.code_stems": "terms",
    "terms.code_terms": "terms",
    "terms.descriptions": "description",
    "terms.files": "file",
}
KINDS = {
    "Function or method": {"function", "method", "constructor"},
    "Class or type": {"class", "interface", "struct", "enum", "trait", "type", "outline"},
    "Documentation": {"section"},
    "Endpoint": {"endpoint"},
}

Context = dict[str, Any]  # Any: a template context


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    html: SafeString
    hit: bool


@dataclass(frozen=True, slots=True)
class Passage:
    hit: Hit
    href: str
    lines: list[Line]
    hidden: int
    legs: str


@dataclass(frozen=True, slots=True)
class FileResult:
    rank: int
    repository: str
    golden: bool
    folder: str
    name: str
    href: str
    passages: list[Passage]


@dataclass(frozen=True, slots=True)
class FacetValue:
    value: str
    passages: int
    chosen: bool


@require_GET
def search_page(request: HttpRequest) -> HttpResponse:
    """With HTMX only the results; the address says everything, so every search can be shared."""
    question = request.GET.get("q", "").strip()
    context: Context = {"question": question, "path": request.GET.get("path", ""), "no_model": not llm.configured()}
    if question:
        context |= _results(request, question)
    fragment = bool(request.htmx) and not request.htmx.history_restore_request  # type: ignore[attr-defined]
    return render(request, "search.html#results" if fragment else "search.html", context)


def _results(request: HttpRequest, question: str) -> Context:
    principal = Principal.of_user(_user(request))
    asked = read_question(question, [], principal)
    path = request.GET.get("path", "").strip()
    scope = replace(asked.scope, path_filter=path or asked.scope.path_filter)
    result = search(asked.question, principal=principal, scope=scope, limit=HITS, use_llm=False)
    facets = [
        ("Repository", "repository", _values(request, "repository", result.hits, lambda hit: hit.repository)),
        ("Language", "language", _values(request, "language", result.hits, lambda hit: hit.language or "text")),
        ("Kind", "kind", _values(request, "kind", result.hits, kind_label)),
    ]
    kept = [hit for hit in result.hits if _is_chosen(request, hit)]
    if request.GET.get("order") == "path":
        kept.sort(key=lambda hit: (hit.repository, hit.path, hit.start_byte))
    groups = _by_file(kept)
    everything = "all" in request.GET
    shown = groups if everything else groups[:FILES_SHOWN]
    return {
        "files": _files(shown, result, asked.question),
        "scope_tokens": scope_tokens(asked.scope, principal),
        "file_count": len(groups),
        "passage_count": len(kept),
        "more_files": len(groups) - len(shown),
        "more_query": f"{request.GET.urlencode()}&all=1",
        "facets": facets,
        "trace": result.trace,
        "milliseconds": sum(stage.milliseconds for stage in result.trace.stages),
        "order": request.GET.get("order", ""),
    }


def kind_label(hit: Hit) -> str:
    if "test" in hit.path.lower().decode("utf-8", "replace"):
        return "Test"
    return next((label for label, kinds in KINDS.items() if hit.kind in kinds), "Other")


def _values(request: HttpRequest, name: str, hits: Sequence[Hit], label: Callable[[Hit], str]) -> list[FacetValue]:
    counts: dict[str, int] = {}
    for hit in hits:
        counts[label(hit)] = counts.get(label(hit), 0) + 1
    chosen = set(request.GET.getlist(name))
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [FacetValue(value, passages, value in chosen) for value, passages in ordered]


def _is_chosen(request: HttpRequest, hit: Hit) -> bool:
    wanted = {name: request.GET.getlist(name) for name in ("repository", "language", "kind")}
    own = {"repository": hit.repository, "language": hit.language or "text", "kind": kind_label(hit)}
    return all(not values or own[name] in values for name, values in wanted.items())


def _by_file(hits: Sequence[Hit]) -> list[list[Hit]]:
    """Files in the order of their best passage."""
    groups: dict[tuple[int, bytes], list[Hit]] = {}
    for hit in hits:
        groups.setdefault((hit.repository_id, hit.path), []).append(hit)
    return list(groups.values())


def _files(groups: Sequence[Sequence[Hit]], result: SearchResult, question: str) -> list[FileResult]:
    texts = iter(_texts([hit for group in groups for hit in group[:PASSAGES_SHOWN]]))
    golden = {choice.repository_id for choice in result.trace.repositories if choice.golden}
    files = []
    for rank, group in enumerate(groups, start=1):
        passages = [_passage(hit, next(texts), question) for hit in group[:PASSAGES_SHOWN]]
        passages += [_passage(hit, "", question) for hit in group[PASSAGES_SHOWN:]]
        folder, _, name = drawn(group[0].display_path).rpartition("/")
        first = passages[0]
        files.append(
            FileResult(rank, group[0].repository, group[0].repository_id in golden, folder, name, first.href, passages)
        )
    return files


def _texts(hits: Sequence[Hit]) -> list[str]:
    """The text of each hit with the indentation of its first line, which the hit itself may leave out."""
    heads = [
        replace(hit, start_byte=max(0, hit.start_byte - INDENTATION_BYTES), end_byte=hit.start_byte) for hit in hits
    ]
    read = read_snippets([*hits, *heads])
    indents = [head.rpartition("\n")[2] for head in read[len(hits) :]]
    return [text if indent.strip() else indent + text for text, indent in zip(read, indents, strict=False)]


def _passage(hit: Hit, text: str, question: str) -> Passage:
    rows = marked_lines(text, hit.language, question) if text else []
    lines = [Line(hit.start_line + place, html, matches) for place, (html, matches) in enumerate(rows)]
    url = blob_url(
        hit.repository_id,
        slugify(hit.repository.replace("/", "-")) or "repository",
        hit.commit,
        hit.path,
        byte_range=(hit.start_byte, hit.end_byte),
        line_range=(hit.start_line, hit.end_line),
    )
    legs = ", ".join(dict.fromkeys(LEGS.get(name, name) for name in hit.legs))
    return Passage(hit, url, lines[:LINES_SHOWN], max(0, len(lines) - LINES_SHOWN), legs)


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # LoginRequiredMiddleware
    return request.user
