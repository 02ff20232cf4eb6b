"""Chunks -> one- or two-sentence descriptions written by the language model; cached, budgeted, never blocking."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ChunkToDescribe:
    """`text` is the chunk's own source as it stands in the file; masking happens here."""

    path: str
    language: str
    symbol: str
    text: str


@dataclass(slots=True)
class DescribeBudget:
    """What one build may spend; counts down. `warning` is a sentence for Index.warnings once something went wrong."""

    chunks: int
    tokens: int
    warning: str = ""
    described: int = field(default=0)
    reused: int = field(default=0)


def describe_chunks(
    items: Iterable[ChunkToDescribe], *, repository_id: int, budget: DescribeBudget
) -> Iterator[tuple[int, str]]:
    """Yields (position in `items`, description) as batches are done; never raises an LLMError."""
    yield from ()
