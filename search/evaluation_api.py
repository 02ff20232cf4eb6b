"""Evaluation runs in the API: what was measured, and measuring a question set anew. For staff, with the scope `admin`.

Figures of repositories that the caller may not read are left out of a run, and so are their questions. A run is made
while the caller waits, so only sets of a size that takes seconds; larger ones are for `manage.py evaluate`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest
from ninja import Field, Router, Schema, Status

from indexing.access import Caller, Principal
from indexing.api import Cursor, Limit, Text
from indexing.models import Repository
from indexing.paging import PAGE_SIZE, page
from search.errors import EvaluationError
from search.evaluation import own_commit, per_query, report, run, stored_questions
from search.models import EvaluationRun, as_read_by

router = Router(tags=["evaluation"])
MAX_QUESTIONS = 100  # each takes about a tenth of a second


class RunOut(Schema):
    """Figures are means over questions; a higher one is better."""

    id: int
    created_at: datetime
    commit: str = Field(description="Of this program; empty when it is not known")
    options: dict[str, Any]  # Any: JSON
    ndcg_at_10: float
    queries: int


class RunPage(Schema):
    items: list[RunOut]
    next_cursor: str = Field(description="Empty on the last page")


class RunDetail(RunOut):
    per_repository: dict[str, dict[str, Any]]  # Any: JSON
    per_query: list[dict[str, Any]]  # Any: JSON
    latency_ms: dict[str, dict[str, float]]


class RunIn(Schema, extra="forbid"):
    set: Text = Field(max_length=100, description="A question set from the admin")


@router.get("", response=RunPage, summary="List evaluation runs", operation_id="list_evaluation_runs")
def list_runs(request: HttpRequest, cursor: Cursor = "", limit: Limit = PAGE_SIZE) -> RunPage:
    """Newest first; of each run the figures of repositories that may be read, so a page may hold fewer than `limit`."""
    caller = _staff(request)
    rows, next_cursor = page(EvaluationRun.objects.with_figures(), cursor, limit, newest_first=True)
    readable = as_read_by(rows, caller.principal)
    items = [RunOut.model_validate(row, from_attributes=True) for row in readable]
    return RunPage(items=items, next_cursor=next_cursor)


@router.post("", response={201: RunDetail}, summary="Measure a question set", operation_id="start_evaluation_run")
def start_run(request: HttpRequest, body: RunIn) -> Status[RunDetail]:
    caller = _staff(request)
    questions = stored_questions(body.set)
    if len(questions) > MAX_QUESTIONS:
        raise EvaluationError(
            f"The set {body.set} has {len(questions)} questions; more than {MAX_QUESTIONS} are measured by "
            f"`manage.py evaluate --set {body.set}`."
        )
    names = {question.repository for question in questions}
    readable = Repository.objects.visible_to(caller.principal).searchable().filter(name__in=names)
    repositories = {repository.name: repository for repository in readable}
    if names - set(repositories):
        raise EvaluationError("A repository of this set is not indexed yet, or this token may not read it.")
    outcomes = run(questions, repositories)
    document = report(outcomes)
    row = EvaluationRun.objects.create(
        commit=own_commit(),
        options={"set": body.set},
        ndcg_at_10=document["overall"]["ndcg_at_10"],
        queries=document["overall"]["queries"],
        report={**document, "per_query": per_query(outcomes)},
    )
    return Status(201, _detail(row.pk, caller.principal))


@router.get("/{int:run_id}", response=RunDetail, summary="Get an evaluation run", operation_id="get_evaluation_run")
def get_run(request: HttpRequest, run_id: int) -> RunDetail:
    caller = _staff(request)
    return _detail(run_id, caller.principal)


def _detail(run_id: int, principal: Principal) -> RunDetail:
    found = as_read_by(EvaluationRun.objects.with_figures().filter(pk=run_id), principal)
    if not found:
        raise Http404("There is no such evaluation run.")
    (row,) = found
    stored = row.report
    names = set(stored.get("per_repository", {}))
    readable = set(Repository.objects.visible_to(principal).filter(name__in=names).values_list("name", flat=True))
    plain = RunOut.model_validate(row, from_attributes=True)
    return RunDetail(
        **plain.dict(),
        per_repository={
            name: figures for name, figures in stored.get("per_repository", {}).items() if name in readable
        },
        per_query=[question for question in stored.get("per_query", []) if question.get("repository") in readable],
        latency_ms=stored.get("latency_ms", {}),
    )


def _staff(request: HttpRequest) -> Caller:
    caller = request.auth  # type: ignore[attr-defined]  # set by the API's authentication
    assert isinstance(caller, Caller)
    if not caller.is_staff:
        raise Http404("There is nothing at this address for this token: it needs `read` and `admin` of a staff member.")
    return caller
