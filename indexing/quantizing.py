"""Unit vectors -> float16 rows and the sign bits that the Hamming search compares.

Bits are taken from the float16 rows, not from the float32 ones: a component that float16 rounds to zero then has
the same bit wherever its vector comes from (just embedded, resumed, or copied from an older index).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sign_bits(vectors: NDArray[np.floating]) -> NDArray[np.uint64]:
    """(n, d) float16 or float32 -> (n, ceil(d / 64)) uint64. Bit j of word w is 1 when component 64 * w + j >= 0.

    Padding bits of the last word are 0.
    """
    rows, dimensions = vectors.shape
    words = -(-dimensions // 64)
    padded = np.zeros((rows, words * 64), dtype=bool)
    padded[:, :dimensions] = vectors.astype(np.float16) >= 0
    packed = np.packbits(padded, axis=1, bitorder="little")
    bits: NDArray[np.uint64] = packed.view("<u8").reshape(rows, words)
    return bits
