"""Plans written in advance -> how well each of the three queries ranks without asking a language model.

In: a file with a list of plans, each for one question of the annotations (repo, query_index, english_query,
origin_language_query, hypothetical_document). Out: figures per combination of queries, each beside the English query
alone over the same questions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from search.comparing import Key, ratio_interval
from search.errors import EvaluationError
from search.evaluation import Question
from search.planning import basic_plan
from search.questions import question_class
from search.results import QueryPlan

# For questions of a public benchmark, in four languages; docs/evaluation.md says which.
OWN_PLANS = Path(__file__).parent / "evaluation_data" / "plans.json"


@dataclass(frozen=True, slots=True)
class GivenPlan:
    """The question has the words it was asked in, so that one question may be given in several languages."""

    question: Question
    plan: QueryPlan

    @property
    def translated(self) -> bool:
        """Whether the question was asked in a language other than English."""
        return self.plan.origin_language_query not in ("", self.plan.english_query)


def read_plans(file: Path, questions: Sequence[Question]) -> list[GivenPlan]:
    """Plans for questions of the given repositories; others in the file are left out. Raises EvaluationError."""
    by_repository: dict[str, list[Question]] = {}
    for question in questions:
        by_repository.setdefault(question.repository, []).append(question)
    try:
        entries = json.loads(file.read_text())
        plans = [
            _given(by_repository[entry["repo"]][entry["query_index"]], entry)
            for entry in entries
            if entry["repo"] in by_repository
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise EvaluationError(f"{file} is not a list of plans for these questions: {error!r}.") from error
    if not plans:
        raise EvaluationError(f"{file} has no plan for a question of these repositories.")
    return plans


def _given(question: Question, entry: Mapping[str, str]) -> GivenPlan:
    original = entry.get("origin_language_query", "")
    plan = QueryPlan(
        english_query=entry["english_query"],
        origin_language_query=original,
        hypothetical_document=entry.get("hypothetical_document", ""),
        question_class=question_class(entry["english_query"]),
        source="given",
    )
    return GivenPlan(replace(question, query=original or question.query), plan)


def combinations(given: Sequence[GivenPlan]) -> dict[str, dict[Question, QueryPlan]]:
    """Name -> question -> plan. Those with the original query hold only questions not asked in English.

    "original" is what the product makes of such a question without a model.
    """
    return {
        "english": {
            one.question: replace(one.plan, origin_language_query="", hypothetical_document="") for one in given
        },
        "english+hypothetical": {one.question: replace(one.plan, origin_language_query="") for one in given},
        "original": {one.question: basic_plan(one.plan.origin_language_query) for one in given if one.translated},
        "original+hypothetical": {
            one.question: replace(
                basic_plan(one.plan.origin_language_query), hypothetical_document=one.plan.hypothetical_document
            )
            for one in given
            if one.translated
        },
        "all": {one.question: one.plan for one in given},
        "all, not asked in English": {one.question: one.plan for one in given if one.translated},
    }


def plans_report(figures: Mapping[str, Mapping[Key, float]]) -> dict[str, dict[str, Any]]:  # Any: JSON
    """Combination -> NDCG@10, number of questions, and the ratio to English alone with its 95 % interval."""
    english = figures["english"]
    return {name: _row(english, own) for name, own in figures.items() if own}


def _row(english: Mapping[Key, float], own: Mapping[Key, float]) -> dict[str, Any]:  # Any: JSON
    before, after = [english[key] for key in own], list(own.values())
    return {
        "ndcg_at_10": round(fmean(after), 4),
        "queries": len(after),
        "english_ndcg_at_10": round(fmean(before), 4),
        "ratio_to_english": round(fmean(after) / max(fmean(before), 1e-9), 4),
        "ratio_interval_95": [round(edge, 4) for edge in ratio_interval(before, after)],
    }
