"""First questions that the indexed code can answer: made from its largest public definitions, no model needed.

In: repositories the person may read. Out: a few questions with the place they are about. Nothing is suggested for
code that is not indexed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from indexing.errors import IndexFormatError
from indexing.highlighting import drawn
from indexing.index_format import DefinitionRecord, Segment
from indexing.models import Repository
from search.index_cache import opened

SUGGESTIONS = 4
_CONSIDERED = 60  # definitions a segment, largest first
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{3,40}")
_ASIDE = re.compile(
    rb"(^|[/_.-])(tests?|specs?|docs?|examples?|bench\w*|vendor|node_modules|migrations|fixtures)([/_.-]|$)", re.I
)
_WORDING = {
    "class": "What is {name} responsible for?",
    "interface": "What is {name} for, and what implements it?",
    "trait": "What is {name} for, and what implements it?",
    "struct": "What does {name} hold, and who uses it?",
    "enum": "What are the cases of {name}, and where do they matter?",
    "function": "How does {name} work?",
    "method": "How does {name} work?",
}


@dataclass(frozen=True, slots=True)
class Suggestion:
    text: str
    scope: str
    place: str


def suggestions(repositories: Sequence[Repository]) -> list[Suggestion]:
    """At most `SUGGESTIONS`, taken in turn from the repositories given."""
    lists = [list(_of_index(row.index_path, row.current_index_id or 0, row.name)) for row in repositories[:SUGGESTIONS]]
    in_turn = [found[place] for place in range(SUGGESTIONS) for found in lists if place < len(found)]
    return in_turn[:SUGGESTIONS]


@lru_cache(maxsize=256)
def _of_index(directory: Path, index_id: int, name: str) -> tuple[Suggestion, ...]:
    """Kept for as long as the same build is current."""
    try:
        segments = opened(directory).segments
    except IndexFormatError:
        return ()
    largest = max(segments, key=len, default=None)
    return tuple(_in_segment(largest, name)) if largest is not None else ()


def _in_segment(segment: Segment, name: str) -> Iterator[Suggestion]:
    """One definition a file, so that the questions lead to different places."""
    rows = segment.definitions
    size = rows["end_line"].astype(np.int64) - rows["start_line"]
    seen: set[bytes] = set()
    for row in np.argsort(-size, kind="stable")[:_CONSIDERED]:
        definition = segment.definition(int(row))
        if segment.live_chunks is not None and not segment.live_chunks[definition.chunk]:
            continue
        path = segment.chunk(definition.chunk).path
        if path in seen or _ASIDE.search(path) or not _is_worth_asking(definition):
            continue
        seen.add(path)
        text = _WORDING[definition.kind].format(name=definition.name)
        yield Suggestion(text, f"@{name}", drawn(path.decode("utf-8", "backslashreplace")))
        if len(seen) == SUGGESTIONS:
            return


def _is_worth_asking(definition: DefinitionRecord) -> bool:
    return definition.kind in _WORDING and bool(_NAME.fullmatch(definition.name)) and definition.parent < 0
