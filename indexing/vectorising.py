"""Walked files -> the vectors of the segments that `collecting` made of them.

The texts are derived from the files a second time, because they contain source and are kept nowhere: parsing costs
about a hundredth of embedding. Texts wait in a window of bounded size, are embedded in order of length (little
padding) and dropped; only hashes and vectors stay. A batch that does not come back in time ends the build.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from queue import Empty, SimpleQueue

import numpy as np
from django.conf import settings
from numpy.typing import NDArray

from indexing.chunking import ChunkedFile, chunk_file
from indexing.collecting import display
from indexing.context import EmbeddedTexts, embedded_texts, file_text
from indexing.embedding import Embedder, forget_embedders
from indexing.errors import EmbeddingError
from indexing.git import BlobReader
from indexing.index_format import CHUNK_DTYPE, SEGMENTS, VECTOR_LISTS, ModelInfo, Segment, SegmentInfo
from indexing.index_writing import PartWriter, VectorListWriter, with_parts
from indexing.suspects import Suspects
from indexing.vector_cache import TextHasher, VectorCache
from indexing.walking import SkippedEntry, SourceFile, source_of

WINDOW_TEXTS = 2_048
WINDOW_CHUNKS = 4_096  # when hardly any text is new

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ListRows:
    """Rows of one vector list while their texts wait: a hash per row, a count per owner."""

    hashes: bytearray = field(default_factory=bytearray)
    counts: array[int] = field(default_factory=lambda: array("I"))

    def add(self, hashes: Sequence[bytes]) -> None:
        """The next owner's rows."""
        self.hashes += b"".join(hashes)
        self.counts.append(len(hashes))


class SegmentVectors:
    """The vector lists of one segment, written as far as their texts are embedded."""

    def __init__(self, directory: Path, segment: Segment, cache: VectorCache, *, suffix: str) -> None:
        self.segment = segment
        self.lists = {name: ListRows() for name in VECTOR_LISTS}
        self.embedded = 0  # chunks with vectors
        self._cache = cache
        self._parts = PartWriter(directory, folder=segment.info.id, suffix=suffix)
        self._writers = {
            name: VectorListWriter(self._parts, name, dimensions=cache.dimensions) for name in VECTOR_LISTS
        }

    @property
    def waiting(self) -> int:
        return len(self.lists["code"].counts)

    def write(self) -> None:
        """All rows so far, whose vectors the cache has by now."""
        self.embedded += sum(1 for count in self.lists["code"].counts if count)
        for name, rows in self.lists.items():
            hashes = bytes(rows.hashes)
            self._writers[name].append(rows.counts, hashes, self._cache.blocks(hashes))
            self.lists[name] = ListRows()
        self.segment.release()

    def finish(self) -> SegmentInfo:
        self._parts.sync()
        return replace(with_parts(self.segment.info, self._parts.parts), embedded=self.embedded)


@dataclass(frozen=True, slots=True)
class _Waiting:
    text: str
    chunks: int  # how many chunks are done with it: 1 for the last code row of a chunk
    path: bytes


