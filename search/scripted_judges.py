"""Known answers -> the grades that a judge of a given quality would give, so that re-ranking is measured without one.

The same question and candidates always get the same grades.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence

from search.reranking import TOP_GRADE

FLIPPED = 0.2  # share of a noisy judge's grades that are the opposite of the truth
MISSING = 0.1  # share of the passages that it forgets

Grades = dict[int, float]  # position -> 0 to 3, best first as a model is asked to reply


def _perfect(relevant: Sequence[bool], chance: random.Random) -> Grades:
    return {position: TOP_GRADE * is_relevant for position, is_relevant in enumerate(relevant)}


def _noisy(relevant: Sequence[bool], chance: random.Random) -> Grades:
    return {
        position: TOP_GRADE * (is_relevant != (chance.random() < FLIPPED))
        for position, is_relevant in enumerate(relevant)
        if chance.random() >= MISSING
    }


def _random(relevant: Sequence[bool], chance: random.Random) -> Grades:
    return {position: float(chance.randrange(4)) for position in range(len(relevant))}


def _drop_all(relevant: Sequence[bool], chance: random.Random) -> Grades:
    return dict.fromkeys(range(len(relevant)), 0.0)


_JUDGES: dict[str, Callable[[Sequence[bool], random.Random], Grades]] = {
    "perfect": _perfect,
    "noisy": _noisy,
    "random": _random,
    "drop-all": _drop_all,
}
JUDGES = tuple(_JUDGES)


def judged(judge: str, relevant: Sequence[bool], *, question: str) -> Grades:
    """`relevant`: for each candidate in search order whether it answers the question. KeyError for no judge."""
    grades = _JUDGES[judge](relevant, random.Random(zlib.crc32(question.encode())))  # noqa: S311  not for secrets
    return dict(sorted(grades.items(), key=lambda entry: (-entry[1], entry[0])))
