"""How good a ranking is: NDCG, recall and reciprocal rank over targets that are files or line spans of files.

Pure functions. A ranking is the first `depth` places returned; a target is found at the rank of the first
place of its file or, when it names lines, of the first place of its file that overlaps them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from search.errors import EvaluationError

_TARGET = re.compile(r"(?P<path>.+?)(?::(?P<first>\d+)(?:-(?P<last>\d+))?)?")


@dataclass(frozen=True, slots=True)
class Place:
    """A ranked result: lines are 1-based and inclusive."""

    path: str
    start_line: int
    end_line: int


@dataclass(frozen=True, slots=True)
class Target:
    """What should have been found. Without lines the whole file counts."""

    path: str
    start_line: int | None = None
    end_line: int | None = None


def parse_target(text: str) -> Target:
    """`src/app.py`, `src/app.py:10` or `src/app.py:10-24`. Raises EvaluationError when no such lines can exist."""
    match = _TARGET.fullmatch(text.strip())
    if match is None or match["first"] is None:
        return Target(text.strip())
    first, last = int(match["first"]), int(match["last"] or match["first"])
    if not 1 <= first <= last:
        raise EvaluationError(
            f"{text.strip()} names no lines: they count from 1, and the last is not before the first."
        )
    return Target(match["path"], first, last)


def ndcg(places: Sequence[Place], targets: Sequence[Target], *, depth: int = 10) -> float:
    """Binary-gain NDCG in [0, 1]: DCG of the found targets over the DCG of finding all at the top."""
    gained = sum(1 / math.log2(rank + 1) for rank in found_ranks(places[:depth], targets) if rank)
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(depth, len(targets)) + 1))
    return gained / ideal if ideal else 0.0


def recall(places: Sequence[Place], targets: Sequence[Target], *, depth: int = 10) -> float:
    ranks = found_ranks(places[:depth], targets)
    return sum(1 for rank in ranks if rank) / len(ranks) if ranks else 0.0


def reciprocal_rank(places: Sequence[Place], targets: Sequence[Target], *, depth: int = 10) -> float:
    ranks = [rank for rank in found_ranks(places[:depth], targets) if rank]
    return 1 / min(ranks) if ranks else 0.0


def found_ranks(places: Sequence[Place], targets: Sequence[Target]) -> list[int]:
    """For each target the 1-based rank at which it is found, 0 when it is not."""
    return [next((rank for rank, place in enumerate(places, 1) if _covers(place, target)), 0) for target in targets]


def _covers(place: Place, target: Target) -> bool:
    if not _same_file(place.path, target.path):
        return False
    if target.start_line is None or target.end_line is None:
        return True
    return place.start_line <= target.end_line and target.start_line <= place.end_line


def _same_file(a: str, b: str) -> bool:
    return a == b or a.endswith("/" + b) or b.endswith("/" + a)