class Vectoriser:
    """Embeds what the cache does not hold.

    `on_progress(chunks, embedded, path)` hears of chunks that are done, and of each batch before it starts (0 chunks).
    """

    def __init__(
        self,
        load_embedder: Callable[[], Embedder],
        cache: VectorCache,
        model: ModelInfo,
        *,
        suspects: Suspects,
        check: Callable[[], None],
        on_progress: Callable[[int, bool, bytes], None],
    ) -> None:
        self._load_embedder = load_embedder
        self.cache = cache
        self.left_out: list[bytes] = []  # files without vectors
        self._hasher = TextHasher(model)
        self._suspects = suspects
        self._check = check
        self._on_progress = on_progress
        self._waiting: dict[bytes, _Waiting] = {}
        self._batches = 0

    @cached_property
    def embedder(self) -> Embedder:
        """Loaded when there is a text to embed."""
        embedder = self._load_embedder()
        self._too_long_before = embedder.too_long
        return embedder

    @cached_property
    def _model(self) -> _ModelThread:
        """Ends with this object."""
        thread = _ModelThread(self.embedder)
        weakref.finalize(self, thread.end)
        return thread

    @property
    def too_long(self) -> int:
        """How many texts the model has cut."""
        return self.embedder.too_long - self._too_long_before if "embedder" in vars(self) else 0

    def vectorise(
        self,
        mirror_path: Path,
        segments: Sequence[Segment],
        *,
        directory: Path,
        suffix: str,
        on_file: Callable[[str, int], None],
    ) -> list[SegmentInfo]:
        """The segments with vectors, in files of their own generation. The segments have no deleted files.

        `on_file(segment id, file row)` hears of each file before its texts are made.
        Raises EmbeddingError, MissingObject, and whatever `check` raises.
        """
        vectors = (SegmentVectors(directory, segment, self.cache, suffix=suffix) for segment in segments)
        return [self._vectorise(mirror_path, of_segment, on_file) for of_segment in vectors]

    def _vectorise(
        self, mirror_path: Path, vectors: SegmentVectors, on_file: Callable[[str, int], None]
    ) -> SegmentInfo:
        segment = vectors.segment
        for source, _, file_row in files_of_segments(mirror_path, [segment]):
            self._check()
            on_file(segment.info.id, file_row)
            self._take(source, segment, file_row, vectors.lists)
            if len(self._waiting) >= WINDOW_TEXTS or vectors.waiting >= WINDOW_CHUNKS:
                self.embed_waiting()
                vectors.write()
        self.embed_waiting()
        vectors.write()
        return vectors.finish()

    def embed_files(self, mirror_path: Path, segment: Segment, rows: range) -> None:
        """Only fills the cache with the vectors of some files. Raises as `vectorise` does."""
        lists = {name: ListRows() for name in VECTOR_LISTS}
        for source, _, file_row in files_of_segments(mirror_path, [segment], rows=rows):
            self._check()
            self._take(source, segment, file_row, lists)
            if len(self._waiting) >= WINDOW_TEXTS:
                self.embed_waiting()
        self.embed_waiting()

    def _take(self, source: SourceFile | SkippedEntry, segment: Segment, row: int, lists: dict[str, ListRows]) -> None:
        chunks = segment.chunks[segment.file_chunks[row] : segment.file_chunks[row + 1]]
        derived = self._derive(source, chunks)
        if derived is None:
            self.left_out.append(source.path)
            derived = [EmbeddedTexts(rows=(), description="")] * len(chunks), ""
        for texts in derived[0]:
            codes = [self.wait_for(text, path=source.path) for text in texts.rows[:-1]]
            codes += [self.wait_for(text, path=source.path, chunks=1) for text in texts.rows[-1:]]
            lists["code"].add(codes)
            lists["descriptions"].add(self.wait_for_windows(texts.description, path=source.path))
        lists["files"].add(self.wait_for_windows(derived[1], path=source.path))

    def _derive(
        self, source: SourceFile | SkippedEntry, chunks: NDArray[np.void]
    ) -> tuple[list[EmbeddedTexts], str] | None:
        """Texts of the chunks and of the file; None when they cannot be made: the file is then found by words only."""
        if isinstance(source, SkippedEntry):
            return None
        count_tokens, max_tokens = self.embedder.count_tokens, self.embedder.max_tokens
        self._suspects.reading(source.blob_id)
        try:
            chunked = chunk_file(source)
            if not same_cuts(chunks, chunked):
                return None
            texts = embedded_texts(source, chunked, count_tokens=count_tokens, max_tokens=max_tokens)
            return texts, file_text(source, chunked)
        except Exception as error:  # noqa: BLE001 (whatever one file does, the others get their vectors)
            log.warning("no vectors for file %s: %s", display(source.path), type(error).__name__)
            return None
        finally:
            self._suspects.done()

    def wait_for_windows(self, text: str, *, path: bytes) -> list[bytes]:
        """One row, or several when the text is longer than the model's window; none without words."""
        pieces = windows(text, count_tokens=self.embedder.count_tokens, max_tokens=self.embedder.max_tokens)
        return [self.wait_for(piece, path=path) for piece in pieces]

    def wait_for(self, text: str, *, path: bytes, chunks: int = 0) -> bytes:
        """Returns the text's hash; its vector is in the cache after `embed_waiting`."""
        key = self._hasher.hash(text)
        if key in self.cache or key in self._waiting:
            if chunks:
                self._on_progress(chunks, False, path)
        else:
            self._waiting[key] = _Waiting(text, chunks, path)
        return key

    def embed_waiting(self) -> None:
        self._suspects.rest()
        queue = sorted(self._waiting.items(), key=lambda item: len(item[1].text))
        size = settings.EMBEDDING_BATCH
        while queue:
            self._check()
            if self.cache.take_others():
                queue = self._without_known(queue)
            self._embed_batch(dict(queue[:size]))
            queue = queue[size:]
        self._waiting = {}

    def _without_known(self, queue: list[tuple[bytes, _Waiting]]) -> list[tuple[bytes, _Waiting]]:
        """Without texts that another worker has embedded meanwhile."""
        unknown = []
        for key, waiting in queue:
            if key not in self.cache:
                unknown.append((key, waiting))
            elif waiting.chunks:
                self._on_progress(waiting.chunks, False, waiting.path)
        return unknown

    def _embed_batch(self, batch: dict[bytes, _Waiting]) -> None:
        if not batch:
            return
        self._batches += 1
        first = next(iter(batch.values()))
        texts = [waiting.text for waiting in batch.values()]
        self._on_progress(0, False, first.path)
        vectors = self._in_time(texts, f"batch {self._batches}, file {display(first.path)}")
        self.cache.add(list(batch), vectors)
        self._on_progress(sum(waiting.chunks for waiting in batch.values()), True, first.path)

    def _in_time(self, texts: list[str], where: str) -> NDArray[np.float32]:
        try:
            return self._model.embed(texts, timeout_seconds=settings.EMBEDDING_TIMEOUT_SECONDS)
        except Empty:
            forget_embedders()
            raise EmbeddingError(
                f"Indexing failed at step embedding, {where}: the model did not answer within "
                f"{settings.EMBEDDING_TIMEOUT_SECONDS} s. Retry goes on from there; EMBEDDING_TIMEOUT_SECONDS allows "
                "more time."
            ) from None


