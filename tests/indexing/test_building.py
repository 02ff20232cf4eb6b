from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_django import DjangoAssertNumQueries, Settings

from indexing import building, collecting, embedding, vectorising
from indexing.building import build_now, request_build
from indexing.embedding import get_embedder
from indexing.errors import BuildCancelled, IndexingError
from indexing.index_format import OpenIndex, open_index, read_manifest, verify
from indexing.models import Index, Job, Repository
from indexing.tokenizing import term_hash
from tests.factories import commit_files, head, make_repo, make_repository
from tests.indexing.index_contents import contents
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db

FILES: dict[str, str | bytes] = {
    "README.md": "# Shop\n\nA small shop that keeps its orders in a file on disk.\n",
    "shop/orders.py": '"""Orders."""\n\n\ndef cancel_order(number):\n    """Cancel one."""\n    return number * 2\n',
    "shop/stock.py": "class Stock:\n    def take(self, item):\n        self.items.remove(item)\n        return item\n",
    "logo.png": b"\x89PNG\r\n\x1a\n\x00\x00",
}


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> StubEmbedder:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    return stub


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, FILES)


@pytest.fixture
def repository(repo: Path) -> Repository:
    return make_repository("acme/shop", url=str(repo))


def _use(monkeypatch: pytest.MonkeyPatch, stub: Any) -> None:
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)


def _paths(repository: Repository) -> list[bytes]:
    index = open_index(repository.index_path)
    return sorted(segment.paths.raw(row) for segment in index.segments for row in segment.live_file_rows())


def _chunks(index: OpenIndex) -> list[tuple[object, ...]]:
    records = [segment.chunk(row) for segment in index.segments for row in range(len(segment))]
    return [(chunk.path, chunk.symbol, chunk.start_byte, chunk.end_byte, chunk.content_hash) for chunk in records]


def _rows(index: OpenIndex, name: str) -> tuple[np.ndarray, np.ndarray]:
    lists = [vectors for segment in index.segments if (vectors := segment.vectors(name)) is not None]
    return np.concatenate([rows.hashes for rows in lists]), np.concatenate([rows.floats for rows in lists])


def test_it_publishes_an_index_that_can_be_searched(repository: Repository, repo: Path) -> None:
    index = build_now(repository)
    repository.refresh_from_db()
    assert (index.status, index.commit, repository.current_index_id) == ("ready", head(repo), index.pk)
    segment = verify(repository.index_path).segments[0]
    assert _paths(repository) == [b"README.md", b"shop/orders.py", b"shop/stock.py"]
    stems = segment.postings("code_stems")
    assert stems is not None
    rows, _ = stems.find(term_hash("cancel"))
    assert {segment.chunk(int(row)).path for row in rows} == {b"shop/orders.py"}
    assert len(segment.definitions_named(term_hash("cancel_order"))) == 1


def test_it_points_at_the_bytes_of_the_file(repository: Repository, repo: Path) -> None:
    build_now(repository)
    segment = open_index(repository.index_path).segments[0]
    chunks = [segment.chunk(row) for row in range(len(segment))]
    found = next(chunk for chunk in chunks if chunk.symbol.endswith("cancel_order"))
    own = (repo / "shop/orders.py").read_bytes()[found.start_byte : found.end_byte]
    assert own.startswith(b"def cancel_order")
    assert own.rstrip().endswith(b"return number * 2")
    assert (found.start_line, found.end_line) == (4, 6)


def test_it_gives_each_chunk_and_file_vectors(repository: Repository, embedder: StubEmbedder) -> None:
    build_now(repository)
    index = open_index(repository.index_path)
    segment = index.segments[0]
    for name, owners in (("code", len(segment)), ("descriptions", len(segment)), ("files", segment.info.files)):
        vectors = segment.vectors(name)
        assert vectors is not None
        assert len(vectors.starts) == owners + 1
        assert np.all(np.diff(vectors.starts) >= 1)
        assert np.allclose(np.linalg.norm(vectors.floats.astype(np.float32), axis=1), 1, atol=0.01)
    assert index.manifest.model == embedder.info
    assert (index.manifest.coverage.lexical, index.manifest.coverage.vectors) == (1.0, 1.0)


