"""What is embedded for a chunk: shortened path, canonical name, imports it uses, class header, normalised code.

Derived text is built, embedded and thrown away; nothing here is stored. Secrets are masked before any text leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from indexing.chunking import ChunkedFile
    from indexing.walking import SourceFile


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    rows: tuple[str, ...]  # one or more texts, none above the model's window
    description: str  # deterministic, natural language


def shorten_path(path: str, limit: int) -> str:
    """Both ends survive: the last two segments, the longest prefix that still fits, "…" between; else the name."""
    raise NotImplementedError


def embedded_texts(
    source: SourceFile, chunked: ChunkedFile, *, count_tokens: Callable[[str], int], max_tokens: int
) -> list[EmbeddedTexts]:
    """What the model sees for each chunk, aligned with `chunked.chunks`."""
    raise NotImplementedError


def file_text(source: SourceFile, chunked: ChunkedFile) -> str:
    """What the file's own vector and terms are made of: path words, definition names, first doc sentences."""
    raise NotImplementedError


def extractive_description(source: SourceFile, chunked: ChunkedFile, position: int) -> str:
    """A deterministic description of chunk `position`, at most about 300 characters."""
    raise NotImplementedError
