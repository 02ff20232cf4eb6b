"""All published indexes at a glance, in one set of arrays: what choosing among thousands of repositories reads.

In: the index files of every repository. Out: a `Catalogue`, which says for each repository how well its words could fit
a query at best, and how near its centroids are to a vector. A repository whose index changed is read anew; the others
come from a file in DATA_DIR that is mapped, so a process that starts reads next to nothing. Nothing here knows who may
read what: callers hand in the rows they may use, and statistics are those of these rows alone.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings

from indexing import segment_cache
from indexing.errors import IndexFormatError
from indexing.index_format import MANIFEST, ModelInfo, OpenIndex, Postings, Segment, open_index
from indexing.quantizing import sign_bits
from search.corpus import ranges
from search.hamming import cosines
from search.lexical import K1, B, Statistics, sorted_terms, term_weights

logger = logging.getLogger(__name__)

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Stamp = tuple[int, int, int]

TERM_LIST = "code_stems"
VERSION = 1
CURRENT = "current.json"
# Looking whether indexes changed costs 3 us each: more than so many are looked at once a second at most.
MANY = 100
SECONDS_BETWEEN_LOOKS = 1.0
# So many changed repositories are kept in memory until everything is written anew, in the background.
MOST_FRESH = 32
RESCORED_CENTROIDS = 64  # repositories whose centroids are compared exactly; sign bits decide which

_ARRAYS = ("ids", "stamps", "chunks", "lengths", "models", "hashes", "starts", "owners", "frequencies", "best")
_CENTROID_ARRAYS = ("centroid_starts", "centroid_bits", "centroids")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One repository. `hashes` are sorted; `best`: the most that a chunk gets for the term, before its rarity."""

    repository_id: int
    stamp: Stamp
    chunks: int
    lengths: int
    model: ModelInfo | None
    hashes: npt.NDArray[np.uint64]
    frequencies: npt.NDArray[np.uint32]
    best: npt.NDArray[np.float16]
    centroids: npt.NDArray[np.float16]


@dataclass(frozen=True)
class _Shard:
    """Some repositories. Term t is in those of owners[starts[t]:starts[t + 1]]; repository i has the centroids
    centroid_starts[i] to centroid_starts[i + 1]."""

    ids: Rows
    stamps: Rows  # (n, 3)
    chunks: Rows
    lengths: Rows
    models: Rows  # positions in `known_models`, -1 without vectors
    hashes: npt.NDArray[np.uint64]
    starts: Rows
    owners: npt.NDArray[np.uint32]
    frequencies: npt.NDArray[np.uint32]
    best: npt.NDArray[np.float16]
    centroid_starts: Rows
    centroid_bits: npt.NDArray[np.uint64]
    centroids: npt.NDArray[np.float16]
    known_models: tuple[ModelInfo, ...] = ()

    def of_model(self, model: ModelInfo) -> npt.NDArray[np.bool_]:
        number = self.known_models.index(model) if model in self.known_models else -2
        return np.asarray(self.models == number)

    def entries(self, wanted: npt.NDArray[np.uint64]) -> tuple[Rows, Rows]:
        """Where the wanted terms are: for each entry of `owners` that has one, which of them, and its place."""
        if not len(self.hashes):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        found = np.minimum(self.hashes.searchsorted(wanted), len(self.hashes) - 1)
        starts = self.starts[found]
        counts = (self.starts[found + 1] - starts) * (self.hashes[found] == wanted)
        return np.arange(len(wanted)).repeat(counts), ranges(starts, counts)