def test_it_keeps_no_source_text_in_its_files(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "a.py": '"""Zanzibar docs."""\n\n\ndef f():\n    # quagga comment\n    return "xylophone"\n',
        "README.md": "# Title\n\nThe okapi paragraph that explains what this program does.\n",
    }
    repository = make_repository(url=str(make_repo(tmp_path, files, name="secretive")))
    build_now(repository)
    written = b"".join(file.read_bytes() for file in repository.index_path.rglob("*") if file.is_file())
    assert b"a.py" in written
    for word in (b"Zanzibar", b"quagga", b"xylophone", b"okapi", b"return"):
        assert word.lower() not in written.lower()


def test_it_counts_and_lists_skipped_files(repository: Repository) -> None:
    index = build_now(repository)
    assert index.skipped == {"binary": 1}
    assert [(skipped.path, skipped.reason) for skipped in index.skipped_files.all()] == [("logo.png", "binary")]
    assert (index.files_done, index.files_known) == (4, 4)


def test_it_profiles_the_repository(repository: Repository, repo: Path) -> None:
    build_now(repository)
    index = open_index(repository.index_path)
    info = index.manifest.profile
    assert index.profile is not None
    assert index.profile.weights.sum() == pytest.approx(1)
    assert info.languages["python"] >= 2
    assert "order" in info.terms
    assert info.readme is not None
    paragraph = (repo / "README.md").read_bytes()[info.readme.start_byte : info.readme.end_byte]
    assert paragraph == b"A small shop that keeps its orders in a file on disk."


def test_it_embeds_again_only_what_changed(repository: Repository, repo: Path, embedder: StubEmbedder) -> None:
    build_now(repository)
    embedder.texts.clear()
    commit_files(repo, {"shop/new.py": "def brand_new():\n    return 1\n", "shop/stock.py": None})
    build_now(repository)
    assert embedder.texts
    assert all("new" in text for text in embedder.texts)
    assert _paths(repository) == [b"README.md", b"shop/new.py", b"shop/orders.py"]


