"""Answers with everything real but the search and the model: those follow a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from indexing import git, llm
from indexing.llm import StreamPart
from indexing.models import Index, Repository
from indexing.offsets import LineIndex
from search import pipeline
from search.results import Hit, QueryPlan, RepositoryChoice, SearchResult, Stage, Trace
from tests.factories import head, make_index, make_mirror, make_repo, make_repository

SESSIONS = '''"""Sessions of é and 🙂."""


def sign(value: str) -> str:
    """Sign the cookie."""
    return f"{value}.signature"


def unsign(value: str) -> str:
    return value.rpartition(".")[0]
'''


def real_repository(tmp_path: Path, files: dict[str, str | bytes], name: str = "acme/web", **fields: Any) -> Repository:
    """A repository with a real mirror of one commit, and the row of a finished index."""
    repo = make_repo(tmp_path, files, name=name.replace("/", "-"))
    mirror = make_mirror(str(repo), kind="local")
    git.ensure_mirror(mirror)
    repository = make_repository(name, mirror=mirror, **fields)
    make_index(repository, current=True, commit=head(repo), status=Index.Status.READY)
    return repository


def hit_for(repository: Repository, path: str, passage: str | bytes, **changes: Any) -> Hit:
    """The hit whose bytes are `passage`."""
    assert repository.current_index is not None
    commit = repository.current_index.commit
    blob_id = git.blob_at(repository.mirror.path, commit, path.encode())
    assert blob_id is not None
    with git.BlobReader(repository.mirror.path) as blobs:
        raw = blobs.read(blob_id)
    wanted = passage.encode() if isinstance(passage, str) else passage
    start = raw.index(wanted)
    encoding = changes.get("encoding", "utf-8")
    first, last = LineIndex(raw, encoding).lines_of(start, start + len(wanted))
    values: dict[str, Any] = {
        "repository_id": repository.pk,
        "repository": repository.name,
        "commit": commit,
        "path": path.encode(),
        "blob_id": blob_id,
        "encoding": encoding,
        "language": "python",
        "kind": "function",
        "symbol": "sign",
        "start_byte": start,
        "end_byte": start + len(wanted),
        "start_line": first,
        "end_line": last,
        "score": 1.0,
        "cosine": 0.5,
    }
    return Hit(**(values | changes))


@dataclass
class ScriptedSearch:
    """Stands in for `search.pipeline.search`; remembers what it was asked."""

    hits: tuple[Hit, ...]
    readable: int = 1
    early: tuple[Hit, ...] = ()
    notices: tuple[str, ...] = ()
    error: Exception | None = None
    before: Callable[[], None] = lambda: None
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, question: str, **options: Any) -> SearchResult:
        self.calls.append({"question": question, **options})
        self.before()
        if self.error is not None:
            raise self.error
        on_stage = options.get("on_stage") or (lambda stage: None)
        on_stage(Stage("plan", 0, state="now"))
        if self.early:
            options["on_hits"](self.early)
        stage = Stage("plan", 5.0)
        on_stage(stage)
        choices = tuple(RepositoryChoice(hit.repository_id, hit.repository, False, False, 1.0) for hit in self.hits[:1])
        trace = Trace(QueryPlan(question), choices, self.readable, self.hits, (), (stage,), self.notices)
        return SearchResult(self.hits, trace)


def script_search(monkeypatch: pytest.MonkeyPatch, hits: Sequence[Hit], **options: Any) -> ScriptedSearch:
    scripted = ScriptedSearch(tuple(hits), **options)
    monkeypatch.setattr(pipeline, "search", scripted)
    return scripted


@dataclass
class ScriptedModel:
    """Stands in for `indexing.llm.stream`: says its parts; an exception among them is raised, a number is a pause."""

    parts: Sequence[str | float | Exception]
    finish_reason: str = "stop"
    calls: list[list[dict[str, str]]] = field(default_factory=list)
    closed: int = 0

    async def __call__(self, messages: Sequence[dict[str, str]], **options: Any) -> AsyncGenerator[StreamPart, None]:
        self.calls.append(list(messages))
        try:
            for part in self.parts:
                if isinstance(part, Exception):
                    raise part
                if isinstance(part, str):
                    yield StreamPart(part, None)
                else:
                    await asyncio.sleep(part)
            yield StreamPart("", self.finish_reason)
        finally:
            self.closed += 1


def script_model(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, parts: Sequence[str | float | Exception], **options: Any
) -> ScriptedModel:
    settings.LLM_MODEL = "ollama/llama3.1"
    scripted = ScriptedModel(parts, **options)
    monkeypatch.setattr(llm, "stream", scripted)
    return scripted
