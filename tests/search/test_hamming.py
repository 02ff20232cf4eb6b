from __future__ import annotations

from pathlib import Path

import numpy as np

from search.hamming import FEW_ROWS, cosines, top_rows


def bits(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.uint64).reshape(-1, 1)


def test_it_ranks_by_shared_bits_across_matrices() -> None:
    rows, similarities = top_rows(np.array([0b1011], np.uint64), [bits(0b0100, 0b1011), bits(0b1010)], 3)
    assert rows.tolist() == [1, 2, 0]
    assert similarities.tolist() == [1.0, 1 - 2 / 64, 1 - 8 / 64]


def test_it_breaks_ties_by_the_lower_row() -> None:
    rows, _ = top_rows(np.array([0], np.uint64), [bits(1, 2), bits(4, 8)], 3)
    assert rows.tolist() == [0, 1, 2]


def test_it_finds_the_same_rows_as_counting_every_bit() -> None:
    random = np.random.default_rng(7)
    matrix = random.integers(0, 2**63, size=(500, 6), dtype=np.uint64)
    query = random.integers(0, 2**63, size=6, dtype=np.uint64)
    distances = np.bitwise_count(matrix ^ query).sum(axis=1)
    expected = np.lexsort((np.arange(500), distances))[:20]
    rows, _ = top_rows(query, [matrix[:200], matrix[200:]], 20)
    assert sorted(distances[rows]) == sorted(distances[expected])


def test_it_reads_a_read_only_map(tmp_path: Path) -> None:
    np.save(tmp_path / "bits.npy", bits(1, 3))
    mapped = np.load(tmp_path / "bits.npy", mmap_mode="r")
    assert top_rows(np.array([3], np.uint64), [mapped], 1)[0].tolist() == [1]


def test_it_returns_nothing_from_nothing() -> None:
    rows, similarities = top_rows(np.array([3], np.uint64), [bits()], 5)
    assert (rows.size, similarities.size) == (0, 0)


def test_it_rescales_float16_rows_to_cosines() -> None:
    rows = np.array([[1, 0], [0.6, 0.8]], np.float16)
    assert np.allclose(cosines(np.array([0, 1], np.float32), rows), [0, 0.8], atol=1e-3)


def test_it_reads_every_finite_half_as_numpy_does() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    rows = np.stack([halves, np.zeros_like(halves)], axis=1)
    np.testing.assert_array_equal(cosines(np.array([1, 0], np.float32), rows), halves.astype(np.float32))


def test_it_finds_the_same_rows_in_one_large_matrix_as_in_small_ones() -> None:
    random = np.random.default_rng(5)
    matrix = random.integers(0, 2**8, (FEW_ROWS + 500, 1), dtype=np.uint64)
    query = random.integers(0, 2**8, 1, dtype=np.uint64)
    rows, similarities = top_rows(query, [matrix], 300)
    parts_rows, parts_similarities = top_rows(query, [matrix[:9_000], matrix[9_000:]], 300)
    assert rows.tolist() == parts_rows.tolist()
    assert similarities.tolist() == parts_similarities.tolist()
