"""Queries -> a pool of candidate chunks with the score of every list for each.

Lists over chunks: BM25 of stems, of plain terms and of descriptions; cosines of code and of description vectors.
Lists over files: BM25 and cosine. A chunk enters the pool when any list has it near the top; then *every* list
scores it, so that fusion compares like with like and the trace can show why something was ranked where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
from django.conf import settings

from indexing import milvus
from indexing.index_format import Segment, VectorList
from indexing.milvus import RowRange
from indexing.quantizing import sign_bits
from search.corpus import Corpus, Part, ranges
from search.fusion import top
from search.grouping import Groups, distinct
from search.hamming import cosines, top_rows
from search.lexical import bm25
from search.wording import Wording

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

# Scores are scaled over this many of a list's best, however many of them become candidates.
CHUNK_DEPTH = 50
FILE_DEPTH = 20
# Sign bits put 99.7 % of the float top 10 among the first ten times as many rows.
BINARY_OVERFETCH = 4
MOST_DEFINITIONS = 50
# The rows of a language are no range: more of the nearest are looked at, so that some of them are among these.
LANGUAGE_OVERFETCH = 5
# Old versions of a file are near to what its new version is near to: they must not use up the places.
MOST_DEAD_ROWS = 5_000

CHUNK_TERM_LISTS = ("code_stems", "code_terms", "descriptions")
CHUNK_VECTOR_LISTS = ("code", "descriptions")


# (query name, segment) -> (chunks,) BM25 of the stems in its code.
StemScores = dict[tuple[str, Segment], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class Query:
    """One of the three queries. `code_only`: hypothetical code is compared with code, not with prose."""

    name: str  # english, original, hypothetical
    weight: float
    wording: Wording
    vector: Floats | None = None  # (d,) unit; None while the model is not loaded or the index has no vectors
    code_only: bool = False


@dataclass(slots=True)
class Pool:
    """chunks: (p,) chunk rows, ascending; files: (p,) their file rows.

    chunk_lists: (query name, list name) -> (p,) raw scores; file_lists: the same over `file_rows` (f,), ascending.
    Term lists are named terms.<list>, vector lists vectors.<list>.
    """

    chunks: Rows
    files: Rows
    file_rows: Rows
    chunk_lists: dict[tuple[str, str], Floats] = field(default_factory=dict)
    file_lists: dict[tuple[str, str], Floats] = field(default_factory=dict)

    def places_of_files(self, positions: Rows | slice = slice(None)) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Where in `file_rows` the files of these chunks are, and whether they are there: any place where not."""
        wanted = self.files[positions]
        places = np.minimum(self.file_rows.searchsorted(wanted), max(0, len(self.file_rows) - 1))
        known = self.file_rows[places] == wanted if len(self.file_rows) else np.zeros(len(wanted), bool)
        return places, known


def retrieve(
    corpus: Corpus,
    queries: Sequence[Query],
    *,
    path_filter: bytes = b"",
    languages: Collection[str] = (),
    stem_scores: StemScores | None = None,
) -> Pool:
    """The pool of all queries. Empty when nothing matches. Raises VectorsUnavailable.

    `stem_scores`: those that are known already, of these very queries.
    """
    allowed = corpus.allowed(path_filter, languages)
    dense = {
        (query.name, f"terms.{name}"): _masked(_term_scores(corpus, query, name, stem_scores or {}), allowed)
        for query in queries
        for name in CHUNK_TERM_LISTS
        if not (query.code_only and name == "descriptions")
    }
    dense_files = {
        (query.name, "terms.files"): _masked(bm25(corpus.postings("files"), query.wording.stems), corpus.live_files)
        for query in queries
        if not query.code_only
    }
    chunks = [top(scores, settings.SEARCH_CANDIDATES_PER_QUERY) for scores in dense.values()]
    vector_queries = [query for query in queries if query.vector is not None]
    for query in vector_queries:
        for name in _vector_lists(query):
            chunks.append(_nearest_owners(corpus, query, name, path_filter, allowed if languages else None))
    files = [top(scores, FILE_DEPTH) for scores in dense_files.values()]
    files += [_nearest_owners(corpus, query, "files", path_filter) for query in vector_queries if not query.code_only]
    chunks.append(_defining(corpus, queries, allowed))
    file_rows = _union(files)
    chunks.append(_best_chunks(corpus, file_rows, dense, allowed))
    pool_rows = _union(chunks)
    pool = Pool(chunks=pool_rows, files=corpus.files_of(pool_rows), file_rows=file_rows)
    for key, scores in dense.items():
        pool.chunk_lists[key] = scores[pool_rows]
    for key, scores in dense_files.items():
        pool.file_lists[key] = scores[file_rows]
    for query in vector_queries:
        for name in _vector_lists(query):
            pool.chunk_lists[query.name, f"vectors.{name}"] = _cosines(corpus, query, name, pool_rows)
        if not query.code_only:
            pool.file_lists[query.name, "vectors.files"] = _cosines(corpus, query, "files", file_rows)
    return pool


