"""Who may search what: the rows of repositories that a principal reads, and the indexes of those that were chosen.

Rows are light, because there may be thousands; an index is opened only when its repository is chosen.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import EmptyResultSet
from django.db import connection

from indexing import segment_cache
from indexing.access import Principal
from indexing.errors import IndexFormatError
from indexing.models import Repository
from indexing.refreshing import request_repair
from search import catalogue, golden_sets
from search.corpus import Source
from search.index_cache import opened
from search.results import Scope, SearchOptions

logger = logging.getLogger(__name__)


class Readable(NamedTuple):
    """A repository with a published index that the asking person may read. `row`: its place in the catalogue.

    A tuple, because a search makes one for each of thousands.
    """

    repository_id: int
    name: str
    golden: bool
    row: int
    topics: tuple[tuple[str, str], ...] = ()  # a topic of a golden set that it is in, and the name of the set

    @property
    def index_path(self) -> Path:
        return _index_path(settings.DATA_DIR, self.repository_id)


@lru_cache(maxsize=1 << 14)
def _index_path(data_dir: str | Path, repository_id: int) -> Path:
    return Path(data_dir) / "indexes" / str(repository_id)


@dataclass(frozen=True, slots=True)
class Library:
    """What one question may be answered from. `count`: how many repositories that are without the scope's pins."""

    repositories: tuple[Readable, ...]
    count: int
    catalogue: catalogue.Catalogue


def readable(principal: Principal, scope: Scope, options: SearchOptions, notices: list[str]) -> Library:
    """By name. A repository whose index is damaged is left out; that is said and a new one is asked for."""
    fields = _names_and_ids(principal, scope.repository_ids)
    count = len(_names_and_ids(principal, ())) if scope.repository_ids else len(fields)
    current = catalogue.current()
    topics = golden_sets.topics()
    repositories = []
    for (name, pk, golden), row in zip(fields, current.rows([pk for _, pk, _ in fields]).tolist(), strict=True):
        if row < 0:
            _ask_for_repair(pk, name, notices)
            continue
        marked = golden if options.golden is None else pk in options.golden
        repositories.append(Readable(pk, name, marked, row, tuple(topics.get(pk, ()))))
    return Library(tuple(repositories), count, current)


def _names_and_ids(principal: Principal, pinned: tuple[int, ...]) -> list[tuple[str, int, bool]]:
    """(name, id, golden) of what may be read and is searchable, sorted."""
    try:
        sql, parameters = _searchable(principal, pinned)
    except EmptyResultSet:
        return []
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return sorted((name, pk, bool(golden)) for name, pk, golden in cursor.fetchall())


@lru_cache(maxsize=256)
def _searchable(principal: Principal, pinned: tuple[int, ...]) -> tuple[str, tuple[Any, ...]]:  # Any: parameters
    """SQL, kept because every search asks this: writing it takes longer than running it. Who may read what is in the
    database alone, and asked each time. Raises EmptyResultSet for a principal that reads nothing.
    """
    visible = Repository.objects.visible_to(principal).searchable().order_by()
    rows = visible.filter(pk__in=pinned) if pinned else visible
    sql, parameters = rows.values_list("name", "pk", "golden").query.sql_with_params()
    return sql, tuple(parameters)


def holds(one: Readable, folder: bytes, languages: Collection[str]) -> bool:
    """Whether it has that folder and one of the languages, or no index that can be opened: `open_chosen` says that."""
    try:
        segments = opened(one.index_path).segments
    except IndexFormatError:
        return True
    return any(
        (not folder or segment.files_in(folder)) and (not languages or set(languages) & set(segment.info.languages))
        for segment in segments
    )


def open_chosen(chosen: Sequence[Readable], notices: list[str], *, comparable: bool = True) -> list[Source]:
    """Their indexes, in the same order. What is only partly indexed is said; what is damaged as in `readable`."""
    sources = []
    for one in chosen:
        try:
            index = opened(one.index_path)
        except IndexFormatError as error:
            logger.warning("repository %s cannot be searched: %s", one.repository_id, error)
            _ask_for_repair(one.repository_id, one.name, notices)
            continue
        sources.append(Source(one.repository_id, one.name, one.golden, index, comparable))
        coverage = index.manifest.coverage
        if coverage.lexical < 1:
            notices.append(f"{one.name} is {coverage.lexical:.0%} indexed; the answer sees only that part.")
        elif coverage.vectors < 1:
            notices.append(f"{one.name} is still being embedded; until then it is searched by words only.")
    return sources


def _ask_for_repair(repository_id: int, name: str, notices: list[str]) -> None:
    if segment_cache.enabled() and segment_cache.volume_is_away():
        notices.append(f"{name} could not be searched: the volume with the indexes is away. Try again later.")
        return
    repository = Repository.objects.filter(pk=repository_id).first()
    if repository is not None:
        request_repair(repository)
        notices.append(f"{name} could not be searched: its index is damaged and has to be made anew.")
