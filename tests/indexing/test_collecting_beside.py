"""A tree that two processes read gives what one gives, whatever happens to the second one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from indexing import building, collecting_beside, embedding, git, suspects
from indexing.building import build_now
from indexing.collecting_beside import Done, ranges
from indexing.errors import MissingObject
from indexing.git import TreeEntry
from indexing.index_format import open_index, verify
from indexing.models import Index, Repository
from tests.factories import make_repo, make_repository
from tests.indexing.index_contents import contents
from tests.indexing.stub_embedder import StubEmbedder
from tests.measure_updates import module_text

pytestmark = pytest.mark.django_db

FILES: dict[str, str | bytes] = {f"pkg/m{number}.py": module_text(number) for number in range(12)}
OTHERS: dict[str, str | bytes] = {"README.md": "# Shop\n\nSells things.\n", "a.bat": "echo 1\n", "z/empty.py": ""}


@pytest.fixture(autouse=True)
def finished(monkeypatch: pytest.MonkeyPatch) -> list[Done]:
    """Ranges that the second process has read. Everything as it is for large trees, with small numbers."""
    stub, found = StubEmbedder(), list[Done]()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    monkeypatch.setattr(building, "FILES_FOR_TWO", 1)
    monkeypatch.setattr(building.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(collecting_beside, "FIRST_RANGE_BYTES", 10_000)
    monkeypatch.setattr(collecting_beside, "RANGE_BYTES", 20_000)
    receive = collecting_beside._Beside._receive

    def received(self: Any) -> Done:
        found.append(receive(self))
        return found[-1]

    monkeypatch.setattr(collecting_beside._Beside, "_receive", received)
    return found


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository("acme/shop", url=str(make_repo(tmp_path, FILES | OTHERS)))


def _assert_like_one_process(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Index.objects.get(repository=repository)
    monkeypatch.setattr(building, "FILES_FOR_TWO", 10**9)
    clean = make_repository("acme/clean", url=repository.mirror.url)
    expected_row = build_now(clean)
    found, expected = verify(repository.index_path), verify(clean.index_path)
    assert contents(found) == contents(expected)
    mine, other = found.manifest.profile, expected.manifest.profile
    assert (mine.languages, mine.terms, mine.readme) == (other.languages, other.terms, other.readme)
    for name in ("files_done", "files_known", "chunks_done", "chunks_known", "skipped", "warnings"):
        assert getattr(row, name) == getattr(expected_row, name)
    assert list(row.skip_list.values_list("path")) == list(expected_row.skip_list.values_list("path"))


def test_two_processes_give_what_one_gives(
    repository: Repository, finished: list[Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    build_now(repository)
    assert sum(done.collected.files for done in finished) > 0
    _assert_like_one_process(repository, monkeypatch)


def test_a_second_process_that_ends_at_once_costs_nothing(
    repository: Repository, finished: list[Done], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting_beside, "WORKER", (sys.executable, "-c", ""))
    build_now(repository)
    assert finished == []
    _assert_like_one_process(repository, monkeypatch)


def test_a_file_that_crashes_the_second_process_is_left_out_and_the_others_are_indexed(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It notes the last file of its first range and dies of it, as of a parser; so does the trial alone."""
    dies = (
        "import os, pickle, sys, django; django.setup();"
        "_, folder = pickle.load(sys.stdin.buffer); _, entries = pickle.load(sys.stdin.buffer);"
        "from indexing.suspects import Suspects; Suspects(folder).reading(entries[-1].blob_id); os.abort()"
    )
    monkeypatch.setattr(collecting_beside, "WORKER", (sys.executable, "-c", dies))
    monkeypatch.setattr(suspects, "PROBE", (sys.executable, "-c", "import os; os.abort()"))
    index = build_now(repository)
    assert index.skipped == {"empty": 1, "parser": 1}
    assert open_index(repository.index_path).manifest.files == len(FILES | OTHERS) - 2
    assert not (repository.index_path / "partial").exists()


def test_it_is_an_error_when_the_list_of_files_breaks_off(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_tree = git.list_tree

    def broken(mirror_path: Path, commit: str) -> Iterator[TreeEntry]:
        yield from list(list_tree(mirror_path, commit))[:6]
        raise MissingObject("a tree is gone")

    lists = [list_tree, broken]  # the first time files are counted
    monkeypatch.setattr(git, "list_tree", lambda *arguments: lists.pop(0)(*arguments))
    monkeypatch.setattr(git, "remake_mirror", lambda *_, **__: lists.extend([list_tree, broken]))
    with pytest.raises(Exception, match="a tree is gone"):
        build_now(repository)


def test_the_second_process_ends_with_the_build(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def popen(command: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = real(command, **options)
        if command == collecting_beside.WORKER:
            started.append(process)
        return process

    monkeypatch.setattr(collecting_beside.subprocess, "Popen", popen)
    build_now(repository)
    assert [process.poll() is not None for process in started] == [True]


def test_it_makes_ranges_of_about_the_same_size_in_order() -> None:
    entries = [TreeEntry(0o100644, "a" * 40, size, b"%d" % size) for size in (9_000, 600, 5_000, 10**8, 1)]
    assert [[entry.size for entry in some] for some in ranges(entries)] == [[9_000, 600], [5_000, 10**8], [1]]
