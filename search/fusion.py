"""Lists of scores on different scales -> one score.

Each list is min-max scaled over its best `depth` entries: its best entry gets 1, the entry at `depth` and all
below get 0. Unlike reciprocal ranks this keeps how far a list's favourite is ahead of the rest, which is
the list's own statement of confidence (a rare name found in one chunk against 50 chunks about "request").
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def scale(scores: Floats, *, depth: int) -> Floats:
    """(n,) any range -> (n,) float32 in [0, 1]. Input order does not matter. Scores <= 0 mean "not found"."""
    scaled = np.zeros(len(scores), np.float32)
    positive = scores[scores > 0]
    if not positive.size:
        return scaled
    best = float(positive.max())
    floor = float(np.partition(positive, -depth)[-depth]) if positive.size > depth else 0.0
    if best <= floor:
        scaled[scores >= best] = 1
        return scaled
    np.clip((scores - floor) / np.float32(best - floor), 0, 1, out=scaled)
    return scaled


def top(scores: Floats, k: int) -> npt.NDArray[np.int64]:
    """Rows of the k best positive scores, best first, ties by lower row."""
    rows = np.flatnonzero(scores > 0)
    if rows.size > k:
        edge = np.partition(scores[rows], -k)[-k]
        rows = rows[scores[rows] >= edge]
    return rows[np.lexsort((rows, -scores[rows]))][:k]
