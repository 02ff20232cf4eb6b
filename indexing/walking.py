"""Which blobs of a commit are indexed, and the recorded reason when one is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from django.db.models import TextChoices

from indexing.offsets import OffsetMap


class SkipReason(TextChoices):
    """Why a tracked file is not indexed."""

    BINARY = "binary", "binary file"
    GENERATED = "generated", "generated file"
    VENDORED = "vendored", "copy of someone else's code"
    MINIFIED = "minified", "minified file"
    TOO_LARGE = "too_large", "too large"
    LFS_POINTER = "lfs_pointer", "Git LFS pointer"
    SYMLINK = "symlink", "symbolic link"
    SUBMODULE = "submodule", "submodule"
    SECRET = "secret", "may hold secrets"  # noqa: S105 (a label)
    ENCODING = "encoding", "unknown text encoding"
    EMPTY = "empty", "empty file"
    IGNORED = "ignored", "listed in .assistantignore"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to index. `text` is the UTF-8 that the parsers see; it is `raw` itself for plain UTF-8."""

    path: bytes
    blob_id: str
    language: str
    route: str  # code, markdown, openapi, config or text
    encoding: str
    raw: bytes
    text: bytes
    offsets: OffsetMap


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    path: bytes
    reason: SkipReason
    detail: str


def walk(mirror_path: Path, commit: str, *, max_file_bytes: int) -> Iterator[SourceFile | SkippedEntry]:
    """Every tracked file of the commit, in Git's path order, either to index or with the reason why not."""
    raise NotImplementedError


def decode(raw: bytes, encoding: str) -> str:
    """For viewers: never fails, replaces what cannot be decoded."""
    return raw.decode(encoding, errors="replace").removeprefix("\ufeff")
