"""How an answer came about, arranged for the trace pane: lanes of the timeline, and candidates with a bar per list.

In: a message and its reader. Out: a template context. Bars of one list share one scale; every number is printed too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse

from assistant import conversations
from assistant.exchanges import evidence_links
from assistant.models import Message
from assistant.stages import total_milliseconds
from indexing.access import Principal
from indexing.highlighting import drawn

Json = dict[str, Any]  # Any: JSON
_LABELS = {
    "plan": "Plan",
    "repositories": "Repositories",
    "embed": "Embed",
    "retrieve": "Retrieve",
    "rank": "Fuse, rescore",
    "rerank": "Re-rank",
    "read": "Read blobs",
    "summarise": "Summarise",
    "first_token": "First token",
    "write": "Write",
}
_LEGS = (
    ("Code", ("vectors.code",)),
    ("Descr.", ("vectors.descriptions",)),
    ("Terms", ("terms.code_stems", "terms.code_terms", "terms.descriptions", "terms.files")),
    ("File", ("vectors.files",)),
)


@dataclass(frozen=True, slots=True)
class Lane:
    """`start` and `width` are per cent of the whole time."""

    label: str
    start: float
    width: float
    milliseconds: float
    llm: bool
    failed: bool
    note: str


@dataclass(frozen=True, slots=True)
class Cell:
    value: float
    most: float


@dataclass(frozen=True, slots=True)
class Leg:
    label: str
    names: tuple[str, ...]
    most: float


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """`number` is the n of [n], 0 for a candidate that was not kept; `reason` says why it was dropped."""

    number: int
    name: str
    symbol: str
    file: str
    start_line: int
    end_line: int
    cells: list[Cell | None]
    reason: str


def trace_pane(message: Message, principal: Principal) -> Json:
    trace = conversations.visible_trace(message, principal)
    evidence = conversations.evidence(message, principal)
    links = [link for link in evidence_links(message, evidence) if link.href]
    common = {
        "message": message,
        "trace": trace,
        "code_url": links[0].href if links else "",
        "close_url": reverse("conversation", args=[message.conversation_id]),
    }
    return common | _arranged(trace, _numbers(evidence)) if trace else common | {"total_ms": 0}


def _arranged(trace: Json, numbers: dict[tuple[Any, ...], int]) -> Json:
    dropped = {_key(drop["hit"]): str(drop["reason"]) for drop in trace["dropped"]}
    hits = {_key(hit): hit for hit in [*trace["candidates"], *(drop["hit"] for drop in trace["dropped"])]}
    legs = _legs(list(hits.values()))
    rows = [_row(hit, numbers.get(key, 0), legs, dropped.get(key, "")) for key, hit in hits.items()]
    rows.sort(key=lambda row: (row.number == 0, row.number, bool(row.reason)))
    return {
        "candidates": rows,
        "kept_count": sum(row.number > 0 for row in rows),
        "legs": legs,
        "lanes": _lanes(trace["stages"]),
        "total_ms": total_milliseconds(trace["stages"]),
        "best_repository": max((choice["score"] for choice in trace["repositories"]), default=0),
    }


def _numbers(evidence: Sequence[Any]) -> dict[tuple[Any, ...], int]:  # Any: Evidence, and keys of coordinates
    return {
        (row.repository_id, row.display_path, row.start_byte, row.end_byte): item.number
        for item in evidence
        if (row := item.citation) is not None
    }


def _key(hit: Json) -> tuple[Any, ...]:  # Any: coordinates
    return hit["repository_id"], hit["path"], hit["start_byte"], hit["end_byte"]


def _legs(hits: Sequence[Json]) -> list[Leg]:
    """Lists that found nothing at all get no column."""
    found = [Leg(label, names, max((_best(hit, names) for hit in hits), default=0.0)) for label, names in _LEGS]
    return [leg for leg in found if leg.most > 0]


def _best(hit: Json, names: Sequence[str]) -> float:
    return max((float(hit["legs"].get(name, 0.0)) for name in names), default=0.0)


def _row(hit: Json, number: int, legs: Sequence[Leg], reason: str) -> CandidateRow:
    scores = [_best(hit, leg.names) for leg in legs]
    return CandidateRow(
        number=number,
        name=re.split(r"\.|::|#", hit["symbol"])[-1] or hit["kind"],
        symbol=hit["symbol"],
        file=drawn(str(hit["path"]).rsplit("/", 1)[-1]),
        start_line=hit["start_line"],
        end_line=hit["end_line"],
        cells=[Cell(score, leg.most) if score > 0 else None for score, leg in zip(scores, legs, strict=True)],
        reason=reason,
    )


def _lanes(stages: Sequence[Json]) -> list[Lane]:
    total = total_milliseconds(stages) or 1.0
    return [
        Lane(
            label=_LABELS.get(stage["name"], str(stage["name"])),
            start=min(99.0, round(100 * stage["started_ms"] / total, 2)),
            width=max(1.0, round(100 * stage["milliseconds"] / total, 2)),
            milliseconds=stage["milliseconds"],
            llm=stage["llm"],
            failed=stage["state"] == "failed",
            note=stage["note"],
        )
        for stage in stages
    ]
