from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pytest_django import Settings

from indexing import segment_cache
from indexing.building import build_now
from indexing.errors import DamagedIndex
from indexing.index_format import file_hash
from indexing.models import Repository
from tests.factories import make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "local"
    settings.SEGMENT_CACHE_DIR = str(folder)
    monkeypatch.setattr(segment_cache, "_copied_bytes", float("inf"))
    return folder


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr("indexing.embedding.get_embedder", StubEmbedder)
    repository = make_repository(url=str(make_repo(tmp_path, {"a.py": "def sign(session):\n    return session\n"})))
    build_now(repository)
    return repository


@pytest.fixture
def away(settings: Settings) -> Iterator[None]:
    """The volume, as it looks where it is not mounted; call it in a test with `request.getfixturevalue`."""
    indexes = settings.DATA_DIR / "indexes"
    aside = indexes.rename(indexes.with_name("away"))
    indexes.mkdir()
    yield
    indexes.rmdir()
    aside.rename(indexes)


def copies(cache: Path) -> dict[str, Path]:
    return {path.name: path for path in (cache / "parts").glob("*/*")}


def a_part(repository: Repository) -> tuple[Path, str]:
    """The file of the paths on the volume, and its checksum."""
    segment = segment_cache.open_index(repository.index_path).segments[0]
    part = segment.parts["paths.blob"]
    return segment.path / part.file, part.hash


def test_it_reads_copies_whose_names_are_their_checksums(repository: Repository, cache: Path) -> None:
    index = segment_cache.open_index(repository.index_path)
    for folder in index.folders():
        shutil.rmtree(folder.path)
    assert index.segments[0].paths.raw(0) == b"a.py"
    assert index.segments[0].vectors("code") is not None
    assert index.profile is not None
    assert all(file_hash(path) == name for name, path in copies(cache).items())


def test_it_copies_a_file_once(repository: Repository, cache: Path) -> None:
    segment_cache.open_index(repository.index_path)
    before = {name: path.stat().st_ino for name, path in copies(cache).items()}
    segment_cache.open_index(repository.index_path)
    assert {name: path.stat().st_ino for name, path in copies(cache).items()} == before


def test_it_refuses_a_file_that_has_another_checksum(repository: Repository, cache: Path) -> None:
    file, part_hash = a_part(repository)
    shutil.rmtree(cache)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + b"\xff")  # of the same size
    with pytest.raises(DamagedIndex, match="wrong checksum"):
        segment_cache.open_index(repository.index_path)
    assert part_hash not in copies(cache)
    assert not [name for name in copies(cache) if name.endswith(segment_cache.UNFINISHED)]


def test_it_copies_again_what_was_cut_off(repository: Repository, cache: Path) -> None:
    _, part_hash = a_part(repository)
    copies(cache)[part_hash].write_bytes(b"")
    assert segment_cache.open_index(repository.index_path).segments[0].paths.raw(0) == b"a.py"


def test_it_answers_from_copies_while_the_volume_is_away(
    repository: Repository, request: pytest.FixtureRequest
) -> None:
    segment_cache.open_index(repository.index_path)
    request.getfixturevalue("away")
    assert segment_cache.volume_is_away()
    assert segment_cache.open_index(repository.index_path).segments[0].paths.raw(0) == b"a.py"


def test_it_knows_nothing_that_it_has_not_copied(repository: Repository, request: pytest.FixtureRequest) -> None:
    request.getfixturevalue("away")
    with pytest.raises(DamagedIndex, match="there is no index"):
        segment_cache.open_index(repository.index_path)


def test_it_removes_what_was_used_longest_ago(
    repository: Repository, cache: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SEGMENT_CACHE_MAX_MB = 1
    for number in range(3):
        place = cache / "parts" / "00" / f"old{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * 450_000)
        os.utime(place, (number, number))
    index = segment_cache.open_index(repository.index_path)
    monkeypatch.setattr(segment_cache, "_copied_bytes", float("inf"))
    segment_cache._make_room(0)
    assert {"old0", "old1", "old2"} & copies(cache).keys() == {"old2"}
    assert index.segments[0].paths.raw(0) == b"a.py"


def test_it_removes_what_a_dead_process_left(repository: Repository, cache: Path) -> None:
    left = cache / "parts" / "00" / f"{'0' * 64}.1{segment_cache.UNFINISHED}"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    os.utime(left, (1, 1))
    segment_cache.open_index(repository.index_path)
    assert not left.exists()


def test_it_reads_the_volume_where_the_local_disk_takes_nothing(
    repository: Repository, settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = tmp_path / "full"
    full.write_bytes(b"")  # no folder can be made below a file
    settings.SEGMENT_CACHE_DIR = str(full)
    assert segment_cache.open_index(repository.index_path).segments[0].paths.raw(0) == b"a.py"
    assert "the local disk took none" in caplog.text


def test_it_stays_whole_while_others_make_room(
    repository: Repository, cache: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SEGMENT_CACHE_MAX_MB = 0  # each copy is removed again at once
    expected = np.array(segment_cache.open_index(repository.index_path).segments[0].chunks)

    def read(_number: int) -> bool:
        return bool((segment_cache.open_index(repository.index_path).segments[0].chunks == expected).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(40)))
