"""Runs a set of questions with known answers and reports how well search ranks.

In: questions, read from a folder of `<name>.json` (query, relevant, secondary, category), and the indexed repository
of each name. Each is asked in its own repository or, pooled, without saying which; always without a language model.
Out: a report as plain JSON values.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from django.conf import settings

from indexing.access import Principal
from indexing.errors import GitError
from indexing.git_process import git
from indexing.models import Repository
from search import models
from search.comparing import Key
from search.errors import EvaluationError
from search.index_cache import opened
from search.metrics import Place, Target, found_ranks, ndcg, recall, reciprocal_rank
from search.pipeline import search
from search.reranking import blend
from search.results import Hit, QueryPlan, Scope, SearchOptions, Stage
from search.scripted_judges import judged

DEPTH = 10
CANDIDATES = 50  # as many as a judge could be shown: what is not among them, nobody can rank first


@dataclass(frozen=True, slots=True)
class Question:
    repository: str
    query: str
    targets: tuple[Target, ...]
    category: str

    @property
    def names_repository(self) -> bool:
        """Whether the text says which repository it is about: then choosing it is no achievement."""
        return self.repository.rsplit("/", 1)[-1].lower() in self.query.lower()


@dataclass(frozen=True, slots=True)
class Way:
    """How questions are asked. `pool`: ids searched together; empty: each question in its own repository.

    `judge`: one of JUDGES re-ranks the candidates as a language model would; empty: nobody does.
    """

    options: SearchOptions = SearchOptions()  # frozen
    pool: frozenset[int] = frozenset()
    plans: Mapping[Question, QueryPlan] = field(default_factory=dict)
    judge: str = ""

    def with_plans(self, plans: Mapping[Question, QueryPlan]) -> Way:
        return replace(self, plans=plans)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`choice_rank`: the place of the right repository among those chosen, from 1; 0 when it was not chosen."""

    question: Question
    language: str
    ndcg: float
    recall: float
    reciprocal_rank: float
    candidate_recall: float
    choice_rank: int
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


def stored_questions(name: str) -> list[Question]:
    """Questions of a set from the admin, under the full names of their repositories. Raises EvaluationError."""
    rows = models.Question.objects.filter(question_set__name=name).select_related("repository")
    questions = [Question(row.repository.name, row.query, row.targets, "") for row in rows]
    if not questions:
        known = ", ".join(models.QuestionSet.objects.values_list("name", flat=True)[:20]) or "none yet"
        raise EvaluationError(f"There is no question set {name} with questions. There are: {known}.")
    return questions


def _target(target: str | dict[str, Any]) -> Target:  # Any: JSON
    if isinstance(target, str):
        return Target(target)
    return Target(target["path"], target.get("start_line"), target.get("end_line"))


def run(
    questions: Sequence[Question],
    repositories: Mapping[str, Repository],
    *,
    way: Way = Way(),  # noqa: B008  frozen
    on_question: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """Asks each question, without a language model."""
    outcomes = []
    for number, question in enumerate(questions, 1):
        outcomes.append(_ask(question, repositories[question.repository], way))
        if on_question is not None:
            on_question(number, len(questions))
    return outcomes


def _ask(question: Question, repository: Repository, way: Way) -> Outcome:
    begun = time.perf_counter()
    result = search(
        question.query,
        principal=replace(Principal.operator(), repository_ids=way.pool or None),
        scope=Scope() if way.pool else Scope(repository_ids=(repository.pk,)),
        plan=way.plans.get(question),
        limit=CANDIDATES,
        use_llm=False,
        options=way.options,
    )
    milliseconds = (time.perf_counter() - begun) * 1000
    candidates = [_place(hit, repository) for hit in result.hits]
    places = _reranked(question, result.hits, candidates, way.judge) if way.judge else candidates
    chosen = [choice.repository_id for choice in result.trace.repositories]
    return Outcome(
        question=question,
        language=_main_language(repository),
        ndcg=ndcg(places, question.targets, depth=DEPTH),
        recall=recall(places, question.targets, depth=DEPTH),
        reciprocal_rank=reciprocal_rank(places, question.targets, depth=DEPTH),
        candidate_recall=recall(candidates, question.targets, depth=CANDIDATES),
        choice_rank=chosen.index(repository.pk) + 1 if repository.pk in chosen else 0,
        stages=result.trace.stages,
        milliseconds=milliseconds,
    )


def _place(hit: Hit, repository: Repository) -> Place:
    """A hit in another repository takes a rank and answers nothing, whatever its path is."""
    if hit.repository_id != repository.pk:
        return Place("", 0, 0)
    return Place(hit.display_path, hit.start_line, hit.end_line)


def _reranked(question: Question, hits: Sequence[Hit], candidates: Sequence[Place], judge: str) -> list[Place]:
    shown = candidates[: settings.RERANK_CANDIDATES]
    grades = judged(judge, [any(found_ranks([place], question.targets)) for place in shown], question=question.query)
    verdict = blend([hit.score for hit in hits[: len(shown)]], grades, trust=settings.RERANK_TRUST)
    return [shown[position] for position in verdict.order]


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


def pooled(outcomes: Sequence[Outcome]) -> dict[str, Any]:  # Any: JSON
    """How often the right repository was chosen, over all questions and over those that do not name it."""
    groups = {"all": outcomes, "not_naming": [one for one in outcomes if not one.question.names_repository]}
    return {name: _choices(members) for name, members in groups.items() if members}


def _choices(outcomes: Sequence[Outcome]) -> dict[str, float | int]:
    among = {most: fmean(0 < outcome.choice_rank <= most for outcome in outcomes) for most in (1, 5, 10)}
    return {f"right_among_{most}": round(share, 4) for most, share in among.items()} | _summary(outcomes)


def figures(outcomes: Sequence[Outcome]) -> dict[Key, float]:
    return {(outcome.question.repository, outcome.question.query): outcome.ndcg for outcome in outcomes}


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


def own_commit() -> str:
    """The commit of this project that is measured; empty where it runs without its history."""
    try:
        return git(Path(settings.BASE_DIR) / ".git", "rev-parse", "HEAD").stdout.decode().strip()
    except GitError:
        return ""


def _summary(outcomes: Sequence[Outcome]) -> dict[str, float | int]:
    return {
        "ndcg_at_10": round(fmean(outcome.ndcg for outcome in outcomes), 4),
        "recall_at_10": round(fmean(outcome.recall for outcome in outcomes), 4),
        "mrr_at_10": round(fmean(outcome.reciprocal_rank for outcome in outcomes), 4),
        "candidate_recall_at_50": round(fmean(outcome.candidate_recall for outcome in outcomes), 4),
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
