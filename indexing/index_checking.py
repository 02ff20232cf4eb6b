"""Whether index files that somebody else made hold together: row numbers stay inside their tables.

Checksums only say that a file is what its maker wrote. Raises DamagedIndex; reads every table, but no vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from numpy.typing import NDArray

from indexing.errors import DamagedIndex
from indexing.index_format import (
    CHUNK_DTYPE,
    DEFINITION_DTYPE,
    FILE_DTYPE,
    ROLES,
    TERM_LISTS,
    VECTOR_LISTS,
    OpenIndex,
    Segment,
)

Table = NDArray[Any]  # Any: each part has its own dtype


def check_structure(index: OpenIndex) -> None:
    """Raises DamagedIndex for an index over which a search would stumble."""
    dimensions = index.manifest.model.dimensions if index.manifest.model else 0
    try:
        for segment in index.segments:
            _check_tables(segment)
            _check_references(segment)
            _check_terms(segment)
            _check_vectors(segment, dimensions)
        profile = index.profile
        if profile is not None:
            _require(profile.floats.shape == (len(profile.weights), dimensions), "centroids")
    except (ValueError, IndexError, KeyError, AttributeError, TypeError) as error:
        raise DamagedIndex(f"the index does not hold together ({error}); index the repository again") from error


def _check_tables(segment: Segment) -> None:
    files, chunks = segment.info.files, segment.info.chunks
    definitions = len(segment.array("definitions"))
    for name, dtype, rows in (
        ("files", FILE_DTYPE, files),
        ("chunks", CHUNK_DTYPE, chunks),
        ("definitions", DEFINITION_DTYPE, definitions),
    ):
        table = segment.array(name)
        _require(table.dtype == dtype and table.shape == (rows,), name)
    _check_starts(segment.file_chunks, files, chunks)
    _check_starts(segment.array("imports.starts"), files, len(segment.array("imports.rows")))
    _check_strings(segment, "paths", files)
    _check_strings(segment, "strings", len(segment.strings))
    if segment.descriptions is not None:
        _check_strings(segment, "descriptions", chunks)
    paths = [segment.paths.raw(row) for row in range(files)]
    _require(paths == sorted(set(paths)), "paths")
    _require(len(segment.array("blobs")) == files, "blobs")
    _require(all(0 <= row < files for rows in segment.info.cut_by_lines.values() for row in rows), "cut_by_lines")
    if segment.live_files is not None:
        _require(len(segment.live_files) == files, "tombstones")


def _check_references(segment: Segment) -> None:
    for name, rows, limit in _references(segment):
        _require(len(rows) == 0 or int(rows.max()) < limit, name)


def _references(segment: Segment) -> Iterator[tuple[str, Table, int]]:
    """(what, row numbers, rows of the table they refer to)"""
    files, chunks, definitions = segment.files, segment.chunks, segment.definitions
    yield "languages", files["language"], len(segment.info.languages)
    yield "encodings", files["encoding"], len(segment.info.encodings)
    yield "files of chunks", chunks["file"], len(files)
    yield "kinds of chunks", chunks["kind"], len(segment.info.kinds)
    yield "roles", chunks["role"], len(ROLES)
    yield "symbols", chunks["symbol"], len(segment.strings)
    yield "imports", segment.array("imports.rows"), len(segment.strings)
    yield "names", definitions["name"], len(segment.strings)
    yield "qualified names", definitions["qualified_name"], len(segment.strings)
    yield "chunks of definitions", definitions["chunk"], len(chunks)
    yield "parents", definitions["parent"], len(definitions)
    yield "kinds of definitions", definitions["kind"], len(segment.info.kinds)
    yield "definitions of names", segment.array("names.rows"), len(definitions)


def _check_terms(segment: Segment) -> None:
    for name in TERM_LISTS:
        owners = segment.info.files if name == "files" else segment.info.chunks
        postings = segment.postings(name)
        if postings is None:
            raise ValueError(f"no list {name}")
        _check_starts(postings.starts, len(postings.hashes), len(postings.rows))
        _require(len(postings.rows) == 0 or int(postings.rows.max()) < owners, name)
        _require(len(postings.freqs) == len(postings.rows) and len(postings.lengths) == owners, name)


def _check_vectors(segment: Segment, dimensions: int) -> None:
    for name in VECTOR_LISTS:
        vectors = segment.vectors(name)
        if vectors is None:
            continue
        rows = len(vectors.floats)
        _check_starts(vectors.starts, segment.info.files if name == "files" else segment.info.chunks, rows)
        _require(vectors.floats.shape == (rows, dimensions) and vectors.hashes.shape == (rows, 16), name)
        _require(vectors.bits.dtype == "<u8" and vectors.bits.shape == (rows, -(-dimensions // 64)), name)


def _check_strings(segment: Segment, name: str, rows: int) -> None:
    _check_starts(segment.array(f"{name}.starts"), rows, len(segment.array(f"{name}.blob")))


def _check_starts(starts: Table, owners: int, rows: int) -> None:
    ascending = bool((starts[1:] >= starts[:-1]).all())
    _require(len(starts) == owners + 1 and starts[0] == 0 and starts[-1] == rows and ascending, "starts")


def _require(holds: Any, what: str) -> None:  # Any: a truth value of Python or of NumPy
    if not holds:
        raise ValueError(what)
