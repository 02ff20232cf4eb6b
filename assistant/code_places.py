"""Lists of places in code for the pane: a folder, the mentions of a name, the changes of a file, similar code.

In: a repository its reader may see. Out: template contexts of `folder.html` and `places.html`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe

from assistant.errors import SourceNotFound
from assistant.markdown import clean, code_box
from assistant.models import Message
from assistant.references import FileReferences, Reference, references
from assistant.source_view import Excerpt, Row, check_commit, read_excerpt
from indexing import git
from indexing.access import Principal
from indexing.errors import EmbeddingError, GitError
from indexing.highlighting import drawn
from indexing.links import blob_url
from indexing.masking import mask_secrets
from indexing.models import Repository
from search.results import Hit
from search.similar import similar

MAX_ENTRIES = 2_000
MAX_DIFF_CHARS = 60_000
SIMILAR_LINES = 10
SIMILAR_HITS = 10

Context = dict[str, Any]  # Any: a template context


@dataclass(frozen=True, slots=True)
class Crumb:
    name: str
    href: str  # empty for where the reader is


@dataclass(frozen=True, slots=True)
class Entry:
    """`href` is empty for a link or a submodule."""

    name: str
    href: str
    folder: bool


@dataclass(frozen=True, slots=True)
class Place:
    label: str
    href: str
    note: str
    rows: tuple[Row, ...]
    hidden_lines: int


@dataclass(frozen=True, slots=True)
class FilePlaces:
    repository: str
    folder: str
    name: str
    href: str
    places: list[Place]


# --- addresses


def place_url(
    repository: Repository, commit: str, path: bytes, byte_range: tuple[int, int], message: Message | None
) -> str:
    return blob_url(
        repository.pk, repository.slug, commit, path, byte_range=byte_range, message_id=message.pk if message else None
    )


def page_url(
    name: str,
    repository: Repository,
    commit: str,
    path: bytes,
    message: Message | None,
    query: Mapping[str, str] | None = None,
) -> str:
    """The page `name` of `code_views` for a file or folder."""
    url = f"{reverse(name, args=[repository.pk, repository.slug, commit])}?path={quote(path, safe='/')}"
    more = dict(query or {}) | ({"m": str(message.pk)} if message is not None else {})
    return f"{url}&{urlencode(more)}" if more else url


def crumbs(repository: Repository, commit: str, path: bytes, message: Message | None) -> list[Crumb]:
    """The repository and the folders above `path`, each with its page; the last one is `path` itself."""
    parts = path.split(b"/") if path else []
    found = [Crumb(repository.name, page_url("folder", repository, commit, b"", message) if parts else "")]
    for depth, part in enumerate(parts, start=1):
        href = page_url("folder", repository, commit, b"/".join(parts[:depth]), message) if depth < len(parts) else ""
        found.append(Crumb(_shown(part), href))
    return found


def file_name(path: bytes) -> str:
    return _shown(path.rpartition(b"/")[2])


def _shown(name: bytes) -> str:
    return drawn(name.decode("utf-8", "backslashreplace"))


# --- panes


def folder_pane(repository: Repository, commit: str, path: bytes, message: Message | None) -> Context:
    """Raises SourceNotFound for a commit that was not indexed and for what is no folder."""
    check_commit(repository, commit)
    path = path.strip(b"/")
    try:
        listed = git.list_folder(repository.mirror.path, commit, path)
    except GitError as error:
        raise SourceNotFound(f"The folder could not be read from the mirror of {repository.name}.") from error
    if not listed:
        raise SourceNotFound(f"There is no such folder in {repository.name} at {commit[:12]}.")
    ordered = sorted(listed, key=lambda entry: not entry.folder)
    return _pane(message, file_name(path) or repository.name) | {
        "repository": repository,
        "commit": commit,
        "crumbs": crumbs(repository, commit, path, message),
        "entries": [_entry(repository, commit, entry, message) for entry in ordered[:MAX_ENTRIES]],
        "more_entries": max(0, len(ordered) - MAX_ENTRIES),
    }


def _entry(repository: Repository, commit: str, entry: git.FolderEntry, message: Message | None) -> Entry:
    href = ""
    if entry.folder:
        href = page_url("folder", repository, commit, entry.path, message)
    elif entry.file:
        href = place_url(repository, commit, entry.path, (0, 0), message)
    return Entry(file_name(entry.path), href, entry.folder)


def references_pane(repository: Repository, name: str, message: Message | None) -> Context:
    found = references(repository, name)
    count = f"{found.total}{' or more' if found.cut else ''}"
    sentence = f"{count} mention{'s' if found.total != 1 else ''} in {repository.name} at {found.commit[:7]}."
    return _pane(message, f"References of {found.name}") | {
        "sentence": sentence if found.total else f"{found.name} is not written anywhere in {repository.name}.",
        "files": [_file_references(repository, found.commit, file, message) for file in found.files],
    }


def _file_references(repository: Repository, commit: str, file: FileReferences, message: Message | None) -> FilePlaces:
    places = [_reference(repository, commit, file.path, mention, message) for mention in file.references]
    return _file(repository, file.path, places[0].href, places)


def _reference(repository: Repository, commit: str, path: bytes, mention: Reference, message: Message | None) -> Place:
    href = place_url(repository, commit, path, (mention.start_byte, mention.end_byte), message)
    note = "definition" if mention.definition else ""
    return Place("", href, note, (mention.row,), 0)


def changes_pane(repository: Repository, commit: str, path: bytes, message: Message | None) -> Context:
    """Raises SourceNotFound when there is nothing to compare."""
    check_commit(repository, commit)
    newest = repository.current_index.commit if repository.current_index is not None else ""
    _check_shown(repository, commit, path)
    mirror = repository.mirror.path
    try:
        then, now = git.blob_at(mirror, commit, path), git.blob_at(mirror, newest, path)
        patch = git.diff_blobs(mirror, then, now) if then and now else b""
    except GitError as error:
        raise SourceNotFound(f"The commits of {repository.name} could not be compared.") from error
    sentence = f"{file_name(path)} from {commit[:7]} to {newest[:7]}, the newest indexed commit."
    if now is None:
        sentence = f"{file_name(path)} is gone at {newest[:7]}, the newest indexed commit."
    return _pane(message, f"Changes of {file_name(path)}") | {"sentence": sentence, "patch": _patch_html(patch)}


def _check_shown(repository: Repository, commit: str, path: bytes) -> None:
    """Raises SourceNotFound for a file that the viewer would not show: a diff must not show it either."""
    read_excerpt(repository, commit, path, (0, 0), line_range=(1, 1), max_lines=1)


def _patch_html(patch: bytes) -> SafeString:
    text = mask_secrets(patch.decode("utf-8", "replace")[:MAX_DIFF_CHARS])
    return mark_safe(clean(code_box(text, "diff"))) if text else SafeString("")  # noqa: S308  # escaped, then cleaned


def similar_pane(
    repository: Repository, path: bytes, excerpt: Excerpt, message: Message | None, principal: Principal
) -> Context:
    try:
        found = similar(excerpt.text, excerpt.language, principal=principal, limit=SIMILAR_HITS + 3)
    except EmbeddingError as error:
        return _pane(message, "Similar code") | {"sentence": str(error), "files": []}
    others = [hit for hit in found.hits if not _is_same(hit, repository, path, excerpt)][:SIMILAR_HITS]
    readable = Repository.objects.visible_to(principal).select_related("mirror")
    repositories = readable.in_bulk({hit.repository_id for hit in others})
    files = [file for hit in others if (file := _similar_file(repositories.get(hit.repository_id), hit, message))]
    lines = f"lines {excerpt.start_line}–{excerpt.end_line} of {file_name(path)}"
    sentence = f"Closest in meaning to {lines} first." if files else f"Nothing indexed is close to {lines}."
    return _pane(message, "Similar code") | {"sentence": sentence, "files": files, "notices": found.notices}


def _is_same(hit: Hit, repository: Repository, path: bytes, excerpt: Excerpt) -> bool:
    overlaps = hit.start_byte < excerpt.end_byte and excerpt.start_byte < hit.end_byte
    return hit.repository_id == repository.pk and hit.path == path and overlaps


def _similar_file(repository: Repository | None, hit: Hit, message: Message | None) -> FilePlaces | None:
    if repository is None:
        return None
    marked = (hit.start_byte, hit.end_byte)
    try:
        excerpt = read_excerpt(repository, hit.commit, hit.path, marked, max_lines=SIMILAR_LINES)
    except SourceNotFound:
        return None
    href = place_url(repository, hit.commit, hit.path, marked, message)
    place = Place(hit.symbol or hit.kind, href, f"{hit.score:.2f}", excerpt.rows, excerpt.hidden_lines)
    return _file(repository, hit.path, href, [place])


def _file(repository: Repository, path: bytes, href: str, places: Sequence[Place]) -> FilePlaces:
    folder, _, name = _shown(path).rpartition("/")
    return FilePlaces(repository.name, folder, name, href, list(places))


def _pane(message: Message | None, title: str) -> Context:
    return {
        "alone": message is None,
        "title": title,
        "trace_url": reverse("trace", args=[message.pk]) if message else "",
        "close_url": reverse("conversation", args=[message.conversation_id]) if message else "",
    }
