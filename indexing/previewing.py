"""What an index of a repository would hold, before it is made: how many files, and the reason for every other one.

    preview = preview_files(repository, rules="docs/**", max_file_bytes=None)

Reads the mirror, builds and stores nothing. Names, modes and sizes are judged for all files; contents are read until
the time is over, and `unread` counts the files that were not looked into.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from indexing.collecting import display
from indexing.git import TreeEntry, ensure_mirror, resolve
from indexing.languages import language_of
from indexing.models import Repository
from indexing.walking import SkippedEntry, walk, walk_names

SECONDS = 5.0  # a person waits for it
LISTED_FILES = 1_000  # of those indexed and of those skipped


@dataclass(slots=True)
class Preview:
    commit: str
    files: int = 0  # that would be indexed, those in `unread` included
    bytes: int = 0
    unread: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)  # reason -> files
    indexed_paths: list[str] = field(default_factory=list)
    skipped_files: list[tuple[str, str, str]] = field(default_factory=list)  # path, reason, detail

    def add(self, entry: TreeEntry) -> None:
        self.files += 1
        self.bytes += entry.size
        self.languages[language_of(entry.path, b"")] += 1
        if len(self.indexed_paths) < LISTED_FILES:
            self.indexed_paths.append(display(entry.path))

    def as_json(self) -> dict[str, Any]:  # Any: JSON
        return {
            "commit": self.commit,
            "files": self.files,
            "bytes": self.bytes,
            "unread": self.unread,
            "languages": dict(self.languages.most_common()),
            "skipped": dict(self.skipped.most_common()),
            "indexed_paths": self.indexed_paths,
            "skipped_files": [
                {"path": path, "reason": reason, "detail": detail} for path, reason, detail in self.skipped_files
            ],
        }

    def skip(self, entry: SkippedEntry) -> None:
        self.skipped[entry.reason.value] += 1
        if len(self.skipped_files) < LISTED_FILES:
            self.skipped_files.append((display(entry.path), entry.reason.value, entry.detail))


def fetch_mirror(repository: Repository) -> None:
    """So that there is something to look at. Raises GitError."""
    if repository.mirror.fetched_at is None:
        ensure_mirror(repository.mirror)


def preview_files(
    repository: Repository, *, rules: str, max_file_bytes: int | None, seconds: float = SECONDS
) -> Preview:
    """With these rules and this limit, saved or not. Raises GitError; EmptyRepository when there is no commit yet."""
    deadline = time.monotonic() + seconds
    mirror_path, limit = repository.mirror.path, max_file_bytes or settings.MAX_FILE_BYTES
    preview = Preview(resolve(mirror_path, repository.ref, repository.mirror.default_branch))
    promising: list[TreeEntry] = []
    for named in walk_names(mirror_path, preview.commit, max_file_bytes=limit, chosen=rules):
        if isinstance(named, SkippedEntry):
            preview.skip(named)
        else:
            promising.append(named)
    read = 0
    walked = walk(mirror_path, preview.commit, max_file_bytes=limit, only=promising, chosen=rules)
    for entry, found in zip(promising, walked, strict=False):
        read += 1
        if isinstance(found, SkippedEntry):
            preview.skip(found)
        else:
            preview.add(entry)
        if time.monotonic() > deadline:
            break
    for entry in promising[read:]:
        preview.add(entry)
    preview.unread = len(promising) - read
    return preview
