"""Hits and their code -> the same hits filtered and ordered by a language model.

A reply that cannot be used, in part or whole, never loses a hit: what it does not say keeps its earlier order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search.results import Dropped, Hit


@dataclass(frozen=True, slots=True)
class Reranked:
    """`state` is done, partial (some of the reply was unusable), failed or skipped (then the order is as before)."""

    hits: tuple[Hit, ...]
    dropped: tuple[Dropped, ...]
    state: str
    notice: str  # a sentence for people; empty when there is nothing to say


def rerank(
    question: str, hits: Sequence[Hit], snippets: Sequence[str], *, keep: int, user_id: int | None = None
) -> Reranked:
    """`snippets` aligned with `hits`; at most `keep` hits come back. Never raises."""
    return Reranked(hits=tuple(hits[:keep]), dropped=(), state="skipped", notice="")