def _term_scores(corpus: Corpus, query: Query, name: str, known: StemScores) -> Floats:
    """(chunks,) BM25. Known scores of code stems were made with the statistics of more repositories than these, so
    they are taken when all of them are known.
    """
    if name == "code_stems" and corpus.parts and all((query.name, part.segment) in known for part in corpus.parts):
        return np.concatenate([known[query.name, part.segment] for part in corpus.parts])
    return bm25(corpus.postings(name), query.wording.terms if name == "code_terms" else query.wording.stems)


def _defining(corpus: Corpus, queries: Sequence[Query], allowed: npt.NDArray[np.bool_] | None) -> Rows:
    """The allowed chunks that define names of the queries, whatever the lists say: no list has operators, and a name
    that is used everywhere has its definition far down. Words with many definitions are left to the lists.
    """
    rows: list[int] = []
    named = (name for query in queries if not query.code_only for name in query.wording.names)
    for name in dict.fromkeys(named):
        found = [chunk for chunk, _ in islice(corpus.definitions(name), MOST_DEFINITIONS + 1)]
        if len(found) <= MOST_DEFINITIONS or name.is_operator:
            rows += found[:MOST_DEFINITIONS]
    chunks = np.array(rows, np.int64)
    return chunks if allowed is None else chunks[allowed[chunks]]


def _vector_lists(query: Query) -> tuple[str, ...]:
    return ("code",) if query.code_only else CHUNK_VECTOR_LISTS


def _masked(scores: Floats, allowed: npt.NDArray[np.bool_] | None) -> Floats:
    if allowed is not None:
        scores[~allowed] = 0
    return scores


def _union(rows: Sequence[Rows]) -> Rows:
    return distinct(np.concatenate(rows)) if rows else np.empty(0, np.int64)


def _first_owner(name: str) -> Callable[[Part], int]:
    """Lists over files count owners in file rows, the others in chunk rows."""
    return (lambda part: part.first_file) if name == "files" else (lambda part: part.first_chunk)


def _nearest_owners(
    corpus: Corpus, query: Query, name: str, path_filter: bytes, only: npt.NDArray[np.bool_] | None = None
) -> Rows:
    """Chunk rows (or file rows for "files") of the nearest vectors, without deleted ones, and of some rows `only`."""
    assert query.vector is not None
    bits = sign_bits(query.vector.reshape(1, -1))[0]
    wanted = FILE_DEPTH if name == "files" else settings.SEARCH_CANDIDATES_PER_QUERY
    found: list[tuple[Part, VectorList, int]] = []
    ranges: list[RowRange] = []
    for part, vectors in corpus.vectors(name):
        first, last = _vector_range(part, vectors, name, path_filter)
        found.append((part, vectors, first))
        matrix = part.segment.info.parts[f"vectors.{name}.bits"].hash
        ranges.append(RowRange(part.source.repository_id, matrix, vectors.bits, first, last))
    if not found:
        return np.empty(0, np.int64)
    overfetch = BINARY_OVERFETCH * (1 if only is None else LANGUAGE_OVERFETCH)
    rows = np.sort(nearest_rows(bits, ranges, wanted * overfetch + min(_dead_rows(found), MOST_DEAD_ROWS)))
    lengths = [part.last - part.first for part in ranges]
    edges = rows.searchsorted(np.cumsum([0, *lengths])).tolist()
    before = 0
    first_owner = _first_owner(name)
    owners: list[Rows] = []
    for (part, vectors, first), length, start, end in zip(found, lengths, edges, edges[1:], strict=False):
        if start < end:
            local = _live(part, name, vectors.owners(rows[start:end] - (before - first)))
            owners.append(local + first_owner(part))
        before += length
    candidates = _union(owners)
    if only is not None:
        candidates = candidates[only[candidates]]
    best = (-_cosines(corpus, query, name, candidates)).argsort(kind="stable")[:wanted]
    return candidates[best]


