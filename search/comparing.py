"""Two evaluations of the same questions -> what changed, and whether that is more than chance.

Pure functions over figures per question. Intervals are paired bootstraps with a fixed seed: the same figures give the
same interval. Questions are resampled as pairs, so that hard questions do not widen the interval.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Key = tuple[str, str]  # repository, query
Interval = tuple[float, float]

RESAMPLES = 5000
SEED = 20_000
SAME_WITHIN = 0.0005  # figures are stored with four digits
SHOWN_CHANGES = 20


@dataclass(frozen=True, slots=True)
class Change:
    key: Key
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Comparison:
    """`changes` are the questions that won or lost, largest first; `interval` holds the mean difference in 95 %."""

    questions: int
    before: float
    after: float
    interval: Interval
    wins: int
    losses: int
    changes: tuple[Change, ...]

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        return {
            "questions": self.questions,
            "before": round(self.before, 4),
            "after": round(self.after, 4),
            "difference": round(self.after - self.before, 4),
            "interval_95": [round(edge, 4) for edge in self.interval],
            "wins": self.wins,
            "losses": self.losses,
            "ties": self.questions - self.wins - self.losses,
            "changes": [
                {"repository": change.key[0], "query": change.key[1], "before": change.before, "after": change.after}
                for change in self.changes[:SHOWN_CHANGES]
            ],
        }


def compare(before: Mapping[Key, float], after: Mapping[Key, float]) -> Comparison | None:
    """Over the questions that both have; None when there is none."""
    pairs = [Change(key, before[key], value) for key, value in after.items() if key in before]
    if not pairs:
        return None
    earlier, later = [pair.before for pair in pairs], [pair.after for pair in pairs]
    changed = [pair for pair in pairs if abs(pair.difference) > SAME_WITHIN]
    return Comparison(
        questions=len(pairs),
        before=float(np.mean(earlier)),
        after=float(np.mean(later)),
        interval=difference_interval(earlier, later),
        wins=sum(pair.difference > 0 for pair in changed),
        losses=sum(pair.difference < 0 for pair in changed),
        changes=tuple(sorted(changed, key=lambda pair: (-abs(pair.difference), pair.key))),
    )


def difference_interval(before: Sequence[float], after: Sequence[float]) -> Interval:
    """95 % bootstrap interval of mean(after) - mean(before); the sequences are pairs, at least one."""
    means_before, means_after = _resampled_means(before, after)
    return _middle_95(means_after - means_before)


def ratio_interval(before: Sequence[float], after: Sequence[float]) -> Interval:
    """95 % bootstrap interval of mean(after) / mean(before)."""
    means_before, means_after = _resampled_means(before, after)
    return _middle_95(means_after / np.maximum(means_before, 1e-9))


def _resampled_means(
    before: Sequence[float], after: Sequence[float]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(RESAMPLES,) each, of the same drawn questions."""
    drawn = np.random.default_rng(SEED).integers(0, len(before), size=(RESAMPLES, len(before)))
    return np.asarray(before, np.float64)[drawn].mean(axis=1), np.asarray(after, np.float64)[drawn].mean(axis=1)


def _middle_95(values: npt.NDArray[np.float64]) -> Interval:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)
