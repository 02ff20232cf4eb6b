from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from indexing.index_format import ModelInfo
from indexing.vector_cache import HelperCache, TextHasher, VectorCache

MODEL = ModelInfo(id="m", revision="r", dimensions=4)
ROWS = np.eye(4, dtype=np.float32)


def _open(directory: Path, model: ModelInfo = MODEL) -> VectorCache:
    return VectorCache(directory, model, published=None)


def _hashes(*texts: str) -> list[bytes]:
    return [TextHasher(MODEL).hash(text) for text in texts]


def _partial_file(directory: Path) -> Path:
    return next((directory / "partial").glob("*.vectors"))


def test_it_gives_rows_back_in_the_order_asked_for(tmp_path: Path) -> None:
    a, b, c = _hashes("a", "b", "c")
    with _open(tmp_path) as cache:
        cache.add([a, b], ROWS[:2])
        cache.add([c], ROWS[2:3])
        blocks = list(cache.blocks(c + a + a))
    assert np.array_equal(np.concatenate(blocks), ROWS[[2, 0, 0]])


def test_it_resumes_what_was_embedded_before_a_kill(tmp_path: Path) -> None:
    a, b = _hashes("a", "b")
    _open(tmp_path).add([a], ROWS[:1])  # never closed, as after kill -9
    with _open(tmp_path) as cache:
        assert (a in cache, b in cache, cache.resumed) == (True, False, 1)
        cache.add([b], ROWS[1:2])
        assert np.array_equal(next(iter(cache.blocks(b + a))), ROWS[[1, 0]])


def test_it_drops_a_torn_last_record(tmp_path: Path) -> None:
    a, b = _hashes("a", "b")
    with _open(tmp_path) as cache:
        cache.add([a, b], ROWS[:2])
    file = _partial_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-3])
    with _open(tmp_path) as cache:
        assert (a in cache, b in cache) == (True, False)
        cache.add([b], ROWS[3:])
        assert np.array_equal(next(iter(cache.blocks(a + b))), ROWS[[0, 3]])


def test_it_drops_a_record_that_lost_its_content(tmp_path: Path) -> None:
    a, b = _hashes("a", "b")
    with _open(tmp_path) as cache:
        cache.add([a, b], ROWS[:2])
    file = _partial_file(tmp_path)
    file.write_bytes(bytes(24) + file.read_bytes()[24:])
    with _open(tmp_path) as cache:
        assert (a in cache, bytes(16) in cache, b in cache) == (False, False, True)


@pytest.mark.parametrize("change", [{"id": "n"}, {"revision": "s"}, {"document_prompt": "p"}, {"dimensions": 2}])
def test_it_never_mixes_vectors_of_two_models(tmp_path: Path, change: dict[str, object]) -> None:
    other = replace(MODEL, **change)
    with _open(tmp_path) as cache:
        cache.add(_hashes("a"), ROWS[:1])
    with _open(tmp_path, other) as cache:
        assert TextHasher(other).hash("a") not in cache
        assert cache.resumed == 0


def test_it_refuses_a_hash_it_does_not_know(tmp_path: Path) -> None:
    with _open(tmp_path) as cache, pytest.raises(KeyError):
        list(cache.blocks(_hashes("a")[0]))


def test_it_leaves_nothing_behind_when_done(tmp_path: Path) -> None:
    with _open(tmp_path) as cache:
        cache.add(_hashes("a"), ROWS[:1])
        cache.discard_partial()
    assert not (tmp_path / "partial").exists()


def test_it_copies_what_a_helper_embedded_and_leaves_a_torn_record_for_later(tmp_path: Path) -> None:
    a, b, c = _hashes("a", "b", "c")
    with _open(tmp_path) as cache, HelperCache(tmp_path, MODEL, helper="one") as helper:
        cache.add([a], ROWS[:1])
        helper.add([a, b, c], ROWS[1:])
        file = next((tmp_path / "partial").glob("*.one.vectors"))
        whole = file.read_bytes()
        file.write_bytes(whole[:-3])
        assert (cache.take_others(), b in cache, c in cache) == (1, True, False)
        file.write_bytes(whole)
        assert (cache.take_others(), cache.take_others()) == (1, 0)
        assert np.array_equal(next(iter(cache.blocks(a + b + c))), ROWS[[0, 2, 3]])
    file.unlink()
    assert b in _open(tmp_path)


def test_it_passes_over_a_helpers_record_that_lost_its_content(tmp_path: Path) -> None:
    with _open(tmp_path) as cache, HelperCache(tmp_path, MODEL, helper="one") as helper:
        helper.add(_hashes("a", "b"), np.stack([ROWS[0] * 0, ROWS[1]]))
        assert (cache.take_others(), _hashes("a")[0] in cache) == (1, False)


def test_a_helper_knows_what_others_embedded(tmp_path: Path) -> None:
    with _open(tmp_path) as cache, HelperCache(tmp_path, MODEL, helper="one") as helper:
        cache.add(_hashes("a"), ROWS[:1])
        assert (helper.take_others(), _hashes("a")[0] in helper) == (1, True)
