from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from indexing import embedding
from indexing.building import build_now
from indexing.models import Repository
from search.corpus import Corpus, Source
from search.index_cache import opened
from tests.factories import make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

Indexed = Callable[..., Repository]


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> StubEmbedder:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    return stub


@pytest.fixture
def indexed(tmp_path: Path, embedder: StubEmbedder, db: None) -> Indexed:
    """indexed("acme/shop", {path: content}, **fields) -> a repository with a published index."""

    def build(name: str, files: dict[str, str | bytes], **fields: object) -> Repository:
        repo = make_repo(tmp_path, files, name=name.replace("/", "-"))
        repository = make_repository(name, url=str(repo), **fields)
        build_now(repository)
        repository.refresh_from_db()
        return repository

    return build


def corpus_of(*repositories: Repository) -> Corpus:
    return Corpus(
        [
            Source(repository.pk, repository.name, repository.golden, opened(repository.index_path))
            for repository in repositories
        ]
    )
