"""Candidates with identical code -> one of them, and in how many places that code is.

The one shown is the own source: not a copy below `vendor/` and the like, then that of a golden repository, then the
one that comes first among the chosen repositories. Code is identical when its bytes are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from search.corpus import Corpus
from search.retrieval import Pool

_COPIED_BELOW = frozenset(
    b"vendor vendored _vendor third_party third-party thirdparty 3rdparty external externals extern node_modules "
    b"bower_components site-packages dist build deps".split()
)


@dataclass(frozen=True, slots=True)
class Shown:
    """`position` in the pool of the copy to show; `places`: how many candidates have its code."""

    position: int
    places: int


class Copies:
    """The candidates of one pool, each to be taken once."""

    def __init__(self, corpus: Corpus, pool: Pool) -> None:
        self._corpus = corpus
        self._pool = pool
        self._hashes = corpus.chunk_field(pool.chunks, "content_hash").tolist()
        self._members: dict[int, list[int]] = defaultdict(list)
        for position, content in enumerate(self._hashes):
            self._members[content].append(position)
        self._taken: set[int] = set()

    def take(self, position: int) -> Shown | None:
        """None when a copy of it was taken before."""
        content = self._hashes[position]
        if content in self._taken:
            return None
        self._taken.add(content)
        members = self._members[content]
        if len(members) == 1:
            return Shown(position, 1)
        best = min(members, key=lambda member: (self._is_copied(member), not self._is_golden(member), member))
        return Shown(best, len(members))

    def _is_copied(self, position: int) -> bool:
        folders = self._corpus.path(int(self._pool.files[position])).lower().split(b"/")[:-1]
        return not _COPIED_BELOW.isdisjoint(folders)

    def _is_golden(self, position: int) -> bool:
        return self._corpus.part_of_chunk(int(self._pool.chunks[position])).source.golden
