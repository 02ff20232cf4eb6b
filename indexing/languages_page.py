"""The staff's page of languages: how many files of each are indexed, its grammar, and which were cut by lines and why.

Counts are read from the published indexes that the person may read. Whether a grammar loads is tried in this process,
with the same code that builds use; a grammar that fails costs its files their syntax, never a build.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from indexing.access import Principal
from indexing.errors import IndexFormatError
from indexing.index_format import ROLES, Segment, open_index, read_manifest
from indexing.languages import TEXT_LANGUAGES
from indexing.models import Repository
from indexing.parsing import grammar_problem

READ_BY_HEADINGS = frozenset({"markdown", "rst", "asciidoc", "org"})  # no grammar is asked for these
LINES_KIND = "lines"
NAMED_REPOSITORIES = 3  # of those with files cut by lines
_KEPT_COUNTS = 4096  # published generations

_Counts = tuple[tuple[str, int, int], ...]  # language, files, files of which every chunk is a range of lines


@dataclass(slots=True)
class LanguageRow:
    """`problem` is empty when the grammar loads, or when none is needed."""

    name: str
    needs_grammar: bool
    problem: str
    files: int = 0
    cut_by_lines: int = 0
    repositories: int = 0
    named: list[Repository] = field(default_factory=list)  # some of those with files cut by lines

    @property
    def reason(self) -> str:
        """Why files are cut by lines; empty when none is, or when that is how they are meant to be cut."""
        if not (self.cut_by_lines and self.needs_grammar):
            return ""
        return self.problem or "a line too long to cut elsewhere, or a parse that took too long"


@require_GET
def languages(request: HttpRequest) -> HttpResponse:
    if not getattr(request.user, "is_staff", False):
        raise Http404
    readable = Repository.objects.visible_to(Principal.of_user(request.user)).order_by("name")
    rows, unread = language_rows(readable)
    return render(request, "languages.html", {"rows": rows, "unread": unread})


def language_rows(repositories: Iterable[Repository]) -> tuple[list[LanguageRow], list[Repository]]:
    """Languages with troubled ones first, then by files; and the repositories whose index cannot be read."""
    rows: dict[str, LanguageRow] = {}
    unread: list[Repository] = []
    for repository in repositories:
        try:
            counts = _counts(repository.index_path)
        except IndexFormatError:
            unread.append(repository)
            continue
        for name, files, cut_by_lines in counts:
            row = rows.setdefault(name, _row(name))
            row.files += files
            row.cut_by_lines += cut_by_lines
            row.repositories += 1
            if cut_by_lines and row.needs_grammar and len(row.named) < NAMED_REPOSITORIES:
                row.named.append(repository)
    return sorted(rows.values(), key=lambda row: (not row.reason, -row.files, row.name)), unread


def _row(name: str) -> LanguageRow:
    needs = bool(name) and name not in TEXT_LANGUAGES and name not in READ_BY_HEADINGS
    return LanguageRow(name=name, needs_grammar=needs, problem=grammar_problem(name) if needs else "")


def _counts(directory: Path) -> _Counts:
    manifest = read_manifest(directory)
    return _counts_of(directory, manifest.index_id, manifest.generation) if manifest else ()


@lru_cache(maxsize=_KEPT_COUNTS)
def _counts_of(directory: Path, index_id: int, generation: int) -> _Counts:
    """A published generation never changes, so its files are counted once in each process."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for segment in open_index(directory).segments:
        for position, (all_files, cut) in _segment_counts(segment).items():
            files[segment.info.languages[position]] += all_files
            lines[segment.info.languages[position]] += cut
        segment.release()
    return tuple((name, files[name], lines[name]) for name in sorted(files))


def _segment_counts(segment: Segment) -> dict[int, tuple[int, int]]:
    """Language (its position in the segment's list) -> live files, and those that have nothing but ranges of lines."""
    kinds = segment.info.kinds
    primary = segment.chunks["role"] == ROLES.index("primary")
    structured = primary & (segment.chunks["kind"] != (kinds.index(LINES_KIND) if LINES_KIND in kinds else 255))
    has_structure = np.zeros(segment.info.files, dtype=np.bool_)
    has_structure[segment.chunks["file"][structured]] = True
    has_chunks = np.diff(segment.file_chunks) > 0
    live = np.ones(segment.info.files, dtype=np.bool_) if segment.live_files is None else segment.live_files
    of_language: dict[int, tuple[int, int]] = {}
    for position in np.unique(segment.files["language"][live]):
        mine = live & (segment.files["language"] == position)
        of_language[int(position)] = (int(mine.sum()), int((mine & has_chunks & ~has_structure).sum()))
    return of_language
