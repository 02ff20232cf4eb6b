"""Repositories in the API: list, add, change, remove, re-index, and how each stands.

Who asks is in `request.auth`, a `Caller`; what it may not read is a 404, as what does not exist. The same functions
as the pages use do the work.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from django.contrib.auth.models import Group
from django.http import Http404, HttpRequest
from ninja import Field, Query, Router, Schema, Status
from pydantic import AfterValidator

from indexing import registering
from indexing.access import Caller
from indexing.audit import record
from indexing.building import request_build
from indexing.credentials import Secret, key_secret, token_secret
from indexing.errors import InvalidLogin, InvalidSource
from indexing.forms import MAX_FILE_MEGABYTES, choosable_groups, people_named
from indexing.git import allowed_source
from indexing.models import Credential, Index, Repository, SkippedFile
from indexing.paging import MAX_PAGE_SIZE, PAGE_SIZE, page
from indexing.previewing import fetch_mirror, preview_files
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
FileBytes = Annotated[int, Field(ge=1, le=MAX_FILE_MEGABYTES * 1_000_000)]
FILE_RULES = "Patterns as in .gitignore, one a line: left out; with `!` indexed whatever else speaks against it"


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
    bytes_per_chunk: int | None = Field(None, description="What a chunk takes in the index files")
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


class LoginOut(Schema):
    """What is known of the login; its secret is not readable."""

    kind: str = Field(description="token, key or site")
    username: str
    fingerprint: str = Field(description="Of an SSH key; empty for a token")
    created_at: datetime


class ReadersOut(Schema):
    people: list[str] = Field(description="User names")
    groups: list[str]


class RepositoryOut(Schema):
    id: int
    name: str
    url: str
    ref: str = Field(description="Branch, tag or commit; empty is the default branch")
    visibility: str
    golden: bool = Field(description="Preferred in every search")
    description: str
    may_manage: bool = Field(description="Whether this token's person may change and remove it")
    readers: ReadersOut | None = Field(None, description="Besides the owner; only for who may manage it")
    login: LoginOut | None = Field(None, description="Only for who may manage it")
    file_rules: str | None = Field(None, description=f"{FILE_RULES}. Only for who may manage it")
    max_file_bytes: int | None = Field(None, description="Larger files are skipped; null is the server's limit")
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


class PreviewOut(Schema):
    """What an index would hold. Lists hold at most 1,000 files each."""

    commit: str
    files: int = Field(description="That would be indexed")
    bytes: int
    unread: int = Field(description="Of these, how many were judged by name and size alone")
    languages: dict[str, int]
    skipped: dict[str, int] = Field(description="Reason to number of files")
    indexed_paths: list[str]
    skipped_files: list[SkippedFileOut]


class LoginIn(Schema, extra="forbid"):
    """A token or an SSH key of a private repository. Kept encrypted, never given out again."""

    token: str = Field("", max_length=4000)
    user: str = Field("", max_length=100, description="For deploy tokens that have a name; else left out")
    ssh_key: str = Field("", max_length=20_000, description="A private key without a passphrase")


class RepositoryIn(Schema, extra="forbid"):
    source: str = Field(max_length=2000, description="Git URL; staff may name a path on the server")
    ref: str = Field("", max_length=255)
    visibility: Repository.Visibility | None = Field(
        None, description="When left out: private with a login, else public"
    )
    golden: bool = Field(False, description="Staff only")
    login: LoginIn | None = None
    file_rules: Text = Field("", max_length=20_000, description=FILE_RULES)
    max_file_bytes: FileBytes | None = Field(None, description="Larger files are skipped; the server's limit without")
    index: bool = Field(True, description="False: add it only, to look at a preview first")


class RepositoryChange(Schema, extra="forbid"):
    """What is left out stays as it is."""

    visibility: Repository.Visibility | None = None
    description: Text | None = Field(None, max_length=10_000)
    golden: bool | None = Field(None, description="Staff only")
    people: list[Text] | None = Field(None, max_length=1000, description="User names of all who read it")
    groups: list[Text] | None = Field(None, max_length=1000, description="Names; staff choose any, others their own")
    login: LoginIn | None = Field(None, description="Replaces the present one; `{}` removes it")
    file_rules: Text | None = Field(None, max_length=20_000, description=FILE_RULES)
    max_file_bytes: Annotated[int, Field(ge=0, le=MAX_FILE_MEGABYTES * 1_000_000)] | None = Field(
        None, description="Larger files are skipped; 0 is the server's limit"
    )


@router.get("", response=RepositoryPage, summary="List repositories", operation_id="list_repositories")
def list_repositories(
    request: HttpRequest,
    name: Annotated[str, Query(description="Only names that contain this", max_length=200)] = "",
    cursor: Cursor = "",
    limit: Limit = PAGE_SIZE,
) -> RepositoryPage:
    caller, name = _caller(request), name.replace("\0", "")
    readable = (
        Repository.objects.visible_to(caller.principal)
        .filter(name__icontains=name)
        .select_related("mirror__credential")
        .prefetch_related("members", "groups")
    )
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
    secret = _secret(body.login)
    repository, created = registering.register(
        allowed_source(body.source, from_staff=caller.is_staff, secret=secret),
        owner=caller.user,
        principal=caller.principal,
        ref=check_ref(body.ref),
        visibility=body.visibility or "",
        golden=body.golden and caller.is_staff,
        secret=secret,
    )
    record(caller.user, "repository added" if created else "repository asked for again", repository)
    if created:
        registering.set_file_choice(repository, rules=body.file_rules, max_file_bytes=body.max_file_bytes)
    if body.index:
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
    caller, repository = _caller(request), managed(request, repository_id)
    people = people_named(body.people) if body.people is not None else None
    groups = _groups(caller, body.groups) if body.groups is not None else None
    if body.login is not None:
        registering.set_login(repository, _secret(body.login))
        record(caller.user, "login changed", repository)
        request_build(repository, user=caller.user)
    fields = {"description", "golden"} if caller.is_staff else {"description"}
    changes = body.dict(exclude_none=True, include=fields)
    for name, value in changes.items():
        setattr(repository, name, value)
    repository.save(update_fields=list(changes))
    readers = registering.set_readers(
        repository,
        visibility=body.visibility,
        people=people,
        groups=groups,
        choosable=choosable_groups(caller.user),
    )
    if body.file_rules is not None or body.max_file_bytes is not None:
        _choose_files(caller, repository, body)
    if changes:
        record(caller.user, "repository changed", repository, ", ".join(changes))
    if readers:
        record(caller.user, "readers changed", repository, readers)
    (row,) = statuses([repository])
    return _repository_out(row, caller)


def _choose_files(caller: Caller, repository: Repository, body: RepositoryChange) -> None:
    limit = repository.max_file_bytes if body.max_file_bytes is None else body.max_file_bytes or None
    rules = repository.file_rules if body.file_rules is None else body.file_rules
    if changed := registering.set_file_choice(repository, rules=rules, max_file_bytes=limit):
        record(caller.user, "files chosen", repository, changed)
        request_build(repository, user=caller.user)


@router.delete(
    "/{int:repository_id}", response={204: None}, summary="Remove a repository", operation_id="delete_repository"
)
def delete_repository(request: HttpRequest, repository_id: int) -> Status[None]:
    """Its index goes with it; answers that cite it stay readable."""
    repository = managed(request, repository_id)
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
    index = _visible(request, repository_id).current_index
    rows, next_cursor = page(index.skip_list if index else SkippedFile.objects.none(), cursor, limit)
    items = [SkippedFileOut(path=row.path, reason=row.reason, detail=row.detail) for row in rows]
    return SkippedFilePage(items=items, next_cursor=next_cursor)


@router.get(
    "/{int:repository_id}/preview",
    response=PreviewOut,
    summary="Files that would be indexed",
    operation_id="preview_files",
)
def preview(request: HttpRequest, repository_id: int) -> PreviewOut:
    """As the saved rules say, at the newest commit that was fetched; fetches when nothing was yet."""
    repository = managed(request, repository_id)
    fetch_mirror(repository)
    found = preview_files(repository, rules=repository.file_rules, max_file_bytes=repository.max_file_bytes)
    return PreviewOut.model_validate(found.as_json())


def _secret(login: LoginIn | None) -> Secret | None:
    """None for an empty login. Raises InvalidLogin."""
    if login is None or not (login.token or login.ssh_key):
        return None
    if login.token and login.ssh_key:
        raise InvalidLogin("Give `token` or `ssh_key`, not both.")
    return token_secret(login.token, login.user) if login.token else key_secret(login.ssh_key)


def _groups(caller: Caller, names: list[str]) -> list[Group]:
    found = list(choosable_groups(caller.user).filter(name__in=names))
    if unknown := sorted(set(names) - {group.name for group in found}):
        raise InvalidSource(f"There is no group {', '.join(unknown[:5])} that you may choose.")
    return found


def _repository_out(row: RepositoryStatus, caller: Caller) -> RepositoryOut:
    repository = row.repository
    managed = _may_manage(caller, repository)
    return RepositoryOut(
        id=repository.pk,
        name=repository.name,
        url=repository.mirror.url,
        ref=repository.ref,
        visibility=repository.visibility,
        golden=repository.golden,
        description=repository.description,
        may_manage=managed,
        readers=_readers_out(repository) if managed else None,
        login=_login_out(repository.mirror.credential) if managed else None,
        file_rules=repository.file_rules if managed else None,
        max_file_bytes=repository.max_file_bytes if managed else None,
        created_at=repository.created_at,
        status=_status_out(row),
    )


def _readers_out(repository: Repository) -> ReadersOut:
    people = sorted(person.get_username() for person in repository.members.all())
    return ReadersOut(people=people, groups=sorted(group.name for group in repository.groups.all()))


def _login_out(row: Credential | None) -> LoginOut | None:
    if row is None:
        return None
    fingerprint = row.fingerprint if row.kind == Credential.Kind.KEY else ""
    return LoginOut(kind=row.kind, username=row.username, fingerprint=fingerprint, created_at=row.created_at)


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


def managed(request: HttpRequest, repository_id: int) -> Repository:
    """Raises Http404 for a repository that the caller may not change."""
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