@dataclass(frozen=True)
class Catalogue:
    """A snapshot. Rows count the repositories of all shards in order; those of replaced indexes are never found."""

    shards: tuple[_Shard, ...]
    row_of: Mapping[int, int]  # repository id -> its current row
    damaged: Mapping[int, Stamp] = field(default_factory=dict)

    def rows(self, repository_ids: Sequence[int]) -> Rows:
        """-1 for a repository without a readable index."""
        return np.array([self.row_of.get(pk, -1) for pk in repository_ids], np.int64)

    @cached_property
    def chunks(self) -> Rows:
        return np.concatenate([np.zeros(0, np.int64), *(shard.chunks for shard in self.shards)])

    @cached_property
    def lengths(self) -> Rows:
        return np.concatenate([np.zeros(0, np.int64), *(shard.lengths for shard in self.shards)])

    def has_vectors(self, rows: Rows) -> bool:
        models = np.concatenate([np.zeros(0, np.int64), *(shard.models for shard in self.shards)])
        return bool((models[rows[rows >= 0]] >= 0).any())

    def statistics(self, query: Mapping[int, float], rows: Rows) -> Statistics:
        """Over the chunks of these rows."""
        wanted, mine = sorted_terms(query), self._mask(rows)
        counts = np.zeros(len(wanted), np.int64)
        for first, shard in self._placed:
            terms, places = shard.entries(wanted)
            frequencies = shard.frequencies[places] * mine[first + shard.owners[places].astype(np.int64)]
            counts += np.bincount(terms, frequencies, minlength=len(wanted)).astype(np.int64)
        documents = int(self.chunks[rows].sum())
        return Statistics(documents, float(self.lengths[rows].sum()) / max(1, documents), counts)

    def most(self, query: Mapping[int, float], rows: Rows, statistics: Statistics) -> Floats:
        """(rows,) about the most that one chunk of each can get by BM25: as if all its best words met in one."""
        bounds = np.zeros(len(self.chunks), np.float32)
        weights = term_weights(query, statistics) * np.float32(K1 + 1)
        wanted = sorted_terms(query)
        for first, shard in self._placed:
            terms, places = shard.entries(wanted)
            worth = weights[terms] * shard.best[places].astype(np.float32)
            np.add.at(bounds, first + shard.owners[places].astype(np.int64), worth)
        return bounds[rows]

    def nearness(self, vector: Floats, rows: Rows, model: ModelInfo) -> Floats:
        """(rows,) cosine to the nearest centroid, exact for the RESCORED_CENTROIDS nearest; 0 without vectors of
        that model, and for those that the sign bits put far away."""
        nearest = np.flatnonzero(self._has_centroids(model)[rows])
        if len(nearest) > RESCORED_CENTROIDS:
            alike = self._alike(vector)[rows[nearest]]
            nearest = nearest[np.argsort(-alike, kind="stable")[:RESCORED_CENTROIDS]]
        result = np.zeros(len(rows), np.float32)
        if len(nearest):
            centroids = [self._centroids(row) for row in rows[nearest].tolist()]
            edges = np.cumsum([0, *map(len, centroids)])[:-1]
            result[nearest] = np.maximum.reduceat(cosines(vector, np.concatenate(centroids)), edges)
        return result

    def _has_centroids(self, model: ModelInfo) -> npt.NDArray[np.bool_]:
        """(all rows,)"""
        shards = [shard.of_model(model) & (np.diff(shard.centroid_starts) > 0) for shard in self.shards]
        return np.concatenate([np.zeros(0, bool), *shards])

    def _alike(self, vector: Floats) -> Rows:
        """(all rows,) how many sign bits the nearest centroid shares with a vector; -1 without centroids so long."""
        bits = sign_bits(vector.reshape(1, -1))[0]
        alike = np.full(len(self.chunks), -1, np.int64)
        for first, shard in self._placed:
            filled = np.diff(shard.centroid_starts) > 0
            if filled.any() and shard.centroid_bits.shape[1] == len(bits):
                distances = np.bitwise_count(shard.centroid_bits ^ bits).sum(axis=1, dtype=np.int64)
                nearest = np.minimum.reduceat(distances, shard.centroid_starts[:-1][filled])
                alike[first : first + len(shard.ids)][filled] = 64 * len(bits) - nearest
        return alike

    def _centroids(self, row: int) -> npt.NDArray[np.float16]:
        for first, shard in self._placed:
            if row < first + len(shard.ids):
                local = row - first
                return shard.centroids[int(shard.centroid_starts[local]) : int(shard.centroid_starts[local + 1])]
        raise IndexError(row)

    @cached_property
    def _placed(self) -> list[tuple[int, _Shard]]:
        edges = np.cumsum([0] + [len(shard.ids) for shard in self.shards])
        return [(int(first), shard) for first, shard in zip(edges, self.shards, strict=False)]

    def _mask(self, rows: Rows) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(self.chunks), bool)
        mask[rows] = True
        return mask


