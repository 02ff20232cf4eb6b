"""Against a real Milvus server: the same rows as from the files, those of what is published, and loss that is seen."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from indexing import embedding, milvus, vector_filling
from indexing.access import Principal
from indexing.building import build_now
from indexing.errors import VectorsUnavailable
from indexing.index_format import open_index
from indexing.milvus import RowRange
from search.hamming import top_rows
from search.pipeline import search
from tests.factories import commit_files, make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder
from tests.milvus_server import MilvusProcess, installed
from tests.stack import free_port

needs_server = pytest.mark.skipif(not installed(), reason="`make milvus` installs the server for this test")
ROWS, WORDS, TOP = 200_000, 6, 100


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusProcess]:
    with MilvusProcess(tmp_path_factory.mktemp("milvus"), free_port()) as server:
        yield server


@pytest.fixture
def backend(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings.VECTOR_BACKEND = "milvus"
    settings.MILVUS_COLLECTION = f"test_{tmp_path.name[-20:].replace('-', '_')}"
    monkeypatch.setattr(milvus, "_client", None)
    monkeypatch.setattr(milvus, "_paused_until", 0.0)
    monkeypatch.setattr(milvus, "_complete", {})


@pytest.fixture
def on_server(server: MilvusProcess, settings: Settings, backend: None) -> None:
    settings.MILVUS_URL = server.url


@needs_server
@pytest.mark.milvus
def test_it_finds_the_same_hundred_as_the_files(on_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.random.default_rng(7).integers(0, 2**63, (ROWS, WORDS), dtype=np.uint64)
    ranges = [
        RowRange(1, f"{number}" * 64, bits[start : start + ROWS // 4], 0, ROWS // 4)
        for number, start in enumerate(range(0, ROWS, ROWS // 4))
    ]
    with milvus._server() as client:
        for rows in ranges:
            milvus._insert(client, rows)
    milvus.nearest(bits[0], ranges, TOP)  # counts, and makes sure that all is seen
    time.sleep(6.0)
    monkeypatch.setattr(milvus, "STALE_SECONDS", 0.0)
    seconds = {"files": 0.0, "milvus": 0.0}
    for query in bits[:: ROWS // 10] ^ np.uint64(0b1011011):
        begun = time.perf_counter()
        expected, similarities = top_rows(query, [rows.bits for rows in ranges], TOP)
        seconds["files"] += time.perf_counter() - begun
        begun = time.perf_counter()
        found, distances = milvus.nearest(query, ranges, TOP)
        seconds["milvus"] += time.perf_counter() - begun
        expected_distances = np.round((1 - similarities) * WORDS * 64 / 2).astype(int)
        assert distances.tolist() == expected_distances.tolist()
        sure = distances < distances[-1]  # of those at the edge, any of the equally near
        assert set(found[sure]) == set(expected[sure])
    print(  # with -s
        f"\ntop {TOP} of {ROWS}: files {seconds['files'] * 100:.1f} ms, Milvus {seconds['milvus'] * 100:.1f} ms a query"
    )


@needs_server
@pytest.mark.milvus
@pytest.mark.django_db
def test_it_is_filled_by_builds_and_follows_what_is_published(
    on_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    repo = make_repo(tmp_path, {"a.py": "def sign(session):\n    return session\n", "b.py": "def other():\n    pass\n"})
    repository = make_repository(url=str(repo))
    build_now(repository)
    ask = lambda: search("sign a session", principal=Principal.operator(), use_llm=False)  # noqa: E731
    assert not [notice for notice in ask().trace.notices if "words only" in notice]
    commit_files(repo, {"a.py": None, "c.py": "def sign_again(session):\n    return session\n"})
    build_now(repository)
    assert [hit.display_path for hit in ask().hits] == ["c.py"]
    assert not [notice for notice in ask().trace.notices if "words only" in notice]
    milvus.forget(repository.pk)
    milvus._complete.clear()
    assert "being filled in" in " ".join(ask().trace.notices)
    assert vector_filling.fill_all() > 0
    assert not [notice for notice in ask().trace.notices if "words only" in notice]


@needs_server
@pytest.mark.milvus
def test_it_searches_a_range_of_rows(on_server: None) -> None:
    bits = np.arange(1, 65, dtype=np.uint64).reshape(-1, 1)
    whole = RowRange(2, "f" * 64, bits, 0, 64)
    with milvus._server() as client:
        milvus._insert(client, whole)
    rows, distances = milvus.nearest(np.array([1], np.uint64), [RowRange(2, "f" * 64, bits, 2, 7), whole], 3)
    assert len(rows) == 3
    assert distances[0] in (0, 1)
    only, _ = milvus.nearest(np.array([3], np.uint64), [RowRange(2, "f" * 64, bits, 2, 7)], 10)
    assert sorted(only.tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.django_db
def test_it_searches_by_words_and_says_so_when_the_server_is_away(
    backend: None, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    settings.MILVUS_URL = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setattr(milvus, "SEARCH_SECONDS", 0.5)
    repository = make_repository(url=str(make_repo(tmp_path, {"a.py": "def sign(session):\n    return session\n"})))
    index = build_now(repository)
    assert index.status == "ready"
    assert "Not searchable by meaning yet: Milvus does not answer." in index.warnings
    begun = time.monotonic()
    result = search("sign a session", principal=Principal.operator(), use_llm=False)
    assert time.monotonic() - begun < 2.0  # after one failure nobody waits for a while
    assert [hit.display_path for hit in result.hits] == ["a.py"]
    assert "Searched by words only: Milvus does not answer." in result.trace.notices
    with pytest.raises(CommandError, match="Milvus does not answer"):
        call_command("fill_vectors")
    assert open_index(repository.index_path).manifest.coverage.vectors == 1.0


def test_it_says_what_to_install(backend: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymilvus", None)
    with pytest.raises(VectorsUnavailable, match="extra `milvus` is not installed"):
        milvus.forget(1)
