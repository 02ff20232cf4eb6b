"""Text hash -> vector, so that no text is embedded twice: from the published index, or from this build so far.

What a build embeds is appended to `partial/<model>.vectors` in records of one size, so that a build that was killed
goes on where it stopped: a torn last record and a record whose vector is not a unit row are left out. The hash covers
the model, its revision, its prompt and the text: vectors of two models cannot meet. Holds no text.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from indexing.errors import DamagedIndex
from indexing.index_format import VECTOR_LISTS, ModelInfo, OpenIndex, VectorList

PARTIAL = "partial"
HASH_BYTES = 16
BLOCK_ROWS = 8_192
UNIT_TOLERANCE = 0.02  # float16 rows of 384 dimensions are off by less than 0.002


class TextHasher:
    """16 bytes that stand for a text under one model, revision, length of vectors and document prompt."""

    def __init__(self, model: ModelInfo) -> None:
        inputs = (model.id, model.revision, str(model.dimensions), model.document_prompt)
        self._start = hashlib.blake2b("\0".join(inputs).encode() + b"\0", digest_size=HASH_BYTES)

    def hash(self, text: str) -> bytes:
        state = self._start.copy()
        state.update(text.encode("utf-8", "surrogatepass"))
        return state.digest()


class VectorCache:
    """Use as a context manager. `discard_partial` ends what a later attempt would resume."""

    def __init__(self, directory: Path, model: ModelInfo, *, published: OpenIndex | None) -> None:
        self.dimensions = model.dimensions
        self._record = np.dtype([("hash", "V16"), ("vector", "<f2", (model.dimensions,))])
        self._path = directory / PARTIAL / f"{TextHasher(model).hash('').hex()}.vectors"
        self._places: dict[bytes, tuple[int, int]] = {}  # hash -> (array, row); array -1 is the partial file
        self._arrays: list[NDArray[np.float16]] = []
        self._partial_rows = 0
        if published is not None and published.manifest.model == model:
            self._take_published(published)
        self.reusable = len(self._places)
        self._take_partial()
        self.resumed = len(self._places) - self.reusable
        self._file = self._path.open("ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __contains__(self, text_hash: bytes) -> bool:
        return text_hash in self._places

    def add(self, hashes: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """vectors: (len(hashes), d) unit rows. On disk when this returns."""
        records = np.zeros(len(hashes), dtype=self._record)
        records["hash"] = np.frombuffer(b"".join(hashes), dtype="V16")
        records["vector"] = vectors
        self._file.write(records.tobytes())
        self._file.flush()
        self._remember_partial(hashes)

    def blocks(self, hashes: bytes) -> Iterator[NDArray[np.float16]]:
        """The rows of these hashes (16 bytes each), block by block, in order. Raises KeyError for one it lacks."""
        arrays = [*self._arrays, self._partial()]  # the last one is array -1
        for start in range(0, len(hashes), BLOCK_ROWS * HASH_BYTES):
            keys = _split(hashes[start : start + BLOCK_ROWS * HASH_BYTES])
            rows = np.empty((len(keys), self.dimensions), dtype=np.float16)
            for position, key in enumerate(keys):
                array, row = self._places[key]
                rows[position] = arrays[array][row]
            yield rows

    def take_all(self, vectors: VectorList) -> None:
        """Also the rows of a whole list, which stay where they are."""
        self._remember(_split(vectors.hashes.tobytes()), vectors.floats)

    def take(self, vectors: VectorList, first_owner: int, last_owner: int) -> None:
        """Also the published rows of some owners of a list, without those that are no unit rows."""
        rows = slice(int(vectors.starts[first_owner]), int(vectors.starts[last_owner]))
        floats = np.array(vectors.floats[rows])
        sound = _sound(floats)
        self._remember(_split(vectors.hashes[rows][sound].tobytes()), floats[sound])

    def _partial(self) -> NDArray[np.float16]:
        """Mapped: the vectors of a large repository need not fit in memory."""
        if not self._partial_rows:
            return np.zeros((0, self.dimensions), dtype=np.float16)
        records = np.memmap(self._path, dtype=self._record, mode="r", shape=(self._partial_rows,))
        vectors: NDArray[np.float16] = np.asarray(records["vector"])
        return vectors

    def discard_partial(self) -> None:
        self._file.close()
        shutil.rmtree(self._path.parent, ignore_errors=True)

    def _take_published(self, index: OpenIndex) -> None:
        for segment in index.segments:
            for name in VECTOR_LISTS:
                vectors = segment.vectors(name)
                if vectors is not None:
                    self.take_all(vectors)

    def _take_partial(self) -> None:
        """Sound records only; when others are found the file is written anew without them."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._path.exists():
            return
        sound = self._path.with_suffix(".tmp")
        with self._path.open("rb") as old, sound.open("wb") as new:
            while len(records := np.fromfile(old, dtype=self._record, count=BLOCK_ROWS)):  # stops before a torn one
                records = records[_sound(records["vector"])]
                new.write(records.tobytes())
                self._remember_partial(_split(records["hash"].tobytes()))
        sound.replace(self._path)

    def _remember_partial(self, hashes: Sequence[bytes]) -> None:
        for row, key in enumerate(hashes, self._partial_rows):
            self._places.setdefault(key, (-1, row))
        self._partial_rows += len(hashes)

    def _remember(self, hashes: Sequence[bytes], vectors: NDArray[np.float16]) -> None:
        number = len(self._arrays)
        self._arrays.append(vectors)
        for row, key in enumerate(hashes):
            self._places.setdefault(key, (number, row))


def _sound(vectors: NDArray[np.float16]) -> NDArray[np.bool_]:
    """(n, d) -> (n,) whether each is a unit row: what a crash or a disk damaged seldom is."""
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1)
    return np.asarray(np.abs(lengths - 1) < UNIT_TOLERANCE)


def _split(hashes: bytes) -> list[bytes]:
    return [hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)]


def reusable_index(index: OpenIndex) -> OpenIndex | None:
    """The index when every checksum holds, else None: a damaged vector must not be copied into the next index."""
    try:
        for folder in index.folders():
            folder.check_sizes()
            folder.check_hashes()
    except (DamagedIndex, OSError):
        return None
    return index
