"""Git, run as a subprocess: mirror, fetch, resolve, list trees, read blobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from indexing.models import Mirror


@dataclass(frozen=True, slots=True)
class Source:
    url: str
    kind: str
    default_name: str


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One line of a tree listing. `size` is 0 for a submodule."""

    mode: int
    blob_id: str
    size: int
    path: bytes


def parse_source(text: str, *, from_staff: bool) -> Source:
    raise NotImplementedError


def check_ref(ref: str) -> str:
    raise NotImplementedError


def probe(source: Source, ref: str = "") -> str:
    raise NotImplementedError


def ensure_mirror(mirror: Mirror, *, on_progress: Callable[[str], None] | None = None) -> None:
    raise NotImplementedError


def resolve(mirror_path: Path, ref: str, default_branch: str) -> str:
    raise NotImplementedError


def pin(mirror_path: Path, commit: str) -> None:
    raise NotImplementedError


def list_tree(mirror_path: Path, commit: str) -> Iterator[TreeEntry]:
    raise NotImplementedError


class BlobReader:
    def __init__(self, mirror_path: Path) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    def read(self, blob_id: str) -> bytes:
        raise NotImplementedError

    def read_many(self, blob_ids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        raise NotImplementedError


def blob_at(mirror_path: Path, commit: str, path: bytes) -> str | None:
    raise NotImplementedError


def commits_between(mirror_path: Path, old: str, new: str) -> int:
    raise NotImplementedError


def hosting_url(mirror_url: str, commit: str, path: bytes, start_line: int, end_line: int) -> str:
    raise NotImplementedError
