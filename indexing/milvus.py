"""Sign bits in Milvus instead of mapped files, for more vectors than one machine should read: VECTOR_BACKEND=milvus.

A matrix is one file of sign bits of a published index, known by its repository and its checksum. Each of its rows is
one row here, so what a manifest names is exactly what a search filters by: an index that was replaced is never mixed
with the new one. Files stay the truth; what is here can be made from them again at any time (`fill`).

Whatever goes wrong is VectorsUnavailable, and for a moment nobody tries again: a search goes on by words.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.conf import settings
from numpy.typing import NDArray

from indexing.errors import VectorsUnavailable
from indexing.index_format import VECTOR_LISTS, Manifest, OpenIndex

ROWS_AT_ONCE = 5_000  # 48 bytes of bits a row, well below the 64 MB that a message may have
SECONDS = 10.0  # for one call
SEARCH_SECONDS = 3.0
PAUSE_SECONDS = 10.0  # after a failure, before the server is asked again
STALE_SECONDS = 10.0  # twice what Milvus allows itself
MOST_ROWS = 16_384  # Milvus answers with no more

log = logging.getLogger(__name__)
_lock = threading.Lock()
_client: Any = None  # Any: pymilvus is optional
_paused_until = 0.0
_complete: dict[str, float] = {}  # matrix -> when its rows were counted


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows first to last, without last, of one matrix: bits (rows, words) uint64."""

    repository_id: int
    hash: str
    bits: NDArray[np.uint64]
    first: int
    last: int

    @property
    def key(self) -> str:
        return _key(self.repository_id, self.hash)


def enabled() -> bool:
    return bool(settings.VECTOR_BACKEND == "milvus")


