"""Repositories in the API: list, add, change, remove, re-index, and how each stands.

Who asks is in `request.auth`, a `Caller`; what it may not read is a 404, as what does not exist. The same functions
as the pages use do the work.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from django.http import Http404, HttpRequest
from ninja import Field, Query, Router, Schema, Status
from pydantic import AfterValidator

from indexing import registering
from indexing.access import Caller
from indexing.audit import record
from indexing.building import request_build
from indexing.git import allowed_source
from indexing.models import Index, Repository, SkippedFile
from indexing.paging import MAX_PAGE_SIZE, PAGE_SIZE, page
from indexing.sources import check_ref
from indexing.status import RepositoryStatus, statuses

router = Router(tags=["repositories"])


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("a text must not contain NUL characters")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]  # PostgreSQL refuses them in every text
Cursor = Annotated[str, Query(description="`next_cursor` of the page before", max_length=500)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)]


class BuildOut(Schema):
    """One build of one commit. Counts are things done and things known, never a guessed percentage."""

    id: int
    commit: str = Field(description="Empty until the ref is resolved")
    status: str = Field(description="queued, building, ready, failed, cancelled or empty")
    step: str
    files_done: int
    files_known: int
    chunks_done: int
    chunks_known: int
    seconds_left: float | None = None
    skipped: dict[str, int] = Field(description="Reason to number of files")
    warnings: list[str]
    error: str
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class StatusOut(Schema):
    state: str = Field(description="ok, busy, bad or stale")
    label: str
    latest: BuildOut | None = Field(description="The newest build")
    current: BuildOut | None = Field(description="The build that searches use")


class RepositoryOut(Schema):
    id: int
    name: str
    url: str
    ref: str = Field(description="Branch, tag or commit; empty is the default branch")
    visibility: str
    golden: bool = Field(description="Preferred in every search")
    description: str
    may_manage: bool = Field(description="Whether this token's person may change and remove it")
    created_at: datetime
    status: StatusOut


class RepositoryPage(Schema):
    items: list[RepositoryOut]
    next_cursor: str = Field(description="Empty on the last page")


class SkippedFileOut(Schema):
    path: str
    reason: str
    detail: str


class SkippedFilePage(Schema):
    items: list[SkippedFileOut]
    next_cursor: str


class RepositoryIn(Schema, extra="forbid"):
    source: str = Field(max_length=2000, description="Git URL; staff may name a path on the server")
    ref: str = Field("", max_length=255)
    visibility: Repository.Visibility = Repository.Visibility.PUBLIC
    golden: bool = Field(False, description="Staff only")


class RepositoryChange(Schema, extra="forbid"):
    """What is left out stays as it is."""

    visibility: Repository.Visibility | None = None
    description: Text | None = Field(None, max_length=10_000)
    golden: bool | None = Field(None, description="Staff only")


@router.get("", response=RepositoryPage, summary="List repositories", operation_id="list_repositories")
def list_repositories(
    request: HttpRequest,
    name: Annotated[str, Query(description="Only names that contain this", max_length=200)] = "",
    cursor: Cursor = "",
    limit: Limit = PAGE_SIZE,
) -> RepositoryPage:
    caller, name = _caller(request), name.replace("\0", "")
    readable = Repository.objects.visible_to(caller.principal).select_related("mirror").filter(name__icontains=name)
    rows, next_cursor = page(readable, cursor, limit)
    return RepositoryPage(items=[_repository_out(row, caller) for row in statuses(rows)], next_cursor=next_cursor)


@router.post(
    "",
    response={200: RepositoryOut, 201: RepositoryOut},
    summary="Add a repository and index it",
    operation_id="add_repository",
)
def add_repository(request: HttpRequest, body: RepositoryIn) -> Status[RepositoryOut]:
    """201 when it is new. A source and ref that is here already is brought up to date and answered with 200."""
    caller = _caller(request)
    repository, created = registering.register(
        allowed_source(body.source, from_staff=caller.is_staff),
        owner=caller.user,
        principal=caller.principal,
        ref=check_ref(body.ref),
        visibility=body.visibility,
        golden=body.golden and caller.is_staff,
    )
    request_build(repository, user=caller.user)
    (row,) = statuses([repository])
    return Status(201 if created else 200, _repository_out(row, caller))


@router.get("/{int:repository_id}", response=RepositoryOut, summary="Get a repository", operation_id="get_repository")
def get_repository(request: HttpRequest, repository_id: int) -> RepositoryOut:
    (row,) = statuses([_visible(request, repository_id)])
    return _repository_out(row, _caller(request))


@router.patch(
    "/{int:repository_id}", response=RepositoryOut, summary="Change a repository", operation_id="update_repository"
)
def update_repository(request: HttpRequest, repository_id: int, body: RepositoryChange) -> RepositoryOut:
    caller, repository = _caller(request), _managed(request, repository_id)
    changes = body.dict(exclude_none=True)
    if not caller.is_staff:
        changes.pop("golden", None)
    for name, value in changes.items():
        setattr(repository, name, value)
    repository.save(update_fields=list(changes))
    record(caller.user, "repository changed", repository, ", ".join(changes))
    (row,) = statuses([repository])
    return _repository_out(row, caller)


@router.delete(
    "/{int:repository_id}", response={204: None}, summary="Remove a repository", operation_id="delete_repository"
)
def delete_repository(request: HttpRequest, repository_id: int) -> Status[None]:
    """Its index goes with it; answers that cite it stay readable."""
    repository = _managed(request, repository_id)
    record(_caller(request).user, "repository removed", repository)
    registering.remove(repository)
    return Status(204, None)


@router.post(
    "/{int:repository_id}/index",
    response={202: BuildOut},
    summary="Bring a repository up to date",
    operation_id="index_repository",
)
def index_repository(request: HttpRequest, repository_id: int) -> Status[BuildOut]:
    """The active build, or a new one: asking twice builds once."""
    index = request_build(_visible(request, repository_id), user=_caller(request).user)
    return Status(202, _build_out(index))


@router.get(
    "/{int:repository_id}/status",
    response=StatusOut,
    summary="How a repository stands",
    operation_id="get_repository_status",
)
def repository_status(request: HttpRequest, repository_id: int) -> StatusOut:
    (row,) = statuses([_visible(request, repository_id)])
    return _status_out(row)


@router.get(
    "/{int:repository_id}/skipped-files",
    response=SkippedFilePage,
    summary="Files that are not indexed",
    operation_id="list_skipped_files",
)
def skipped_files(
    request: HttpRequest, repository_id: int, cursor: Cursor = "", limit: Limit = PAGE_SIZE
) -> SkippedFilePage:
    index_id = _visible(request, repository_id).current_index_id
    rows, next_cursor = page(SkippedFile.objects.filter(index_id=index_id or 0), cursor, limit)
    items = [SkippedFileOut(path=row.path, reason=row.reason, detail=row.detail) for row in rows]
    return SkippedFilePage(items=items, next_cursor=next_cursor)


def _repository_out(row: RepositoryStatus, caller: Caller) -> RepositoryOut:
    repository = row.repository
    return RepositoryOut(
        id=repository.pk,
        name=repository.name,
        url=repository.mirror.url,
        ref=repository.ref,
        visibility=repository.visibility,
        golden=repository.golden,
        description=repository.description,
        may_manage=_may_manage(caller, repository),
        created_at=repository.created_at,
        status=_status_out(row),
    )


def _status_out(row: RepositoryStatus) -> StatusOut:
    latest, current = (_build_out(index) if index else None for index in (row.latest, row.current))
    return StatusOut(state=row.dot, label=row.label, latest=latest, current=current)


def _build_out(index: Index) -> BuildOut:
    return BuildOut.model_validate(index, from_attributes=True)


def _visible(request: HttpRequest, repository_id: int) -> Repository:
    readable = Repository.objects.visible_to(_caller(request).principal).select_related("mirror", "current_index")
    repository = readable.filter(pk=repository_id).first()
    if repository is None:
        raise Http404("There is no such repository, or this token may not read it.")
    return repository


def _managed(request: HttpRequest, repository_id: int) -> Repository:
    repository = _visible(request, repository_id)
    if not _may_manage(_caller(request), repository):
        raise Http404("There is no such repository, or this token may not change it.")
    return repository


def _may_manage(caller: Caller, repository: Repository) -> bool:
    return caller.is_staff or repository.owner_id == caller.user.pk


def _caller(request: HttpRequest) -> Caller:
    caller = request.auth  # type: ignore[attr-defined]  # set by the API's authentication
    assert isinstance(caller, Caller)
    return caller