def test_it_embeds_everything_again_with_another_model(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    build_now(repository)
    other = StubEmbedder(revision="2")
    _use(monkeypatch, other)
    build_now(repository)
    model = open_index(repository.index_path).manifest.model
    assert model == other.info
    assert len(other.texts) >= 5


def test_it_searches_by_words_before_the_vectors_are_there(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    _use(monkeypatch, StubEmbedder(fail_at=1))
    with pytest.raises(IndexingError, match="failed at step embedding, file .*: RuntimeError"):
        build_now(repository)
    repository.refresh_from_db()
    index = open_index(repository.index_path)
    assert repository.current_index is not None
    assert repository.current_index.status == "failed"
    assert index.segments[0].postings("code_stems") is not None
    assert index.segments[0].vectors("code") is None
    assert (index.manifest.coverage.lexical, index.manifest.coverage.vectors) == (1.0, 0.0)


def test_it_keeps_the_old_index_until_the_new_one_has_vectors(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = build_now(repository)
    before = read_manifest(repository.index_path)
    commit_files(repo, {"shop/new.py": "def brand_new():\n    return 1\n"})
    _use(monkeypatch, StubEmbedder(fail_at=1))
    with pytest.raises(IndexingError):
        build_now(repository)
    repository.refresh_from_db()
    assert repository.current_index_id == good.pk
    assert read_manifest(repository.index_path) == before
    verify(repository.index_path)


def test_it_resumes_after_a_kill_and_equals_a_clean_build(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.EMBEDDING_BATCH = 2
    _use(monkeypatch, StubEmbedder(fail_at=3))
    with pytest.raises(IndexingError):
        build_now(repository)
    resumed = StubEmbedder()
    _use(monkeypatch, resumed)
    build_now(repository)
    clean_repository = make_repository("acme/clean", url=str(repo))
    clean = StubEmbedder()
    _use(monkeypatch, clean)
    build_now(clean_repository)
    one, two = open_index(repository.index_path), open_index(clean_repository.index_path)
    assert _chunks(one) == _chunks(two)
    for name in ("code", "descriptions", "files"):
        (hashes, floats), (clean_hashes, clean_floats) = _rows(one, name), _rows(two, name)
        assert np.array_equal(hashes, clean_hashes)
        assert np.all(np.sum(floats.astype(float) * clean_floats, axis=1) > 0.99)
    assert len(resumed.texts) == len(clean.texts) - 4


def test_it_leaves_nothing_of_earlier_attempts(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexing.index_writing.RETIRED_SECONDS", 0)
    stub = StubEmbedder()
    for _ in range(3):
        _use(monkeypatch, StubEmbedder(revision="x", fail_at=1))
        with pytest.raises(IndexingError):
            build_now(repository)
        _use(monkeypatch, stub)
        build_now(repository)
    manifest = read_manifest(repository.index_path)
    assert manifest is not None
    folders = {folder.name for folder in (repository.index_path / "segments").iterdir()}
    assert manifest.folders() <= folders
    assert len(folders) <= 2 * len(manifest.folders())
    assert not (repository.index_path / "partial").exists()


def test_it_ends_a_batch_that_never_comes_back_and_resumes(
    tmp_path: Path, embedder: StubEmbedder, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    modules = {f"m{number}.py": f"def f{number}():\n    return {number}\n" for number in range(50)}
    repository = make_repository("acme/hangs", url=str(make_repo(tmp_path, {**modules}, name="hangs")))
    settings.EMBEDDING_TIMEOUT_SECONDS = 0.5
    settings.EMBEDDING_BATCH = 3
    stub = StubEmbedder(hang_at=30)
    _use(monkeypatch, stub)
    said = r"failed at step embedding, batch 30, file m\d+.py: the model did not answer within 0.5 s. Retry goes on"
    with pytest.raises(IndexingError, match=said):
        build_now(repository)
    row = Index.objects.get(repository=repository)
    assert (row.status, row.step, row.files_done, row.chunks_known) == ("failed", "embed", 50, 50)
    _use(monkeypatch, embedder)
    build_now(repository)
    assert len(stub.texts) == 29 * 3
    assert not set(stub.texts) & set(embedder.texts)
    assert embedder.batches >= 20
    stub.released.set()


def test_it_stops_when_asked(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubEmbedder()

    def cancel(texts: list[str]) -> np.ndarray:
        Job.objects.update(cancel_requested=True)
        monkeypatch.setattr("indexing.leases.CHECK_SECONDS", 0)
        return StubEmbedder.embed_documents(stub, texts)

    monkeypatch.setattr(vectorising.Vectoriser, "_in_time", lambda self, texts, where: cancel(texts))
    with pytest.raises(IndexingError, match="Stopped on request"):
        build_now(repository)
    assert Index.objects.get().status == "cancelled"
    assert Job.objects.get().state == "cancelled"


def test_it_marks_a_build_as_cancelled_when_interrupted(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(building.git, "pin", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build_now(repository)
    assert Index.objects.get().status == "cancelled"
    assert request_build(repository).active


def test_it_marks_a_repository_without_commits_as_empty(tmp_path: Path) -> None:
    repository = make_repository(url=str(make_repo(tmp_path, {}, name="empty")))
    index = build_now(repository)
    assert (index.status, index.job.state) == ("empty", "done")
    assert "no commit yet" in index.error


def test_it_indexes_a_commit_without_indexable_files(tmp_path: Path) -> None:
    repository = make_repository(url=str(make_repo(tmp_path, {"a.png": b"\x89PNG\x00", ".keep": b""}, name="bare")))
    index = build_now(repository)
    assert (index.status, index.chunks_known, index.skipped) == ("ready", 0, {"binary": 1, "empty": 1})
    assert verify(repository.index_path).segments == ()


def test_it_indexes_the_other_files_when_one_fails(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    real = collecting.chunk_file

    def chunk_file(source: Any) -> Any:
        if source.path == b"shop/orders.py":
            raise RecursionError
        return real(source)

    monkeypatch.setattr(collecting, "chunk_file", chunk_file)
    index = build_now(repository)
    assert _paths(repository) == [b"README.md", b"shop/stock.py"]
    assert index.warnings == ["Left out because reading them failed: shop/orders.py."]


def test_it_never_replaces_a_good_index_by_one_without_files(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_now(repository)
    before = read_manifest(repository.index_path)

    def chunk_file(source: Any) -> Any:
        raise RecursionError

    monkeypatch.setattr(collecting, "chunk_file", chunk_file)
    with pytest.raises(IndexingError, match="None of the files could be read"):
        build_now(repository, rebuild=True)
    assert read_manifest(repository.index_path) == before


def test_it_finds_a_file_by_words_when_its_texts_fail(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    real = vectorising.chunk_file

    def chunk_file(source: Any) -> Any:
        if source.path == b"shop/orders.py":
            raise RecursionError
        return real(source)

    monkeypatch.setattr(vectorising, "chunk_file", chunk_file)
    index = build_now(repository)
    manifest = verify(repository.index_path).manifest
    assert manifest.coverage.lexical == 1.0
    assert 0 < manifest.coverage.vectors < 1
    assert index.warnings == ["Found by words only, not by meaning: shop/orders.py."]


def test_it_says_that_the_disk_is_full_and_keeps_the_last_index(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_now(repository)
    before = read_manifest(repository.index_path)
    commit_files(repo, {"b.py": "x = 1\n"})

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(vectorising.SegmentVectors, "write", full)
    with pytest.raises(IndexingError, match="The disk is full: .* Make room there, then retry."):
        build_now(repository)
    assert read_manifest(repository.index_path) == before
    assert before is not None
    assert {folder.name for folder in (repository.index_path / "segments").iterdir()} == before.folders()
    assert not (repository.index_path / "partial").exists()


def test_it_replaces_a_damaged_index(repository: Repository) -> None:
    build_now(repository)
    (repository.index_path / "manifest.json").write_text("{")
    build_now(repository)
    assert verify(repository.index_path).chunk_count > 0


def test_it_does_not_copy_damaged_vectors(repository: Repository, embedder: StubEmbedder) -> None:
    build_now(repository)
    part = next(repository.index_path.rglob("vectors.code.floats*.npy"))
    part.write_bytes(part.read_bytes()[:-2] + b"\x00\x01")
    embedder.texts.clear()
    build_now(repository, rebuild=True)
    assert embedder.texts
    verify(repository.index_path)


def test_it_clones_again_when_the_mirror_lost_an_object(repository: Repository) -> None:
    build_now(repository)
    for folder in ("objects/pack", "objects"):
        for file in (repository.mirror.path / folder).glob("*"):
            if file.is_dir() and len(file.name) == 2:
                shutil.rmtree(file)
            elif file.is_file():
                file.unlink()
    assert build_now(repository).status == "ready"


def test_it_publishes_a_large_first_index_piece_by_piece(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "FIRST_SEGMENT_CHUNKS", 1)
    monkeypatch.setattr(collecting, "SEGMENT_GROWTH", 1)
    published: list[tuple[int, float]] = []
    real = building.publish

    def publish(directory: Path, manifest: Any) -> None:
        published.append((len(manifest.segments), manifest.coverage.lexical))
        real(directory, manifest)

    monkeypatch.setattr(building, "publish", publish)
    build_now(repository)
    assert published == [(1, 0.25), (2, 0.75), (3, 1.0), (3, 1.0)]
    assert _paths(repository) == [b"README.md", b"shop/orders.py", b"shop/stock.py"]


def test_it_merges_the_pieces_of_a_large_first_index(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_now(repository)
    expected = contents(open_index(repository.index_path))
    monkeypatch.setattr(collecting, "FIRST_SEGMENT_CHUNKS", 1)
    monkeypatch.setattr(collecting, "SEGMENT_GROWTH", 1)
    monkeypatch.setattr("indexing.compacting.MAX_SEGMENTS", 2)
    build_now(repository, rebuild=True)
    index = verify(repository.index_path)
    assert len(index.segments) == 1
    assert contents(index) == expected


def test_it_joins_the_build_that_is_active(repository: Repository) -> None:
    first = request_build(repository)
    assert request_build(repository) == first
    assert Index.objects.count() == Job.objects.count() == 1


def test_it_builds_after_the_request_is_committed(
    repository: Repository, celery_eager: None, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        index = request_build(repository)
        assert index.status == "queued"
    index.refresh_from_db()
    assert (index.status, index.job.state) == ("ready", "done")


def test_it_does_not_build_what_another_process_builds(repository: Repository) -> None:
    index = request_build(repository)
    building.leases.claim(index.pk)
    with pytest.raises(IndexingError, match="being indexed by another process"):
        build_now(repository)


def test_it_reports_progress_as_things_done_and_known(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexing.progress.WRITE_SECONDS", 0)
    lines: list[str] = []
    index = build_now(repository, on_progress=lines.append)
    assert "parsing: 4 of 4 files" in lines
    assert any(line.startswith(f"embedding: {index.chunks_known} of {index.chunks_known} chunks") for line in lines)
    assert index.chunks_done == index.chunks_known > 0
    assert index.size_bytes > 0


def test_it_writes_progress_seldom(
    repository: Repository, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_max_num_queries(60):
        build_now(repository)


def test_it_cancels_through_the_check_it_is_given(repository: Repository) -> None:
    def check() -> None:
        raise BuildCancelled("enough")

    index = Index.objects.create(repository=repository)
    with pytest.raises(BuildCancelled):
        building.build_index(index, check=check)


def test_it_adds_descriptions_as_a_further_generation(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings, embedder: StubEmbedder
) -> None:
    settings.DESCRIBE_CHUNKS, settings.LLM_MODEL = True, "ollama/test"

    def describe_chunks(items: Any, *, repository_id: int, budget: Any) -> Iterator[tuple[int, str]]:
        for position, item in enumerate(items):
            if item.symbol.endswith("cancel_order"):
                yield position, "Annuls a purchase."
        budget.warning = "Descriptions stopped early."

    monkeypatch.setattr("indexing.description_parts.describe_chunks", describe_chunks)
    index = build_now(repository)
    segment = verify(repository.index_path).segments[0]
    described = [segment.chunk(row).symbol for row in range(len(segment)) if segment.chunk(row).description]
    postings = segment.postings("descriptions")
    assert postings is not None
    rows, _ = postings.find(term_hash("annul"))
    assert [segment.chunk(int(row)).symbol for row in rows] == described
    assert len(described) == 1
    assert "Annuls a purchase." in embedder.texts
    assert index.warnings == ["Descriptions stopped early."]
    assert 0 < open_index(repository.index_path).manifest.coverage.descriptions < 1


def test_it_stays_ready_when_the_language_model_is_down(
    repository: Repository, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DESCRIBE_CHUNKS, settings.LLM_MODEL = True, "ollama/test"

    def describe_chunks(items: Any, *, repository_id: int, budget: Any) -> Iterator[tuple[int, str]]:
        list(items)
        budget.warning = "Descriptions stopped after 0 chunks."
        yield from ()

    monkeypatch.setattr("indexing.description_parts.describe_chunks", describe_chunks)
    index = build_now(repository)
    assert (index.status, index.warnings) == ("ready", ["Descriptions stopped after 0 chunks."])
    assert open_index(repository.index_path).segments[0].descriptions is None


def test_it_embeds_with_the_real_model_without_cutting_any_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "\n".join(f"    total_{n} = compute_value({n}, [{n} * {n}, 'item {n}'])" for n in range(60))
    files: dict[str, str | bytes] = {"a.py": f"def long_function():\n{body}\n    return total_59\n"}
    repository = make_repository(url=str(make_repo(tmp_path, files, name="long")))
    _use(monkeypatch, get_embedder())
    too_long = get_embedder().too_long
    index = build_now(repository)
    assert (index.status, index.warnings) == ("ready", [])
    assert get_embedder().too_long == too_long
    assert open_index(repository.index_path).manifest.model == get_embedder().info