def nearest(
    query_bits: NDArray[np.uint64], ranges: Sequence[RowRange], k: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """As `hamming.top_rows` over the ranges stacked in order: (m,) rows and (m,) distances, nearest first, ties by row.

    Raises VectorsUnavailable, also when a matrix is not here completely.
    """
    wanted = {rows.key: rows for rows in ranges if rows.first < rows.last}
    if not wanted:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    with _server() as client:
        name = _collection(client, query_bits.size * 64)
        missing = [rows for rows in wanted.values() if rows.key not in _complete and not _is_complete(client, rows)]
        if missing:
            raise VectorsUnavailable(f"Milvus lacks vectors of {len(missing)} index parts; they are being filled in.")
        found = client.search(
            name,
            data=[query_bits.tobytes()],
            anns_field="bits",
            filter=_filter(wanted.values()),
            limit=min(k, MOST_ROWS),
            output_fields=["matrix", "row"],
            search_params={"metric_type": "HAMMING"},
            consistency_level="Strong" if _is_new(wanted) else "Bounded",
            timeout=SEARCH_SECONDS,
        )[0]
    edges = np.cumsum([0] + [rows.last - rows.first for rows in ranges])
    offsets = {rows.key: int(edge) - rows.first for rows, edge in zip(ranges, edges, strict=False)}
    rows = np.array([offsets[hit["entity"]["matrix"]] + hit["entity"]["row"] for hit in found], np.int64)
    distances = np.array([hit["distance"] for hit in found], np.int64)
    order = np.lexsort((rows, distances))
    return rows[order], distances[order]


def _is_new(keys: Iterable[str]) -> bool:
    """A bounded search may look at a state of some seconds ago; waiting for the newest costs about 200 ms."""
    return any(time.monotonic() - _complete[key] < STALE_SECONDS for key in keys)


def fill(index: OpenIndex, *, keep: Iterable[Manifest] = ()) -> int:
    """Brings every matrix of a published index here. Returns how many were new.

    When some were, those go that neither it nor `keep` names: what searches that began a moment ago may still ask for.
    """
    repository_id = index.manifest.repository_id
    new = 0
    with _server() as client:
        matrices = [rows for rows in ranges_of(index) if rows.last]
        for rows in matrices:
            if rows.key not in _complete and not _is_complete(client, rows):
                _insert(client, rows)
                new += 1
        if new:
            kept = _quoted({rows.key for rows in matrices} | {key for manifest in keep for key in _keys(manifest)})
            for name in _collections(client):
                client.delete(name, filter=f"repository == {repository_id} and matrix not in [{kept}]", timeout=SECONDS)
    return new


def _keys(manifest: Manifest) -> Iterator[str]:
    for segment in manifest.segments:
        for name in VECTOR_LISTS:
            if part := segment.parts.get(f"vectors.{name}.bits"):
                yield _key(manifest.repository_id, part.hash)


def _key(repository_id: int, file_hash: str) -> str:
    return f"{repository_id}:{file_hash[:32]}"


def forget(repository_id: int) -> None:
    with _server() as client:
        for name in _collections(client):
            client.delete(name, filter=f"repository == {repository_id}", timeout=SECONDS)


def ranges_of(index: OpenIndex) -> list[RowRange]:
    """All matrices of an opened index."""
    found = []
    for segment in index.segments:
        for name in VECTOR_LISTS:
            if (vectors := segment.vectors(name)) is not None:
                part = segment.info.parts[f"vectors.{name}.bits"]
                repository_id = index.manifest.repository_id
                found.append(RowRange(repository_id, part.hash, vectors.bits, 0, len(vectors.bits)))
    return found


def _insert(client: Any, rows: RowRange) -> None:  # Any: pymilvus is optional
    """Rows that an attempt left are removed first: inserting twice would count and find them twice."""
    name = _collection(client, rows.bits.shape[1] * 64)
    client.delete(name, filter=f'matrix == "{rows.key}"', timeout=SECONDS)
    for start in range(0, len(rows.bits), ROWS_AT_ONCE):
        batch = [
            {"matrix": rows.key, "repository": rows.repository_id, "row": start + number, "bits": bits.tobytes()}
            for number, bits in enumerate(rows.bits[start : start + ROWS_AT_ONCE])
        ]
        client.insert(name, data=batch, timeout=6 * SECONDS)


def _is_complete(client: Any, rows: RowRange) -> bool:  # Any: as above
    name = _collection(client, rows.bits.shape[1] * 64)
    counted = client.query(
        name,
        filter=f'matrix == "{rows.key}"',
        output_fields=["count(*)"],
        consistency_level="Strong",
        timeout=SECONDS,
    )
    if complete := int(counted[0]["count(*)"]) == len(rows.bits):
        _complete[rows.key] = time.monotonic()
    return complete


def _filter(ranges: Iterable[RowRange]) -> str:
    whole = {rows.key for rows in ranges if rows.last - rows.first == len(rows.bits)}
    terms = [
        f'(matrix == "{rows.key}" and row >= {rows.first} and row < {rows.last})'
        for rows in ranges
        if rows.key not in whole
    ]
    return " or ".join([f"matrix in [{_quoted(whole)}]", *terms] if whole else terms)


def _quoted(keys: Iterable[str]) -> str:
    return ", ".join(f'"{key}"' for key in sorted(keys))


def _collections(client: Any) -> list[str]:  # Any: as above
    return [name for name in client.list_collections(timeout=SECONDS) if name.startswith(settings.MILVUS_COLLECTION)]


def _collection(client: Any, bits: int) -> str:  # Any: as above
    """One for each width of vectors, made when it is needed."""
    name = f"{settings.MILVUS_COLLECTION}_{bits}"
    if name not in _complete:
        if not client.has_collection(name, timeout=SECONDS):
            _create(client, name, bits)
        _complete[name] = time.monotonic()
    return name


def _create(client: Any, name: str, bits: int) -> None:  # Any: as above
    from pymilvus import DataType

    schema = client.create_schema(auto_id=True, enable_dynamic_field=False)
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("matrix", DataType.VARCHAR, max_length=64)
    schema.add_field("repository", DataType.INT64)
    schema.add_field("row", DataType.INT64)
    schema.add_field("bits", DataType.BINARY_VECTOR, dim=bits)
    index = client.prepare_index_params()
    index.add_index("bits", index_type="BIN_FLAT", metric_type="HAMMING", params={})  # exact, as the files are
    client.create_collection(name, schema=schema, index_params=index, timeout=6 * SECONDS)


@contextmanager
def _server() -> Iterator[Any]:  # Any: as above
    """The connected client; whatever it raises is VectorsUnavailable, and the next call connects anew."""
    global _client, _paused_until
    if time.monotonic() < _paused_until:
        raise VectorsUnavailable("Milvus does not answer.")
    try:
        with _lock:
            if _client is None:
                from pymilvus import MilvusClient

                _client = MilvusClient(uri=settings.MILVUS_URL, token=settings.MILVUS_TOKEN, timeout=SEARCH_SECONDS)
        yield _client
    except VectorsUnavailable:
        raise
    except ImportError as error:
        raise VectorsUnavailable("VECTOR_BACKEND is milvus, but the extra `milvus` is not installed.") from error
    except Exception as error:
        log.warning("Milvus at %s failed: %s", settings.MILVUS_URL, type(error).__name__)
        with _lock:
            _client, _paused_until = None, time.monotonic() + PAUSE_SECONDS
            _complete.clear()
        raise VectorsUnavailable("Milvus does not answer.") from error
