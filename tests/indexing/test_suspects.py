from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from django.db import connections

from indexing import collecting, embedding, suspects, tasks
from indexing.building import build_now, open_build
from indexing.index_format import open_index
from indexing.models import Index, Job, Repository
from indexing.suspects import Suspects
from indexing.walking import SourceFile, source_of
from tests.factories import make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

FILES: dict[str, str | bytes] = {f"m{number}.py": f"def f{number}():\n    return {number}\n" for number in range(6)}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    monkeypatch.setattr(tasks, "_send", lambda _queue: None)
    return make_repository("acme/shop", url=str(make_repo(tmp_path, FILES)))


def _crash_at(monkeypatch: pytest.MonkeyPatch, *paths: bytes) -> None:
    """As a parser that breaks on these files, in whatever process it runs."""
    real = collecting.chunk_file

    def chunk_file(source: SourceFile) -> object:
        if source.path in paths:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(source)

    monkeypatch.setattr(collecting, "chunk_file", chunk_file)
    monkeypatch.setattr(suspects, "PROBE", (sys.executable, "-c", "import os; os.abort()"))


def _attempt(repository: Repository) -> int:
    """In a process of its own; the signal that ended it, or 0. As a worker, it begins with what was interrupted."""
    tasks.recover_jobs()
    connections.close_all()
    child = os.fork()
    if child == 0:
        try:
            build_now(repository)
        finally:
            os._exit(0)
    return os.WTERMSIG(os.waitpid(child, 0)[1])


@pytest.mark.django_db(transaction=True)
def test_it_leaves_out_files_that_crash_the_parser_and_indexes_the_others(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    _crash_at(monkeypatch, b"m1.py", b"m2.py", b"m3.py", b"m4.py")
    open_build(repository)
    assert [_attempt(repository) for _ in range(5)] == [signal.SIGKILL] * 4 + [0]
    index = Index.objects.get(repository=repository)
    assert (index.status, index.skipped, Job.objects.get(index=index).attempts) == ("ready", {"parser": 4}, 1)
    assert [row.path for row in index.skip_list] == ["m1.py", "m2.py", "m3.py", "m4.py"]
    assert open_index(repository.index_path).manifest.files == 2
    assert not (repository.index_path / "partial").exists()


def _source(text: bytes = b"x = 1\n") -> SourceFile:
    source = source_of(b"a.py", "a" * 40, text)
    assert isinstance(source, SourceFile)
    return source


def _die_while_reading(folder: Path) -> None:
    Suspects(folder).reading(_source().blob_id)  # never left, as after kill -9
    suspects.faulthandler.cancel_dump_traceback_later()


def test_it_acquits_a_file_that_survives_a_process_of_its_own(tmp_path: Path) -> None:
    _die_while_reading(tmp_path)
    with Suspects(tmp_path) as noted:
        assert noted.is_new
        assert not noted.must_be_left_out(_source())


def test_it_leaves_out_what_was_noted_twice(tmp_path: Path) -> None:
    _die_while_reading(tmp_path)
    _die_while_reading(tmp_path)
    with Suspects(tmp_path) as noted:
        assert not noted.is_new
        assert noted.must_be_left_out(_source())


def test_it_blames_no_file_that_was_read(tmp_path: Path) -> None:
    noted = Suspects(tmp_path)
    noted.reading(_source().blob_id)
    noted.done()
    noted.rest()
    with Suspects(tmp_path) as after:
        assert not after.is_new
        assert not after.must_be_left_out(_source())


def test_it_gives_up_a_probe_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "PROBE", (sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(suspects, "PROBE_SECONDS", 0.3)
    _die_while_reading(tmp_path)
    with Suspects(tmp_path) as noted:
        assert noted.must_be_left_out(_source())


def test_its_watchdog_ends_a_process_that_hangs_in_native_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "FILE_SECONDS", 0.3)
    child = os.fork()
    if child == 0:
        with Suspects(tmp_path) as noted:
            noted.reading(_source().blob_id)
            sum(range(1 << 60))  # one call that holds the interpreter's lock and never comes back
        os._exit(0)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 1
    with Suspects(tmp_path) as after:
        assert after.is_new