# Reading one index.


def _entry(repository_id: int, stamp: Stamp, index: OpenIndex) -> _Entry:
    """Holds no mapped file: those of some thousand repositories are more than a process may map."""
    lists = [(segment, found) for segment in index.segments if (found := segment.postings(TERM_LIST)) is not None]
    lengths = sum(int(postings.lengths.sum(dtype=np.int64)) for _, postings in lists)
    chunks = sum(len(postings.lengths) for _, postings in lists)
    summaries = [_summary(segment, postings, lengths / max(1, chunks)) for segment, postings in lists]
    hashes, frequencies, best = _united(summaries)
    profile = index.profile
    return _Entry(
        repository_id=repository_id,
        stamp=stamp,
        chunks=chunks,
        lengths=lengths,
        model=index.manifest.model if index.manifest.coverage.vectors > 0 else None,
        hashes=hashes,
        frequencies=frequencies,
        best=best,
        centroids=np.array(profile.floats) if profile is not None else np.zeros((0, 0), np.float16),
    )


_Summary = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint32], npt.NDArray[np.float16]]


def _summary(segment: Segment, postings: Postings, average: float) -> _Summary:
    """Each term of a segment: in how many chunks it is, and the most it is worth in one that is not deleted."""
    if not len(postings.hashes):
        return np.zeros(0, np.uint64), np.zeros(0, np.uint32), np.zeros(0, np.float16)
    freqs = postings.freqs.astype(np.float32)
    norms = (K1 * (1 - B + B / max(1.0, average) * postings.lengths)).astype(np.float32)
    worth = freqs / (freqs + norms[postings.rows])
    if segment.live_chunks is not None:
        worth *= segment.live_chunks[postings.rows]
    best = np.maximum.reduceat(worth, postings.starts[:-1].astype(np.int64))
    return np.array(postings.hashes), np.diff(postings.starts).astype(np.uint32), best.astype(np.float16)


def _united(summaries: Sequence[_Summary]) -> _Summary:
    if len(summaries) == 1:
        return summaries[0]
    if not summaries:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint32), np.zeros(0, np.float16)
    hashes, frequencies, best = (np.concatenate(columns) for columns in zip(*summaries, strict=True))
    order = np.argsort(hashes, kind="stable")
    unique, first = np.unique(hashes[order], return_index=True)
    return unique, np.add.reduceat(frequencies[order], first), np.maximum.reduceat(best[order], first)


# Putting entries together.


def _shard(entries: Sequence[_Entry]) -> _Shard:
    models = list(dict.fromkeys(entry.model for entry in entries if entry.model is not None))
    width = max((entry.centroids.shape[1] for entry in entries), default=0)
    centroids = [entry.centroids if entry.centroids.shape[1] == width else entry.centroids[:0] for entry in entries]
    stacked = np.concatenate([np.zeros((0, width), np.float16), *(rows for rows in centroids if len(rows))])
    hashes = np.concatenate([np.zeros(0, np.uint64), *(entry.hashes for entry in entries)])
    owners = np.repeat(np.arange(len(entries), dtype=np.uint32), [len(entry.hashes) for entry in entries])
    order = np.argsort(hashes, kind="stable")
    unique, counts = np.unique(hashes[order], return_counts=True)
    return _Shard(
        ids=np.array([entry.repository_id for entry in entries], np.int64),
        stamps=np.array([entry.stamp for entry in entries], np.int64).reshape(-1, 3),
        chunks=np.array([entry.chunks for entry in entries], np.int64),
        lengths=np.array([entry.lengths for entry in entries], np.int64),
        models=np.array([models.index(entry.model) if entry.model else -1 for entry in entries], np.int64),
        hashes=unique,
        starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        owners=owners[order],
        frequencies=np.concatenate([np.zeros(0, np.uint32), *(entry.frequencies for entry in entries)])[order],
        best=np.concatenate([np.zeros(0, np.float16), *(entry.best for entry in entries)])[order],
        centroid_starts=np.cumsum([0] + [len(rows) for rows in centroids]).astype(np.int64),
        centroid_bits=sign_bits(stacked),
        centroids=stacked,
        known_models=tuple(models),
    )


