"""Search in the API: ranked places in the code as coordinates, with their text and the trace on request.

Who asks is in `request.auth`, a `Caller`. A repository that it may not read is as unknown as one that does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, starmap
from typing import Any
from urllib.parse import quote

from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from django.utils.text import slugify
from ninja import Field, Router, Schema

from indexing.access import Caller, Principal
from indexing.api import Text
from indexing.languages import language_called
from indexing.links import blob_url
from indexing.masking import mask_secrets
from indexing.models import Repository
from search import golden_sets, pipeline
from search.pipeline import MAX_QUESTION_CHARS
from search.results import Hit, Scope, ScopedSet
from search.snippets import read_snippets

router = Router(tags=["search"])
MAX_HITS = 50
MAX_SNIPPET_CHARS = 4000


class ScopeIn(Schema, extra="forbid"):
    """What a question is narrowed to. Empty: everything that the token may read."""

    repositories: list[Text | int] = Field(
        [], max_length=50, description="Names or ids; `@set/NAME` stands for a golden set"
    )
    path: str = Field("", max_length=1000, description="Prefer this folder")
    path_filter: str = Field("", max_length=1000, description="Leave out everything outside of this folder")
    languages: list[str] = Field([], max_length=20, description="Keep to these, by name or file ending: python, ts")


class SearchIn(ScopeIn):
    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARS)
    limit: int = Field(10, ge=1, le=MAX_HITS)
    snippets: bool = Field(True, description="With the text of each hit, secrets masked")
    use_llm: bool = Field(False, description="Let the language model plan and re-rank, when one is configured")
    trace: bool = Field(False, description="With how the ranking came about")


class HitOut(Schema):
    """A place in the code. Bytes count from 0, end excluded; lines from 1, end included; both of the original file."""

    repository_id: int
    repository: str
    commit: str
    path: str
    path_encoded: str = Field(description="The exact bytes of the path, percent-encoded, for `/code`")
    language: str
    kind: str
    symbol: str
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int
    score: float = Field(description="Higher is better; comparable within one answer only")
    copies: int = Field(1, description="In how many places this very code was found; one of them is given")
    url: str = Field(description="The code viewer's page")
    snippet: str = ""


class SearchOut(Schema):
    hits: list[HitOut]
    notices: list[str] = Field(description="Fallbacks and partly built indexes, as sentences")
    milliseconds: float
    trace: dict[str, Any] | None = None  # Any: JSON


@router.post("", response=SearchOut, summary="Search code", operation_id="search")
def search(request: HttpRequest, body: SearchIn) -> SearchOut:
    caller = request.auth  # type: ignore[attr-defined]  # set by the API's authentication
    assert isinstance(caller, Caller)
    result = pipeline.search(
        body.question,
        principal=caller.principal,
        scope=scope_of(body, caller.principal),
        limit=body.limit,
        use_llm=body.use_llm,
    )
    return SearchOut(
        hits=hits_out(request, result.hits, snippets=body.snippets),
        notices=list(result.trace.notices),
        milliseconds=sum(stage.milliseconds for stage in result.trace.stages),
        trace=result.trace.to_json() if body.trace else None,
    )


def scope_of(body: ScopeIn, principal: Principal) -> Scope:
    """Raises Http404 for a repository that is not there for this principal."""
    readable = Repository.objects.visible_to(principal)
    prefix = f"@{golden_sets.PREFIX}"
    names = {str(wanted).removeprefix(prefix) for wanted in body.repositories if str(wanted).startswith(prefix)}
    sets = golden_sets.members(names, principal)
    if names - set(sets):
        raise Http404(f"There is no golden set {min(names - set(sets))[:60]!r}, or this token reads nothing of it.")
    single = [wanted for wanted in body.repositories if not str(wanted).startswith(prefix)]
    ids = [pk for wanted in single for pk in _ids_of(wanted, readable.filter(**_field(wanted)))]
    return Scope(
        repository_ids=tuple(dict.fromkeys([*ids, *chain.from_iterable(sets.values())])),
        path=body.path,
        path_filter=body.path_filter,
        languages=tuple(map(language_called, body.languages)),
        sets=tuple(starmap(ScopedSet, sets.items())),
    )


def _field(wanted: str | int) -> dict[str, Any]:  # Any: keyword arguments of a filter
    return {"pk": wanted} if isinstance(wanted, int) else {"name": wanted.removeprefix("@")}


def _ids_of(wanted: str | int, found: QuerySet[Repository]) -> list[int]:
    """Names are unique for no one but those who added them, so one may stand for several."""
    if not (ids := list(found.values_list("pk", flat=True))):
        raise Http404(f"There is no repository {str(wanted)[:200]!r}, or this token may not read it.")
    return ids


def hits_out(request: HttpRequest, hits: Sequence[Hit], *, snippets: bool) -> list[HitOut]:
    texts = read_snippets(hits) if snippets else [""] * len(hits)
    return [
        _hit_out(request, hit, mask_secrets(text)[:MAX_SNIPPET_CHARS]) for hit, text in zip(hits, texts, strict=True)
    ]


def _hit_out(request: HttpRequest, hit: Hit, snippet: str) -> HitOut:
    url = blob_url(
        hit.repository_id,
        slugify(hit.repository.replace("/", "-")) or "repository",
        hit.commit,
        hit.path,
        byte_range=(hit.start_byte, hit.end_byte),
        line_range=(hit.start_line, hit.end_line),
    )
    return HitOut(
        repository_id=hit.repository_id,
        repository=hit.repository,
        commit=hit.commit,
        path=hit.display_path,
        path_encoded=quote(hit.path, safe="/"),
        language=hit.language,
        kind=hit.kind,
        symbol=hit.symbol,
        start_byte=hit.start_byte,
        end_byte=hit.end_byte,
        start_line=hit.start_line,
        end_line=hit.end_line,
        score=hit.score,
        copies=hit.copies,
        url=request.build_absolute_uri(url),
        snippet=snippet,
    )
