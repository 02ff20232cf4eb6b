"""One `.npy` file written piece by piece: how many rows it gets is known at its end only, and not all are in memory.

Written with plain writes instead of through a map, because pages of a map count as memory of whoever touched them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


class ArrayFile:
    """`row_shape` is what comes after the number of rows: (d,) for vectors. Refuses a file that exists."""

    def __init__(self, path: Path, dtype: DTypeLike, *, row_shape: tuple[int, ...] = ()) -> None:
        self.dtype = np.dtype(dtype)
        self.rows = 0
        self._row_shape = row_shape
        self._file = path.open("xb")
        self._header_bytes = self._write_header()

    def append(self, rows: NDArray[Any]) -> None:  # Any: converted to the file's own dtype
        block = np.ascontiguousarray(rows, dtype=self.dtype).reshape(-1, *self._row_shape)
        self._file.write(block.tobytes())
        self.rows += len(block)

    def close(self) -> None:
        """On disk when this returns."""
        self._file.seek(0)
        if self._write_header() != self._header_bytes:
            raise ValueError(f"the header of {self._file.name} has outgrown its place")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def _write_header(self) -> int:
        """NumPy leaves room for a larger number of rows, so that the header can be written again in place."""
        shape = (self.rows, *self._row_shape)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
        return self._file.tell()


class StartsFile:
    """Counts -> where each owner's rows start, in one file of one number more than there are owners."""

    def __init__(self, path: Path, dtype: DTypeLike) -> None:
        self._file = ArrayFile(path, dtype)
        self._file.append(np.zeros(1))
        self._next = 0

    def append(self, counts: ArrayLike) -> None:
        """The next owners' numbers of rows."""
        starts = np.cumsum(np.asarray(counts, dtype=np.int64)) + self._next
        if len(starts):
            self._next = int(starts[-1])
        self._file.append(starts)

    def close(self) -> None:
        self._file.close()


class StringsFile:
    """A table of strings: `<name>.blob` and `<name>.starts`."""

    def __init__(self, blob: ArrayFile, starts: StartsFile) -> None:
        self._blob = blob
        self._starts = starts

    def append(self, raws: Iterable[bytes]) -> None:
        listed: Sequence[bytes] = list(raws)
        self.append_joined(np.frombuffer(b"".join(listed), dtype=np.uint8), [len(raw) for raw in listed])

    def append_joined(self, blob: NDArray[np.uint8], lengths: ArrayLike) -> None:
        self._blob.append(blob)
        self._starts.append(lengths)
