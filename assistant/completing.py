"""What the composer offers while a person types `@`, `path:` or `lang:`; only from repositories they may read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from django.db.models import Case, IntegerField, Value, When

from indexing.access import Principal
from indexing.errors import IndexFormatError
from indexing.index_format import OpenIndex
from indexing.models import Repository
from search import golden_sets
from search.index_cache import opened
from search.scoping import read_question

COMPLETIONS = 8
SETS = 3  # at most, so that repositories are offered too
_FOLDERS_LOOKED_AT = 5000  # files


@dataclass(frozen=True, slots=True)
class Completion:
    """`token` is what the chip will say; `detail` is shown dimmed beside it."""

    token: str
    detail: str = ""
    golden: bool = False


def complete(typed: str, tokens: Sequence[str], principal: Principal) -> list[Completion]:
    """`typed` is the word under the cursor; `tokens` are the chips, which narrow what folders are offered."""
    if typed.startswith("@"):
        return [*_sets(typed[1:], principal), *_repositories(typed[1:], principal)][:COMPLETIONS]
    for key in ("path!:", "path:"):
        if typed.startswith(key):
            return _folders(key, typed.removeprefix(key), tokens, principal)
    return _languages(typed.removeprefix("lang:"), tokens, principal) if typed.startswith("lang:") else []


def _sets(text: str, principal: Principal) -> list[Completion]:
    """Found by any part of their name, and all of them by `@set/`."""
    prefix = golden_sets.PREFIX
    wanted = text.removeprefix(prefix) if len(text) > len(prefix) else "" if prefix.startswith(text) else text
    found = golden_sets.offered(wanted, principal, limit=SETS)
    return [
        Completion(f"@{prefix}{name}", ": ".join(filter(None, [_counted(size), note])), golden=True)
        for name, note, size in found
    ]


def _counted(size: int) -> str:
    return "1 repository" if size == 1 else f"{size} repositories"


def _repositories(text: str, principal: Principal) -> list[Completion]:
    starts = Case(When(name__istartswith=text, then=Value(0)), default=Value(1), output_field=IntegerField())
    found = Repository.objects.visible_to(principal).filter(name__icontains=text).order_by("-golden", starts, "name")
    return [
        Completion(f"@{row.name}", _size(row), row.golden)
        for row in found.select_related("current_index")[:COMPLETIONS]
    ]


def _size(repository: Repository) -> str:
    index = repository.current_index
    return "not indexed yet" if index is None else f"{index.files_done:,} file{'' if index.files_done == 1 else 's'}"


def _folders(key: str, text: str, tokens: Sequence[str], principal: Principal) -> list[Completion]:
    """Folders below what is typed, one level at a time, of the pinned repositories or of the first few."""
    prefix = text.encode()
    folders: dict[str, None] = {}
    for index in _indexes(tokens, principal):
        for path in islice(_paths(index, prefix), _FOLDERS_LOOKED_AT):
            end = path.find(b"/", len(prefix))
            if end > 0:
                folders[path[:end].decode("utf-8", "backslashreplace")] = None
    return [Completion(f"{key}{folder}") for folder in sorted(folders)[:COMPLETIONS] if " " not in folder]


def _paths(index: OpenIndex, prefix: bytes) -> Iterator[bytes]:
    for segment in index.segments:
        for row in segment.live_file_rows(segment.files_under(prefix)):
            yield segment.paths.raw(row)


def _languages(text: str, tokens: Sequence[str], principal: Principal) -> list[Completion]:
    segments = [segment for index in _indexes(tokens, principal) for segment in index.segments]
    names = {language for segment in segments for language in segment.info.languages}
    return [Completion(f"lang:{name}") for name in sorted(names) if name.startswith(text.lower())][:COMPLETIONS]


def _indexes(tokens: Sequence[str], principal: Principal) -> Iterator[OpenIndex]:
    readable = Repository.objects.visible_to(principal).searchable().order_by("-golden", "name")
    if pinned := read_question("", tokens, principal).scope.repository_ids:
        readable = readable.filter(pk__in=pinned)
    for repository in readable[:COMPLETIONS]:
        try:
            yield opened(repository.index_path)
        except IndexFormatError:
            continue
