"""Text hash -> vector, so that no text is embedded twice: from the published index, or from this build so far.

What a build embeds is appended to `partial/<model>.vectors` in records of one size, so that a build that was killed
goes on where it stopped: a torn last record and a record whose vector is not a unit row are left out. The hash covers
the model, its revision, its prompt and the text: vectors of two models cannot meet. Holds no text, and twelve bytes of
memory a vector. Workers that help have a file each, `partial/<model>.<helper>.vectors`, which the build copies from.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from indexing.errors import DamagedIndex
from indexing.index_format import VECTOR_LISTS, ModelInfo, OpenIndex, VectorList, release_pages

PARTIAL = "partial"
HASH_BYTES = 16
BLOCK_ROWS = 4_096
RECENT_PLACES = 16_384
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
    """Use as a context manager. `discard_partial` ends what a later attempt would resume.

    Vectors have places, numbered from 0 in the order in which they came; a run of places is a run of rows of one array.
    """

    def __init__(
        self, directory: Path, model: ModelInfo, *, published: OpenIndex | None, file_suffix: str = ".vectors"
    ) -> None:
        self.dimensions = model.dimensions
        self._record = np.dtype([("hash", "V16"), ("vector", "<f2", (model.dimensions,))])
        self._name = TextHasher(model).hash("").hex()
        self._path = directory / PARTIAL / f"{self._name}{file_suffix}"
        self._rows_taken: dict[Path, int] = {}  # of the files of other workers
        self._places = _Places()
        self._runs: list[_Run] = []
        self._next_place = 0
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
        return self._places.find(text_hash) is not None

    def add(self, hashes: Sequence[bytes], vectors: NDArray[np.floating]) -> None:
        """vectors: (len(hashes), d) unit rows. On disk when this returns."""
        records = np.zeros(len(hashes), dtype=self._record)
        records["hash"] = np.frombuffer(b"".join(hashes), dtype="V16")
        records["vector"] = vectors
        self._file.write(records.tobytes())
        self._file.flush()
        self._remember_partial(b"".join(hashes))

    def take_others(self) -> int:
        """Also what other workers have embedded since the last call; returns how many texts are new.

        A record that is not whole yet is left for the next call, one that is no unit row for good.
        """
        known = len(self._places)
        for path in sorted(self._path.parent.glob(f"{self._name}.*vectors")):
            rows, size = self._rows_taken.get(path, 0), self._record.itemsize
            if path == self._path or path.stat().st_size < (rows + 1) * size:
                continue
            with path.open("rb") as file:
                file.seek(rows * size)
                while len(records := np.fromfile(file, dtype=self._record, count=BLOCK_ROWS)):
                    rows += len(records)
                    self._take_records(records[_sound(records["vector"])])
            self._rows_taken[path] = rows
        return len(self._places) - known

    def _take_records(self, records: NDArray[np.void]) -> None:
        """Copied, so that an attempt after this one has them as well."""
        keys = _split(records["hash"].tobytes())
        new = [row for row, key in enumerate(keys) if key not in self]
        if new:
            self.add([keys[row] for row in new], records["vector"][new])

    def blocks(self, hashes: bytes) -> Iterator[NDArray[np.float16]]:
        """The rows of these hashes (16 bytes each), block by block, in order. Raises KeyError for one it lacks."""
        firsts = np.array([run.first_place for run in self._runs], dtype=np.int64)
        for start in range(0, len(hashes), BLOCK_ROWS * HASH_BYTES):
            keys = hashes[start : start + BLOCK_ROWS * HASH_BYTES]
            places = self._places.find_all(keys)
            rows = np.empty((len(places), self.dimensions), dtype=np.float16)
            run_of = np.searchsorted(firsts, places, side="right") - 1
            for number in np.unique(run_of).tolist():
                run, mine = self._runs[number], run_of == number
                array = self._partial() if run.array is None else run.array
                rows[mine] = array[places[mine] - run.first_place + run.first_row]
                release_pages(array)
            yield rows

    def take_all(self, vectors: VectorList) -> None:
        """Also the rows of a whole list, which stay where they are."""
        for start in range(0, len(vectors.hashes), BLOCK_ROWS):
            block = vectors.hashes[start : start + BLOCK_ROWS]
            self._remember(block.tobytes(), vectors.floats, start)
        release_pages(vectors.hashes)

    def take(self, vectors: VectorList, first_owner: int, last_owner: int) -> None:
        """Also the published rows of some owners of a list, without those that are no unit rows."""
        rows = slice(int(vectors.starts[first_owner]), int(vectors.starts[last_owner]))
        floats = np.array(vectors.floats[rows])
        sound = _sound(floats)
        self._remember(vectors.hashes[rows][sound].tobytes(), floats[sound], 0)

    def _partial(self) -> NDArray[np.float16]:
        """Mapped: the vectors of a large repository need not fit in memory."""
        records = np.memmap(self._path, dtype=self._record, mode="r", shape=(self._partial_rows,))
        vectors: NDArray[np.float16] = records["vector"]
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
                self._remember_partial(records["hash"].tobytes())
        sound.replace(self._path)

    def _remember_partial(self, hashes: bytes) -> None:
        self._remember(hashes, None, self._partial_rows)
        self._partial_rows += len(hashes) // HASH_BYTES

    def _remember(self, hashes: bytes, array: NDArray[np.float16] | None, first_row: int) -> None:
        rows = len(hashes) // HASH_BYTES
        last = self._runs[-1] if self._runs else None
        goes_on = (
            last is not None
            and last.array is array
            and first_row - last.first_row == self._next_place - last.first_place
        )
        if rows and not goes_on:
            self._runs.append(_Run(self._next_place, array, first_row))
        for position, key in enumerate(_split(hashes), self._next_place):
            self._places.add(key, position)
        self._next_place += rows


class HelperCache(VectorCache):
    """Of a worker that helps: it writes a file of its own, and of what others embedded it only knows that they did."""

    def __init__(self, directory: Path, model: ModelInfo, *, helper: str) -> None:
        super().__init__(directory, model, published=None, file_suffix=f".{helper}.vectors")

    def _take_records(self, records: NDArray[np.void]) -> None:
        for key in _split(records["hash"].tobytes()):
            self._places.add(key, 0)


@dataclass(frozen=True, slots=True)
class _Run:
    """Places from `first_place` on are rows of `array` from `first_row` on; no array stands for the partial file."""

    first_place: int
    array: NDArray[np.float16] | None
    first_row: int


class _Places:
    """Hash of a text -> place; the first one given stays.

    Sorted columns and a small table of what came last, because a dictionary takes twenty times as much memory. The
    first eight bytes of a hash stand for it: that two of ten million texts share them has a chance of 3e-6.
    """

    def __init__(self) -> None:
        self._keys = np.zeros(0, dtype=np.uint64)
        self._values = np.zeros(0, dtype=np.uint32)
        self._recent: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._keys) + len(self._recent)

    def add(self, text_hash: bytes, place: int) -> None:
        if self.find(text_hash) is None:
            self._recent[_key(text_hash)] = place
            if len(self._recent) >= RECENT_PLACES:
                self._sort_in()

    def find(self, text_hash: bytes) -> int | None:
        key = _key(text_hash)
        if (found := self._recent.get(key)) is not None:
            return found
        position = int(self._keys.searchsorted(np.uint64(key)))
        return int(self._values[position]) if position < len(self._keys) and self._keys[position] == key else None

    def find_all(self, hashes: bytes) -> NDArray[np.int64]:
        """(n,) places of n hashes. Raises KeyError."""
        self._sort_in()
        keys = np.frombuffer(hashes, dtype="<u8")[::2]
        positions = np.minimum(self._keys.searchsorted(keys), max(len(self._keys) - 1, 0))
        if len(keys) and (not len(self._keys) or not np.array_equal(self._keys[positions], keys)):
            raise KeyError("a text has no vector")
        return self._values[positions].astype(np.int64)

    def _sort_in(self) -> None:
        if not self._recent:
            return
        keys = np.fromiter(self._recent, dtype=np.uint64)
        values = np.fromiter(self._recent.values(), dtype=np.uint32)
        order = np.argsort(keys)
        positions = self._keys.searchsorted(keys[order])
        self._keys = np.insert(self._keys, positions, keys[order])
        self._values = np.insert(self._values, positions, values[order])
        self._recent = {}


def _key(text_hash: bytes) -> int:
    return int.from_bytes(text_hash[:8], "little")


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
