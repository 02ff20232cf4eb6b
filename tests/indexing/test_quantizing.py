from __future__ import annotations

import numpy as np
import pytest

from indexing.quantizing import sign_bits


def test_it_sets_a_bit_for_each_component_that_is_not_negative() -> None:
    vectors = np.array([[0.5, -0.5, 0.0, -0.1], [-1, 1, -1, 1]], dtype=np.float32)
    assert sign_bits(vectors).tolist() == [[0b0101], [0b1010]]


def test_it_keeps_padding_bits_zero() -> None:
    bits = sign_bits(np.ones((1, 70), dtype=np.float32))
    assert bits.tolist() == [[2**64 - 1, 2**6 - 1]]


@pytest.mark.parametrize("value", [-1e-9, -0.0])
def test_it_judges_the_component_that_float16_keeps(value: float) -> None:
    vector = np.array([[value]], dtype=np.float32)
    assert sign_bits(vector).tolist() == sign_bits(vector.astype(np.float16)).tolist() == [[1]]


def test_it_takes_no_rows() -> None:
    assert sign_bits(np.zeros((0, 384), dtype=np.float16)).shape == (0, 6)
