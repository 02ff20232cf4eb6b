"""Sorted arrays of rows with repeats, such as the file of each candidate: which are equal, and the best of each.

`numpy.unique` tells the same of any array, in ten times the time; a search asks it a dozen times about few rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Groups:
    """Runs of equal keys. starts: (g,) the first position of each run; of: (p,) the run of each position."""

    starts: Rows
    of: Rows

    @classmethod
    def of_sorted(cls, keys: Rows) -> Groups:
        begins = _begins(keys)
        return cls(np.flatnonzero(begins), begins.cumsum() - 1)

    def best(self, scores: Floats) -> Rows:
        """(g,) the position of each run's best score, the first among equals."""
        if not len(self.starts):
            return self.starts
        best = np.flatnonzero(scores == np.maximum.reduceat(scores, self.starts)[self.of])
        return best[_begins(self.of[best])]


def distinct(rows: Rows) -> Rows:
    """Each once, ascending."""
    ordered = np.sort(rows)
    return ordered[_begins(ordered)]


def _begins(keys: Rows) -> npt.NDArray[np.bool_]:
    """(p,) whether the one before is another."""
    begins = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=begins[1:])
    return begins
