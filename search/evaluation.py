"""Runs a set of questions with known answers and reports how well search ranks.

In: a folder of `<name>.json` (query, relevant, secondary, category) and a folder with one Git repository per
name, which is indexed when its index is missing or of another commit. Out: a report as plain JSON values.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from indexing.access import Principal
from indexing.models import Repository
from search.errors import EvaluationError
from search.index_cache import opened
from search.metrics import Place, Target, ndcg, recall, reciprocal_rank
from search.pipeline import search
from search.results import Scope, Stage

DEPTH = 10


@dataclass(frozen=True, slots=True)
class Question:
    repository: str
    query: str
    targets: tuple[Target, ...]
    category: str


@dataclass(frozen=True, slots=True)
class Outcome:
    question: Question
    language: str
    ndcg: float
    recall: float
    reciprocal_rank: float
    stages: tuple[Stage, ...]
    milliseconds: float


def read_questions(annotations: Path, names: Sequence[str] = ()) -> list[Question]:
    """Questions of the named repositories, of all when none is named. Raises EvaluationError."""
    files = sorted(annotations.glob("*.json"))
    wanted = [file for file in files if not names or file.stem in names]
    missing = set(names) - {file.stem for file in wanted}
    if missing or not wanted:
        raise EvaluationError(f"{annotations} has no questions for {', '.join(sorted(missing)) or 'any repository'}.")
    return [question for file in wanted for question in _read(file)]


def _read(file: Path) -> Iterable[Question]:
    try:
        entries = json.loads(file.read_text())
        for entry in entries:
            targets = [*entry["relevant"], *entry.get("secondary", [])]
            yield Question(
                repository=file.stem,
                query=entry["query"],
                targets=tuple(_target(target) for target in targets),
                category=entry.get("category", ""),
            )
    except (ValueError, KeyError, TypeError) as error:
        raise EvaluationError(f"{file} is not a list of questions: {error!r}.") from error


def _target(target: str | dict[str, Any]) -> Target:  # Any: JSON
    if isinstance(target, str):
        return Target(target)
    return Target(target["path"], target.get("start_line"), target.get("end_line"))


def run(
    questions: Sequence[Question],
    repositories: dict[str, Repository],
    *,
    on_question: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Asks each question in its own repository, without a language model."""
    outcomes = []
    for number, question in enumerate(questions, 1):
        outcomes.append(_ask(question, repositories[question.repository]))
        if on_question is not None:
            on_question(number, len(questions))
    return outcomes


def _ask(question: Question, repository: Repository) -> Outcome:
    begun = time.perf_counter()
    result = search(
        question.query,
        principal=Principal.operator(),
        scope=Scope(repository_ids=(repository.pk,)),
        limit=DEPTH,
        use_llm=False,
    )
    milliseconds = (time.perf_counter() - begun) * 1000
    places = [Place(hit.display_path, hit.start_line, hit.end_line) for hit in result.hits]
    return Outcome(
        question=question,
        language=_main_language(repository),
        ndcg=ndcg(places, question.targets, depth=DEPTH),
        recall=recall(places, question.targets, depth=DEPTH),
        reciprocal_rank=reciprocal_rank(places, question.targets, depth=DEPTH),
        stages=result.trace.stages,
        milliseconds=milliseconds,
    )


def _main_language(repository: Repository) -> str:
    languages = opened(repository.index_path).manifest.profile.languages
    return max(languages, key=lambda name: (languages[name], name)) if languages else ""


def report(outcomes: Sequence[Outcome]) -> dict[str, Any]:  # Any: JSON
    """Means over queries, overall and per repository, category and language; milliseconds per stage."""
    return {
        "overall": _summary(outcomes),
        "per_repository": _grouped(outcomes, lambda outcome: outcome.question.repository),
        "per_category": _grouped(outcomes, lambda outcome: outcome.question.category),
        "per_language": _grouped(outcomes, lambda outcome: outcome.language),
        "latency_ms": _latencies(outcomes),
    }


def per_query(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:  # Any: JSON
    return [
        {
            "repository": outcome.question.repository,
            "query": outcome.question.query,
            "category": outcome.question.category,
            "ndcg_at_10": round(outcome.ndcg, 4),
        }
        for outcome in outcomes
    ]


def _summary(outcomes: Sequence[Outcome]) -> dict[str, float | int]:
    return {
        "ndcg_at_10": round(fmean(outcome.ndcg for outcome in outcomes), 4),
        "recall_at_10": round(fmean(outcome.recall for outcome in outcomes), 4),
        "mrr_at_10": round(fmean(outcome.reciprocal_rank for outcome in outcomes), 4),
        "queries": len(outcomes),
    }


def _grouped(outcomes: Sequence[Outcome], key: Callable[[Outcome], str]) -> dict[str, dict[str, float | int]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[key(outcome)].append(outcome)
    return {name: _summary(members) for name, members in sorted(groups.items())}


def _latencies(outcomes: Sequence[Outcome]) -> dict[str, dict[str, float]]:
    times: dict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        times["total"].append(outcome.milliseconds)
        for stage in outcome.stages:
            times[stage.name].append(stage.milliseconds)
    return {
        name: {"p50": round(float(np.percentile(values, 50)), 2), "p95": round(float(np.percentile(values, 95)), 2)}
        for name, values in times.items()
    }
