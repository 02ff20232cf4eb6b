from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_django import Settings

from indexing import building, collecting, embedding, git
from indexing.building import build_now
from indexing.errors import IndexingError
from indexing.index_format import OpenIndex, open_index, verify
from indexing.models import Index, Repository
from indexing.updating import chunking_fingerprint
from indexing.vectorising import Vectoriser
from search.retrieval import Query, retrieve
from search.wording import wording
from tests.factories import commit_files, head, make_repo, make_repository
from tests.factories import git as run_git
from tests.indexing.index_contents import contents
from tests.indexing.stub_embedder import StubEmbedder
from tests.search.conftest import corpus_of

pytestmark = pytest.mark.django_db


def _module(number: int, body: str = "return 1") -> str:
    return f'"""Module {number}."""\nimport os\n\n\nclass Thing{number}:\n    def act_{number}(self):\n        {body}\n'


FILES: dict[str, str | bytes] = {f"pkg/m{number}.py": _module(number) for number in range(8)} | {
    "README.md": "# Shop\n\nA small shop that keeps its orders in a file on disk.\n",
    "logo.png": b"\x89PNG\r\n\x1a\n\x00\x00",
    "empty.txt": "",
}


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> StubEmbedder:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    return stub


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Paths of the files that were parsed for their chunks."""
    paths: list[bytes] = []
    real = collecting.chunk_file

    def chunk_file(source: Any) -> Any:
        paths.append(source.path)
        return real(source)

    monkeypatch.setattr(collecting, "chunk_file", chunk_file)
    return paths


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, FILES)


@pytest.fixture
def repository(repo: Path) -> Repository:
    repository = make_repository("acme/shop", url=str(repo))
    build_now(repository)
    return repository


def _update(repository: Repository) -> OpenIndex:
    build_now(repository)
    return verify(repository.index_path)


def _assert_like_a_clean_build(repository: Repository, repo: Path) -> None:
    clean = make_repository(f"acme/clean-{head(repo)[:8]}-{random.random()}", url=str(repo))  # noqa: S311
    expected_row = build_now(clean)
    row = Index.objects.filter(repository=repository, status="ready").latest("pk")
    found, expected = verify(repository.index_path), verify(clean.index_path)
    assert contents(found) == contents(expected)
    assert found.manifest.coverage == expected.manifest.coverage
    assert found.manifest.profile.languages == expected.manifest.profile.languages
    assert found.manifest.profile.readme == expected.manifest.profile.readme
    assert (found.manifest.files, found.manifest.chunks) == (expected.manifest.files, expected.manifest.chunks)
    assert _counts(row) == _counts(expected_row)
    assert _skips(row) == _skips(expected_row)


def _counts(index: Index) -> tuple[object, ...]:
    counts = index.files_done, index.files_known, index.chunks_done, index.chunks_known
    return index.commit, *counts, index.skipped, index.warnings


def _skips(index: Index) -> list[tuple[str, str]]:
    return list(index.skip_list.values_list("path", "reason"))


def test_it_reads_only_the_file_that_changed(
    repository: Repository, repo: Path, parsed: list[bytes], embedder: StubEmbedder
) -> None:
    embedder.texts.clear()
    commit_files(repo, {"pkg/m3.py": _module(3, "return 2")})
    index = _update(repository)
    assert parsed == [b"pkg/m3.py"]
    assert embedder.texts
    assert all("m3" in text for text in embedder.texts)
    assert [segment.info.live_files for segment in index.segments] == [8, 1]
    assert index.find_file(b"pkg/m3.py") == (index.segments[1], 0)
    _assert_like_a_clean_build(repository, repo)


def test_it_loads_no_model_when_nothing_is_to_embed(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "is_current", lambda *_: True)
    monkeypatch.setattr(embedding, "get_embedder", lambda: pytest.fail("it was loaded"))
    _update(repository)
    commit_files(repo, {"pkg/m3.py": None})
    index = _update(repository)
    assert (index.manifest.commit, index.manifest.files) == (head(repo), 8)


def test_it_embeds_only_the_texts_of_a_file_that_are_new(
    repository: Repository, repo: Path, embedder: StubEmbedder
) -> None:
    functions = [f"def step_{number}(order):\n    return order + {number}\n\n\n" for number in range(40)]
    commit_files(repo, {"steps.py": "".join(functions)})
    build_now(repository)
    before = len(embedder.texts)
    commit_files(repo, {"steps.py": "".join([*functions, "def last_step(order):\n    return order\n"])})
    build_now(repository)
    assert 0 < len(embedder.texts) - before < before / 4


def test_it_forgets_deleted_files_in_every_list(repository: Repository, repo: Path) -> None:
    commit_files(repo, {"pkg/m5.py": None})
    index = _update(repository)
    assert index.find_file(b"pkg/m5.py") is None
    corpus = corpus_of(repository)
    vector = StubEmbedder().embed_queries([FILES["pkg/m5.py"]])[0]
    pool = retrieve(corpus, [Query("original", 1.0, wording("act_5 Thing5 Module 5"), vector)])
    assert len(pool.chunks)
    found = {corpus.path(int(row)) for row in [*pool.files, *pool.file_rows]}
    assert b"pkg/m5.py" not in found
    _assert_like_a_clean_build(repository, repo)


def test_it_finds_a_renamed_file_under_its_new_path_only(
    repository: Repository, repo: Path, parsed: list[bytes]
) -> None:
    run_git(repo, "mv", "pkg/m2.py", "pkg/renamed.py")
    commit_files(repo, {})
    index = _update(repository)
    assert parsed == [b"pkg/renamed.py"]
    assert index.find_file(b"pkg/m2.py") is None
    _assert_like_a_clean_build(repository, repo)


def test_it_publishes_a_commit_that_changes_no_file(repository: Repository, repo: Path, parsed: list[bytes]) -> None:
    commit_files(repo, {})
    index = _update(repository)
    assert (parsed, index.manifest.commit, len(index.segments)) == ([], head(repo), 1)
    run_git(repo, "update-index", "--chmod=+x", "pkg/m1.py")
    run_git(repo, "commit", "--quiet", "-m", "executable")
    assert len(_update(repository).segments) == 1
    assert parsed == []


def test_it_follows_files_that_become_links_folders_and_binaries(repository: Repository, repo: Path) -> None:
    for path in ("pkg/m1.py", "pkg/m2.py"):
        (repo / path).unlink()
    (repo / "pkg/m1.py").symlink_to("m3.py")
    commit_files(repo, {"pkg/m2.py/inner.py": "x = 1\n", "pkg/m4.py": b"\x00\x01binary", "empty.txt": "words\n"})
    _update(repository)
    _assert_like_a_clean_build(repository, repo)


def test_it_compares_whole_trees_when_the_base_is_gone(
    repository: Repository, repo: Path, parsed: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_git(repo, "commit", "--quiet", "--amend", "-m", "other history", "--no-edit", "--allow-empty")
    commit_files(repo, {"pkg/m3.py": _module(3, "return 3"), "pkg/m6.py": None, "also-empty.txt": ""})

    def gone(*_: object) -> None:
        raise git.MissingObject("gone")

    monkeypatch.setattr(git, "changed_files", gone)
    _update(repository)
    assert parsed == [b"pkg/m3.py"]
    _assert_like_a_clean_build(repository, repo)


def test_it_follows_a_force_push(repository: Repository, repo: Path, parsed: list[bytes]) -> None:
    commit_files(repo, {"pkg/new.py": _module(20)})
    build_now(repository)
    run_git(repo, "reset", "--quiet", "--hard", "HEAD~1")
    commit_files(repo, {"pkg/m7.py": _module(7, "return 8")})
    parsed.clear()
    _update(repository)
    assert parsed == [b"pkg/m7.py"]
    _assert_like_a_clean_build(repository, repo)


@pytest.mark.parametrize(
    "change",
    [
        {".assistantignore": "pkg/m1.py\n"},
        {".gitattributes": "pkg/m1.py linguist-vendored\n"},
        {f"pkg/m{number}.py": _module(number, "return 9") for number in range(5)},
    ],
    ids=["ignore file", "attributes", "most files"],
)
def test_it_parses_everything_when_a_change_concerns_most(
    repository: Repository, repo: Path, parsed: list[bytes], change: dict[str, str | bytes | None]
) -> None:
    commit_files(repo, change)
    index = _update(repository)
    assert len(parsed) > 5
    assert len(index.segments) == 1
    _assert_like_a_clean_build(repository, repo)


def test_it_parses_everything_when_files_are_cut_otherwise(
    repository: Repository, parsed: list[bytes], settings: Settings
) -> None:
    before = chunking_fingerprint(repository)
    settings.CHUNK_TARGET_CHARS = 200
    assert chunking_fingerprint(repository) != before
    assert _update(repository).manifest.chunking == chunking_fingerprint(repository)
    assert len(parsed) == 9


def test_it_reads_other_files_when_the_rules_changed(repository: Repository, parsed: list[bytes]) -> None:
    repository.file_rules = "pkg/m[0-3].py\n"
    repository.save()
    index = _update(repository)
    assert len(parsed) == 5
    assert index.manifest.files == 5


def test_it_parses_everything_on_request(repository: Repository, parsed: list[bytes]) -> None:
    build_now(repository, rebuild=True)
    assert len(parsed) == 9


def test_it_embeds_beside_the_live_index_when_the_model_changed(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = StubEmbedder(revision="2")
    monkeypatch.setattr(embedding, "get_embedder", lambda: other)
    commit_files(repo, {"pkg/m3.py": _module(3, "return 2")})
    index = _update(repository)
    assert (index.manifest.model, len(index.segments)) == (other.info, 1)


class WiderEmbedder(StubEmbedder):
    """The same model with twice the dimensions."""

    dimensions = 128

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        narrow = super().embed_documents(texts)
        return np.hstack([narrow, np.zeros_like(narrow)])


def test_it_never_mixes_vectors_of_two_sizes(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = WiderEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: wider)
    commit_files(repo, {"pkg/m3.py": _module(3, "return 2")})
    index = _update(repository)
    vectors = [segment.vectors(name) for segment in index.segments for name in ("code", "files")]
    assert {one.floats.shape[1] for one in vectors if one is not None} == {128}
    assert {one.bits.shape[1] for one in vectors if one is not None} == {2}  # words of 64 bits
    assert index.manifest.model == wider.info


def test_it_tells_of_files_cut_by_lines_as_long_as_they_are_as_they_were(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexing.compacting.MAX_SEGMENTS", 2)
    said = []
    for change in (
        {"a.bat": "echo 1\n", "b.bat": "echo 2\n"},
        {"pkg/m3.py": _module(3, "return 2")},
        {"a.bat": "echo 3\n"},
        {"b.bat": None, "pkg/m4.py": _module(4, "return 2")},
        {"a.bat": None},
    ):
        commit_files(repo, dict(change))
        _update(repository)
        said.append(Index.objects.latest("pk").warnings)
        _assert_like_a_clean_build(repository, repo)
    two, one = "2 files were cut by lines: no grammar for batch", "1 file was cut by lines: no grammar for batch"
    assert said == [[two], [two], [two], [one], []]


def test_it_keeps_the_number_of_segments_small(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexing.compacting.MAX_SEGMENTS", 4)
    counts = []
    for number in range(8, 13):
        commit_files(repo, {f"pkg/m{number}.py": _module(number)})
        counts.append(len(_update(repository).segments))
    assert counts[:3] == [2, 3, 4]
    assert max(counts[3:]) < 4
    _assert_like_a_clean_build(repository, repo)


def test_it_equals_a_clean_build_after_any_changes(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexing.compacting.MAX_SEGMENTS", 2)
    monkeypatch.setattr("indexing.compacting.BLOCK_ROWS", 3)
    monkeypatch.setattr("indexing.postings.SLICE_ITEMS", 5)
    monkeypatch.setattr("indexing.vectorising.WINDOW_CHUNKS", 4)
    rng = random.Random(7)
    for step in range(6):
        change: dict[str, str | bytes | None] = {}
        for _ in range(rng.randint(1, 3)):
            path = f"{rng.choice(['pkg', 'a', 'z'])}/m{rng.randrange(8)}.py"
            exists = (repo / path).exists()
            kind = rng.choice(["text", "text", "delete", "binary", "same"])
            if kind == "delete" or kind == "same":
                change |= {path: None} if kind == "delete" and exists else {}
            else:
                change[path] = b"\x00\x01" if kind == "binary" else _module(rng.randrange(30), f"return {step}")
        commit_files(repo, change)
        index = _update(repository)
        assert len(index.segments) <= 2
    _assert_like_a_clean_build(repository, repo)


def test_it_writes_little_for_a_small_change(tmp_path: Path, parsed: list[bytes]) -> None:
    sizes = {}
    for name, files in (("small", 20), ("large", 200)):
        repo = make_repo(tmp_path, {f"m{number}.py": _module(number) for number in range(files)}, name=name)
        repository = make_repository(name, url=str(repo))
        build_now(repository)
        known = {file: file.stat().st_mtime_ns for file in repository.index_path.rglob("*.npy")}
        parsed.clear()
        commit_files(repo, {"m7.py": _module(7, "return 7")})
        build_now(repository)
        assert parsed == [b"m7.py"]
        written = [file for file in repository.index_path.rglob("*.npy") if file not in known]
        assert all(file.stat().st_mtime_ns == known[file] for file in known)
        sizes[name] = sum(file.stat().st_size for file in written)
    assert sizes["large"] - sizes["small"] <= 200  # one byte of tombstone a file
    assert sizes["large"] < 20_000


def test_it_starts_over_when_a_kill_came_between_the_index_and_its_row(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_files(repo, {"pkg/m3.py": None, "other-empty.txt": ""})

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(building._Build, "_make_current", killed)
        with pytest.raises(KeyboardInterrupt):
            build_now(repository)
    commit_files(repo, {"pkg/m3.py": _module(3), "other-empty.txt": None})
    _update(repository)
    _assert_like_a_clean_build(repository, repo)


@pytest.mark.parametrize("place", ["kept_segments", "collect", "compact", "publish"])
def test_it_goes_on_after_a_kill_anywhere(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    commit_files(repo, {"pkg/m3.py": _module(3, "return 4"), "pkg/m4.py": None})
    real = getattr(building, place)

    def killed(*arguments: Any, **named: Any) -> None:
        real(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(building, place, killed)
        with pytest.raises(KeyboardInterrupt):
            build_now(repository)
    verify(repository.index_path)
    _update(repository)
    _assert_like_a_clean_build(repository, repo)


def test_it_makes_a_damaged_index_anew(repository: Repository, repo: Path, parsed: list[bytes]) -> None:
    next(repository.index_path.rglob("vectors.code.bits*.npy")).unlink()
    commit_files(repo, {"pkg/m3.py": None})
    _update(repository)
    assert len(parsed) == 8


def test_it_can_be_searched_by_words_while_a_damaged_index_is_made_anew(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    next(repository.index_path.rglob("vectors.code.bits*.npy")).unlink()
    monkeypatch.setattr(embedding, "get_embedder", lambda: StubEmbedder(fail_at=1))
    with pytest.raises(IndexingError):
        build_now(repository)
    coverage = verify(repository.index_path).manifest.coverage
    assert (coverage.lexical, coverage.vectors) == (1.0, 0.0)


def test_it_copies_no_damage_when_segments_are_merged(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexing.compacting.MAX_SEGMENTS", 1)
    part = next(repository.index_path.rglob("terms.code_stems.freqs.npy"))
    part.write_bytes(part.read_bytes()[:-1] + b"\x99")
    commit_files(repo, {"pkg/m3.py": _module(3, "return 5")})
    _update(repository)
    _assert_like_a_clean_build(repository, repo)


def test_it_leaves_the_old_index_when_an_update_fails(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(open_index(repository.index_path))
    commit_files(repo, {"pkg/m3.py": _module(3, "return something_else()"), "pkg/m1.py": None})
    monkeypatch.setattr(embedding, "get_embedder", lambda: StubEmbedder(fail_at=1))
    with pytest.raises(IndexingError):
        build_now(repository)
    assert contents(verify(repository.index_path)) == before
    repository.refresh_from_db()
    assert repository.commits_behind == 1


def test_it_follows_the_readme(repository: Repository, repo: Path) -> None:
    commit_files(repo, {"README.rst": "Shop\n====\n\nThe other page says what this shop is for, at length.\n"})
    _update(repository)
    _assert_like_a_clean_build(repository, repo)
    commit_files(repo, {"README.md": None})
    readme = _update(repository).manifest.profile.readme
    assert readme is not None
    assert readme.path == "README.rst"
    _assert_like_a_clean_build(repository, repo)


def test_it_makes_the_profile_anew_when_enough_changed(repository: Repository, repo: Path) -> None:
    first = open_index(repository.index_path).manifest.profile
    commit_files(repo, {f"pkg/m{number}.py": "def zebra_stripes():\n    return 1\n" for number in range(3)})
    profile = _update(repository).manifest.profile
    assert "zebra" in profile.terms
    assert (profile.changed_files, profile.id != first.id) == (0, True)


def test_it_keeps_descriptions_of_what_was_only_moved(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.DESCRIBE_CHUNKS, settings.LLM_MODEL = True, "ollama/test"
    asked: list[str] = []

    def describe_chunks(items: Any, *, repository_id: int, budget: Any) -> Iterator[tuple[int, str]]:
        for position, item in enumerate(items):
            asked.append(item.path)
            yield position, f"Acts on the thing that {item.symbol or item.path} names."

    monkeypatch.setattr("indexing.description_parts.describe_chunks", describe_chunks)
    monkeypatch.setattr(building, "FIRST_SLICE", 3)
    first = _update(repository)
    assert set(asked) == {path for path in FILES if path.endswith((".py", ".md"))}
    assert first.manifest.generation > 4  # in slices
    asked.clear()
    run_git(repo, "mv", "pkg/m2.py", "pkg/renamed.py")
    commit_files(repo, {"pkg/m6.py": _module(6, "return 'changed'")})
    index = _update(repository)
    assert set(asked) == {"pkg/m6.py"}
    found = index.find_file(b"pkg/renamed.py")
    assert found is not None
    segment, row = found
    first_chunk = int(segment.file_chunks[row])
    assert "m2" in segment.chunk(first_chunk).description or "Thing2" in segment.chunk(first_chunk).description
    assert index.manifest.coverage.descriptions == first.manifest.coverage.descriptions


def test_it_resumes_an_update_with_what_was_embedded(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.EMBEDDING_BATCH = 1
    commit_files(repo, {"pkg/m3.py": _module(3, "return unheard_of()")})
    failing, resumed = StubEmbedder(fail_at=2), StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: failing)
    with pytest.raises(IndexingError):
        build_now(repository)
    monkeypatch.setattr(embedding, "get_embedder", lambda: resumed)
    build_now(repository)
    assert len(failing.texts) == 1
    assert failing.texts[0] not in resumed.texts
    _assert_like_a_clean_build(repository, repo)


def test_it_does_not_take_vectors_that_are_no_unit_rows(repository: Repository, repo: Path) -> None:
    commit_files(repo, {"pkg/m3.py": _module(3, "return 2")})
    part = next(repository.index_path.rglob("vectors.files.floats*.npy"))
    raw = bytearray(part.read_bytes())
    raw[-16 * 128 :] = bytes(16 * 128)
    part.write_bytes(raw)
    build_now(repository)
    floats = [segment.vectors("files").floats for segment in open_index(repository.index_path).segments[1:]]
    assert all(np.allclose(np.linalg.norm(rows.astype(float), axis=1), 1, atol=0.02) for rows in floats)


def test_it_shows_progress_over_the_whole_repository(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    real = Vectoriser.vectorise

    def vectorise(self: Vectoriser, *arguments: Any, **named: Any) -> Any:
        index = Index.objects.latest("pk")
        seen.append((index.chunks_done, index.chunks_known))
        return real(self, *arguments, **named)

    monkeypatch.setattr(Vectoriser, "vectorise", vectorise)
    total = open_index(repository.index_path).chunk_count
    commit_files(repo, {"pkg/m3.py": _module(3, "return 2")})
    build_now(repository)
    ((done, known),) = seen
    assert 0 < done < known == total
