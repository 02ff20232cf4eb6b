"""The vocabulary of search: what goes in (QueryPlan, Scope) and what comes out (Hit, Trace, SearchResult).

Frozen values only; nothing here reads an index or a database. Higher scores are better everywhere.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """The three-query DSL. Empty `origin_language_query` means the question was English already."""

    english_query: str
    origin_language_query: str = ""
    hypothetical_document: str = ""
    question_class: str = "behaviour"  # symbol, behaviour, architecture, how-to, fix
    source: str = "basic"  # "basic": made without a model; "llm"
    notice: str = ""  # why the basic plan was used, for people; empty when nothing to say


@dataclass(frozen=True, slots=True)
class ScopedSet:
    """A golden set that the person named, and those of its repositories that they could read then."""

    name: str
    repository_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """What the person narrowed the question to. `path` steers ranking; `path_filter` excludes everything else.

    `repository_ids` holds the members of `sets` too.
    """

    repository_ids: tuple[int, ...] = ()
    path: str = ""
    path_filter: str = ""
    languages: tuple[str, ...] = ()
    sets: tuple[ScopedSet, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What an evaluation switches in the search; the product always takes the defaults."""

    vectors: bool = True  # False: by words only, as before anything is embedded
    golden: frozenset[int] | None = None  # ids of the repositories that count as golden; None: as they are marked
    repositories: int = 0  # at most so many are chosen; 0: SEARCH_REPOSITORIES


@dataclass(frozen=True, slots=True)
class Hit:
    """One ranked place in the code: coordinates at a commit, and why it is here."""

    repository_id: int
    repository: str
    commit: str
    path: bytes
    blob_id: str
    encoding: str
    language: str
    kind: str
    symbol: str
    start_byte: int  # 0-based, end-exclusive, in the original blob
    end_byte: int
    start_line: int  # 1-based, inclusive
    end_line: int
    score: float
    legs: dict[str, float] = field(default_factory=dict)  # list name -> that list's own score
    cosine: float | None = None  # best float16 cosine over the queries; None without vectors
    description: str = ""
    copies: int = 1

    @property
    def display_path(self) -> str:
        return self.path.decode("utf-8", "backslashreplace")

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        data = asdict(self)
        data["path"] = self.display_path
        return data


@dataclass(frozen=True, slots=True)
class Dropped:
    hit: Hit
    reason: str


@dataclass(frozen=True, slots=True)
class RepositoryChoice:
    repository_id: int
    name: str
    golden: bool
    pinned: bool
    score: float
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """Time spent in one step. `state` is done, or failed when a fallback was taken (then `note` says why)."""

    name: str  # plan, repositories, embed, retrieve, rank, rerank, read, first_token, write
    milliseconds: float
    started_ms: float = 0.0
    llm: bool = False
    state: str = "done"
    note: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    plan: QueryPlan
    repositories: tuple[RepositoryChoice, ...]
    readable_repositories: int  # how many this person may read and are searchable
    candidates: tuple[Hit, ...]
    dropped: tuple[Dropped, ...]
    stages: tuple[Stage, ...]
    notices: tuple[str, ...] = ()  # sentences for people: fallbacks, partial indexes

    def to_json(self) -> dict[str, Any]:  # Any: JSON
        return {
            "plan": asdict(self.plan),
            "repositories": [asdict(choice) for choice in self.repositories],
            "readable_repositories": self.readable_repositories,
            "candidates": [hit.to_json() for hit in self.candidates],
            "dropped": [{"hit": drop.hit.to_json(), "reason": drop.reason} for drop in self.dropped],
            "stages": [asdict(stage) for stage in self.stages],
            "notices": list(self.notices),
        }


@dataclass(frozen=True, slots=True)
class SearchResult:
    hits: tuple[Hit, ...]
    trace: Trace
