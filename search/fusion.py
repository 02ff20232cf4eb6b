"""Lists of scores on different scales -> one score.

Each list is min-max scaled over its best `depth` entries: its best entry gets 1, the entry at `depth` and all
below get 0. Unlike reciprocal ranks this keeps how far a list's favourite is ahead of the rest, which is
the list's own statement of confidence (a rare name found in one chunk against 50 chunks about "request").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_GROUP = 32


def scale(scores: Floats, *, depth: int) -> Floats:
    """(n,) any range -> (n,) float32 in [0, 1]. Input order does not matter. Scores <= 0 mean "not found"."""
    ordered = np.sort(scores)
    best = float(ordered[-1]) if len(scores) else 0.0
    if best <= 0:
        return np.zeros(len(scores), np.float32)
    floor = float(ordered[-depth]) if len(scores) > depth and ordered[-depth - 1] > 0 else 0.0
    if best <= floor:
        return (scores >= best).astype(np.float32)
    scaled = scores - np.float32(floor)
    scaled /= np.float32(best - floor)
    np.maximum(scaled, 0, out=scaled)
    return scaled


def top(scores: Floats, k: int) -> npt.NDArray[np.int64]:
    """Rows of the k best positive scores, best first, ties by lower row."""
    floor = _floor_of_best(scores, k)
    rows = np.flatnonzero(scores >= floor if floor > 0 else scores > 0)
    found = scores[rows]
    if rows.size > k:
        near = found >= np.partition(found, -k)[-k]
        rows, found = rows[near], found[near]
    return rows[np.lexsort((rows, -found))][:k]


def _floor_of_best(scores: Floats, k: int) -> float:
    """A number that the k-th best score reaches; 0 where nothing is gained by asking.

    Each of many groups has its best; the k-th best of these is no more than the k-th best of all. Finding it takes a
    seventh of the time that sorting out all scores does, because what is left are few more than k.
    """
    columns = len(scores) // _GROUP
    if columns < 2 * k:
        return 0.0
    best_of_groups = scores[: columns * _GROUP].reshape(_GROUP, columns).max(axis=0)
    return float(np.partition(best_of_groups, -k)[-k])