class _ModelThread:
    """Runs the model beside the thread that waits, because nothing else can end a call that hangs inside it.

    One thread serves all batches: for each new one the model's libraries start threads of their own again, which
    took a sixth of the time.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._batches: SimpleQueue[list[str] | None] = SimpleQueue()
        self._results: SimpleQueue[NDArray[np.float32] | BaseException] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def end(self) -> None:
        self._batches.put(None)

    def embed(self, texts: list[str], *, timeout_seconds: float) -> NDArray[np.float32]:
        """Raises Empty when it takes too long, and then answers no more; else what the model raises."""
        self._batches.put(texts)
        result = self._results.get(timeout=timeout_seconds)
        if isinstance(result, BaseException):
            raise result
        return result

    def _run(self) -> None:
        while (texts := self._batches.get()) is not None:
            try:
                self._results.put(self._embedder.embed_documents(texts))
            except BaseException as error:  # noqa: BLE001 (raised again in the thread that waits)
                self._results.put(error)


def same_cuts(chunks: NDArray[np.void], chunked: ChunkedFile) -> bool:
    """False when a parse that was given up for its time the first time succeeded now, or the other way round."""
    return chunks.dtype == CHUNK_DTYPE and [(int(row["start_byte"]), int(row["end_byte"])) for row in chunks] == [
        (chunk.start_byte, chunk.end_byte) for chunk in chunked.chunks
    ]


def windows(text: str, *, count_tokens: Callable[[str], int], max_tokens: int) -> list[str]:
    """The text in as few pieces as fit the window, cut between words; a word above the window is cut itself.

    >>> windows("a b c d e", count_tokens=lambda text: len(text.split()), max_tokens=2)
    ['a b', 'c d', 'e']
    """
    pieces: list[str] = []
    rest = text.strip()
    while rest and count_tokens(rest) > max_tokens:
        cut = _longest_fit(rest, count_tokens, max_tokens)
        space = max(rest.rfind(" ", 1, cut + 1), rest.rfind("\n", 1, cut + 1))
        cut = space if space > 0 else cut
        pieces.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*pieces, rest] if rest else pieces


def _longest_fit(text: str, count_tokens: Callable[[str], int], max_tokens: int) -> int:
    """Characters of the longest beginning that fits, at least one."""
    low, high = 1, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[:middle]) <= max_tokens:
            low = middle
        else:
            high = middle - 1
    return low


def files_of_segments(
    mirror_path: Path, segments: Sequence[Segment], *, rows: range | None = None
) -> Iterator[tuple[SourceFile | SkippedEntry, int, int]]:
    """(file read again, position of its segment, its file row) for every live file, of these rows or of all.

    Raises MissingObject. Whether to index a file was decided when its segment was made; it is not asked again.
    """
    blob_ids = (segments[number].array("blobs")[row].tobytes().hex() for number, row in _live_files(segments, rows))
    with BlobReader(mirror_path) as blobs:
        for (number, row), (blob_id, raw) in zip(_live_files(segments, rows), blobs.read_many(blob_ids), strict=True):
            yield source_of(segments[number].paths.raw(row), blob_id, raw), number, row


def _live_files(segments: Sequence[Segment], rows: range | None) -> Iterator[tuple[int, int]]:
    return ((number, row) for number, segment in enumerate(segments) for row in segment.live_file_rows(rows))


def open_segments(directory: Path, infos: Iterable[SegmentInfo]) -> list[Segment]:
    """Segments that are written but not published yet."""
    return [Segment(directory / SEGMENTS / info.id, info) for info in infos]


class Rate:
    """Embedded chunks per second since the first one; what was reused does not count."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._chunks = 0

    def add(self, chunks: int) -> None:
        self._chunks += chunks

    @property
    def per_second(self) -> float:
        return self._chunks / max(time.monotonic() - self._started, 1e-6)
