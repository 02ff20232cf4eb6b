"""Exact nearest rows over sign bits, and float16 rescoring of the few that matter.

`top_rows` is the seam for another vector store: query bits and row matrices in, best rows out. A distance is
turned into a similarity here and never leaves: higher is better everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bits = npt.NDArray[np.uint64]  # (rows, words) sign bits, padding bits zero
Floats = npt.NDArray[np.float32]

# Below that, filing rows by their distance is up to three times as fast as keeping the best in a heap; in a large
# matrix, where few rows get into the heap, it takes a fifth longer.
FEW_ROWS = 20_000
ROW_BITS = 40
BLOCK_ROWS = 256  # so many widened vectors stay in the processor's cache


def top_rows(query_bits: Bits, matrices: Sequence[Bits], k: int) -> tuple[npt.NDArray[np.int64], Floats]:
    """The k nearest rows of all matrices, seen as one matrix stacked in order.

    query_bits: (words,) uint64; matrices: each (n_i, words) uint64, C-contiguous, read-only maps are fine and
    are not copied. Returns rows (m,) int64 and similarities (m,) float32 with m = min(k, all rows), best
    first, ties by lower row. The similarity is 1 - 2 * distance / bits: 1 for equal, 0 for unrelated.
    """
    import faiss  # half a second to import: only processes that search pay for it

    # One thread: for one query, two threads took 52 ms where one took 0.9.
    faiss.omp_set_num_threads(1)
    query = np.ascontiguousarray(query_bits).reshape(1, -1).view(np.uint8)
    distances: list[npt.NDArray[np.int32]] = []
    rows: list[npt.NDArray[np.int64]] = []
    first = 0
    for matrix in matrices:
        if len(matrix):
            way = "mc" if len(matrix) < FEW_ROWS else "hc"
            of_matrix, nearest = faiss.knn_hamming(query, matrix.view(np.uint8), min(k, len(matrix)), variant=way)
            nearest += first
            distances.append(of_matrix[0])
            rows.append(nearest[0])
        first += len(matrix)
    if not rows:
        return np.empty(0, np.int64), np.empty(0, np.float32)
    best = np.concatenate(distances, dtype=np.int64)  # distance and row in one number, which sorts as both
    best <<= ROW_BITS
    best += np.concatenate(rows)
    if len(best) > k:
        best = np.partition(best, k - 1)[:k]
    best.sort()
    bits = query_bits.size * 64
    return best & ((1 << ROW_BITS) - 1), (1 - 2 * (best >> ROW_BITS) / bits).astype(np.float32)


def cosines(query: Floats, rows: npt.NDArray[np.float16]) -> Floats:
    """query: (d,) unit; rows: (n, d) float16, unit up to rounding. Returns (n,) float32."""
    blocks = range(0, len(rows), BLOCK_ROWS)
    return np.concatenate([np.empty(0, np.float32), *(_widened(rows[at : at + BLOCK_ROWS]) @ query for at in blocks)])


def _widened(halves: npt.NDArray[np.float16]) -> Floats:
    """The same finite numbers as float32; `astype` takes seven times as long, and this is most of rescoring.

    Sign and fraction move to where float32 has them, and a product puts the exponent right.
    """
    bits = halves.view(np.int16).astype(np.int32)
    bits <<= 13
    bits &= np.int32(-0x70000001)
    floats = bits.view(np.float32)
    floats *= np.float32(2.0**112)
    return floats