def _without(shard: _Shard, gone: npt.NDArray[np.bool_]) -> list[_Entry]:
    """The shard taken apart again, less the repositories that are gone."""
    sizes = np.diff(shard.starts)
    hashes = np.repeat(shard.hashes, sizes)
    order = np.argsort(shard.owners, kind="stable")
    edges = np.searchsorted(shard.owners[order], np.arange(len(shard.ids) + 1))
    entries = []
    for row in np.flatnonzero(~gone):
        own = order[edges[row] : edges[row + 1]]
        stamp, model = shard.stamps[row].tolist(), int(shard.models[row])
        entries.append(
            _Entry(
                repository_id=int(shard.ids[row]),
                stamp=(stamp[0], stamp[1], stamp[2]),
                chunks=int(shard.chunks[row]),
                lengths=int(shard.lengths[row]),
                model=shard.known_models[model] if model >= 0 else None,
                hashes=hashes[own],
                frequencies=shard.frequencies[own],
                best=shard.best[own],
                centroids=shard.centroids[int(shard.centroid_starts[row]) : int(shard.centroid_starts[row + 1])],
            )
        )
    return entries


# Keeping it up to date.


class _Keeper:
    """The catalogue of one data folder in this process."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        # On the local disk where there is one for copies: a machine of its own writes its own.
        self._folder = (segment_cache.folder() if segment_cache.enabled() else data_dir) / "catalogue"
        self._base = _read(self._folder)
        self._fresh: dict[int, _Entry] = {}
        self._damaged: dict[int, Stamp] = {}
        self._looked = -SECONDS_BETWEEN_LOOKS
        self._seen = self._known()
        self.catalogue = self._snapshot(self._seen)
        self._lock = threading.Lock()
        self._writer: threading.Thread | None = None

    def current(self) -> Catalogue:
        with self._lock:
            due = time.monotonic() - self._looked >= SECONDS_BETWEEN_LOOKS
            if due or len(self.catalogue.row_of) <= MANY:
                self._look()
                self._looked = time.monotonic()
            return self.catalogue

    def _look(self) -> None:
        if segment_cache.enabled() and segment_cache.volume_is_away():
            return
        stamps = _stamps(self.data_dir / "indexes")
        if stamps == self._seen:
            return
        known = self._known()
        for repository_id in set(self._fresh) | set(self._damaged):
            if stamps.get(repository_id) != known.get(repository_id):
                self._fresh.pop(repository_id, None)
                self._damaged.pop(repository_id, None)
        known = self._known()
        for repository_id in sorted(pk for pk, stamp in stamps.items() if known.get(pk) != stamp):
            self._read_index(repository_id, stamps[repository_id])
        self.catalogue = self._snapshot(stamps)
        self._seen = stamps
        gone = len(set(known) - set(stamps))
        if (len(self._fresh) > MOST_FRESH or gone) and (self._writer is None or not self._writer.is_alive()):
            self._writer = threading.Thread(target=self._write, args=(stamps,), name="catalogue", daemon=True)
            self._writer.start()

    def _known(self) -> dict[int, Stamp]:
        """As `_stamps`, of what was read."""
        base = {int(pk): _as_stamp(row) for pk, row in zip(self._base.ids, self._base.stamps, strict=True)}
        return base | {pk: entry.stamp for pk, entry in self._fresh.items()} | self._damaged

    def _read_index(self, repository_id: int, stamp: Stamp) -> None:
        try:
            index = open_index(self.data_dir / "indexes" / str(repository_id))
            self._fresh[repository_id] = _entry(repository_id, stamp, index)
        except (IndexFormatError, ValueError, IndexError) as error:
            logger.warning("repository %s cannot be searched: %s", repository_id, error)
            self._damaged[repository_id] = stamp

    def _snapshot(self, stamps: Mapping[int, Stamp]) -> Catalogue:
        shards = [self._base] + ([_shard(list(self._fresh.values()))] if self._fresh else [])
        row_of: dict[int, int] = {}
        first = 0
        for shard in shards:
            for row, (pk, stamp) in enumerate(zip(shard.ids.tolist(), shard.stamps, strict=True)):
                if stamps.get(pk) == _as_stamp(stamp):
                    row_of[pk] = first + row
            first += len(shard.ids)
        return Catalogue(tuple(shards), row_of, dict(self._damaged))

    def _write(self, stamps: Mapping[int, Stamp]) -> None:
        with self._lock:
            base, fresh = self._base, dict(self._fresh)
        gone = np.array(
            [stamps.get(int(pk)) != _as_stamp(row) for pk, row in zip(base.ids, base.stamps, strict=True)], bool
        )
        kept = [entry for pk, entry in fresh.items() if stamps.get(pk) == entry.stamp]
        try:
            shard = _save(self._folder, _shard(_without(base, gone) + kept))
        except OSError as error:
            logger.warning("the catalogue of indexes could not be written: %s", error)
            return
        with self._lock:
            self._base = shard
            self._fresh = {pk: entry for pk, entry in self._fresh.items() if fresh.get(pk) is not entry}
            self.catalogue = self._snapshot(_stamps(self.data_dir / "indexes"))


_keepers: dict[Path, _Keeper] = {}
_keepers_lock = threading.Lock()


def current() -> Catalogue:
    """Of the indexes that are published now, or were up to a second ago when there are many."""
    data_dir = Path(settings.DATA_DIR)
    with _keepers_lock:
        if data_dir not in _keepers:
            _keepers.clear()
            _keepers[data_dir] = _Keeper(data_dir)
        keeper = _keepers[data_dir]
    return keeper.current()


def _stamps(indexes: Path) -> dict[int, Stamp]:
    """Which manifest each repository has: its inode, time and size."""
    found: dict[int, Stamp] = {}
    try:
        names = os.listdir(indexes)
    except FileNotFoundError:
        return found
    for name in names:
        try:
            status = os.stat(f"{indexes}/{name}/{MANIFEST}")
        except OSError:
            continue
        if name.isdigit():
            found[int(name)] = (status.st_ino, status.st_mtime_ns, status.st_size)
    return found


def _as_stamp(row: Rows) -> Stamp:
    inode, mtime, size = row.tolist()
    return (inode, mtime, size)


def _save(folder: Path, shard: _Shard) -> _Shard:
    """Writes beside what is there, then names the new files with one rename. Raises OSError."""
    name = uuid.uuid4().hex[:12]
    new = folder / name
    new.mkdir(parents=True)
    for part in (*_ARRAYS, *_CENTROID_ARRAYS):
        with (new / f"{part}.npy").open("xb") as file:
            np.save(file, getattr(shard, part))
            file.flush()
            os.fsync(file.fileno())
    document = {"version": VERSION, "folder": name, "models": [asdict(model) for model in shard.known_models]}
    temporary = folder / f"{name}.tmp"
    temporary.write_text(json.dumps(document))
    temporary.replace(folder / CURRENT)
    for other in folder.iterdir():
        if other.is_dir() and other != new:
            shutil.rmtree(other, ignore_errors=True)
    return _read(folder)


def _read(folder: Path) -> _Shard:
    """The shard that was saved last; an empty one when there is none that can be read."""
    try:
        document: dict[str, Any] = json.loads((folder / CURRENT).read_text())  # Any: JSON
        if document["version"] != VERSION:
            return _shard([])
        arrays = {
            part: _mapped(folder / str(document["folder"]) / f"{part}.npy") for part in (*_ARRAYS, *_CENTROID_ARRAYS)
        }
        return _Shard(**arrays, known_models=tuple(ModelInfo(**model) for model in document["models"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if not isinstance(error, FileNotFoundError):
            logger.warning("the catalogue of indexes is made anew: %s", error)
        return _shard([])


def _mapped(path: Path) -> npt.NDArray[Any]:  # Any: each part has its own dtype
    array = np.load(path, allow_pickle=False)
    return array if array.size < 10_000 else np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