def nearest_rows(bits: npt.NDArray[np.uint64], ranges: Sequence[RowRange], k: int) -> Rows:
    """(m,) the nearest rows of all ranges, stacked in order, where VECTOR_BACKEND has them.

    Raises VectorsUnavailable when that is Milvus and it does not answer.
    """
    if milvus.enabled():
        return milvus.nearest(bits, ranges, k)[0]
    return top_rows(bits, [rows.bits[rows.first : rows.last] for rows in ranges], k)[0]


def _dead_rows(found: Sequence[tuple[Part, VectorList, int]]) -> int:
    """About how many vectors belong to deleted files."""
    return sum(part.segment.info.dead_chunks for part, _, _ in found)


def _vector_range(part: Part, vectors: VectorList, name: str, path_filter: bytes) -> tuple[int, int]:
    """A folder is one range of vector rows, because rows are sorted by path."""
    if not path_filter:
        return 0, len(vectors.bits)
    inside = part.segment.files_in(path_filter) if name == "files" else part.segment.chunks_in(path_filter)
    return int(vectors.starts[inside.start]), int(vectors.starts[inside.stop])


def _live(part: Part, name: str, owners: Rows) -> Rows:
    live = part.segment.live_files if name == "files" else part.segment.live_chunks
    return owners if live is None else owners[live[owners]]


def _best_chunks(
    corpus: Corpus,
    file_rows: Rows,
    dense: dict[tuple[str, str], Floats],
    allowed: npt.NDArray[np.bool_] | None,
) -> Rows:
    """For each file its allowed chunk with the best stem score; its first one where no word occurs."""
    stem_scores = [scores for (_, name), scores in dense.items() if name == "terms.code_stems"]
    starts, counts = corpus.chunk_ranges(file_rows)
    rows, owners = ranges(starts, counts), np.arange(len(file_rows)).repeat(counts)
    if allowed is not None:
        rows, owners = rows[allowed[rows]], owners[allowed[rows]]
    values = sum((scores[rows] for scores in stem_scores), np.zeros(len(rows), np.float32))
    return rows[Groups.of_sorted(owners).best(values)]


def _cosines(corpus: Corpus, query: Query, name: str, rows: Rows) -> Floats:
    """Exact float16 cosines of given chunk or file rows, ascending: an owner's best; 0 where it has no vector yet."""
    assert query.vector is not None
    result = np.zeros(len(rows), np.float32)
    first_owner = _first_owner(name)
    lists = corpus.vectors(name)
    edges = [
        edge for part, vectors in lists for edge in (first_owner(part), first_owner(part) + len(vectors.starts) - 1)
    ]
    places = rows.searchsorted(edges).tolist()
    found, starts, ends = [], [], []
    for (_, vectors), first, low, high in zip(lists, edges[::2], places[::2], places[1::2], strict=True):
        if low < high:
            own = rows[low:high] - first
            found.append((vectors, low, high))
            starts.append(vectors.starts.take(own))
            own += 1
            ends.append(vectors.starts.take(own))
    if not found:
        return result
    first_rows = np.concatenate(starts, dtype=np.int64)
    count = np.concatenate(ends, dtype=np.int64) - first_rows
    after = count.cumsum()
    vector_rows = ranges(first_rows, count)
    floats = np.empty((len(vector_rows), len(query.vector)), np.float16)
    begin = owners = 0
    for vectors, low, high in found:
        owners += high - low
        end = int(after[owners - 1])
        vectors.floats.take(vector_rows[begin:end], axis=0, out=floats[begin:end], mode="clip")
        begin = end
    scores = cosines(query.vector, floats)
    known = count > 0
    if known.any():
        own_rows = np.concatenate([np.arange(low, high) for _, low, high in found])
        result[own_rows[known]] = np.maximum.reduceat(scores, (after - count)[known])
    return result
