"""A repository at a glance: what is needed to choose among thousands of them before any chunk is touched.

In: description vectors, definition names and the README of one build. Out: centroid vectors, telling terms and where
the README's first paragraph is. Also the marks a path alone gives a file (test, example, documentation ...).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntFlag

import numpy as np
from numpy.typing import NDArray

from indexing.index_format import ReadmeSpan, Segment
from indexing.tokenizing import STOP_WORDS, terms

CENTROIDS = 32
ROUNDS = 8  # of k-means; more move a centroid by less than a degree
SAMPLE_ROWS = 20_000
SAMPLE_BLOCK = 1_000
TOP_TERMS = 40
MINIMUM_TERM_CHARS = 3
MINIMUM_PARAGRAPH_BYTES = 40


class FileFlag(IntFlag):
    """Stored per file in the index; several may hold."""

    TEST = 1
    EXAMPLE = 2
    DOCS = 4
    CONFIG = 8
    LEGACY = 16


_FOLDERS = {
    FileFlag.TEST: frozenset(
        {"test", "tests", "testing", "spec", "specs", "__tests__", "__mocks__", "fixtures", "testdata", "e2e"}
    ),
    FileFlag.EXAMPLE: frozenset(
        {
            "example",
            "examples",
            "demo",
            "demos",
            "sample",
            "samples",
            "tutorial",
            "tutorials",
            "benchmark",
            "benchmarks",
        }
    ),
    FileFlag.DOCS: frozenset({"doc", "docs", "documentation", "docs_src", "guide", "guides", "website"}),
    FileFlag.LEGACY: frozenset({"legacy", "compat", "deprecated", "_compat", "old", "attic"}),
}
_TEST_NAME = re.compile(r"(^|[._-])(test|tests|spec|specs|conftest)([._-]|$)|[a-z0-9](Test|Tests|Spec|TestCase)(\.|$)")
_LEGACY_NAME = re.compile(r"(^|[._-])(compat|legacy|deprecated|polyfill|shim)([._-]|$)", re.IGNORECASE)
_DOCS_SUFFIXES = (".md", ".mdx", ".markdown", ".rst", ".adoc", ".txt")
_CONFIG_SUFFIXES = (".json", ".yaml", ".yml", ".toml", ".ini", ".cfg", ".conf", ".properties", ".lock", ".xml")


def path_flags(path: bytes) -> FileFlag:
    """What the path alone tells; nothing is read."""
    *folders, name = path.decode("utf-8", "replace").split("/")
    lowered = {folder.lower() for folder in folders}
    flags = FileFlag(0)
    for flag, names in _FOLDERS.items():
        if lowered & names:
            flags |= flag
    if _TEST_NAME.search(name):
        flags |= FileFlag.TEST
    if _LEGACY_NAME.search(name):
        flags |= FileFlag.LEGACY
    if name.lower().endswith(_DOCS_SUFFIXES):
        flags |= FileFlag.DOCS
    if name.lower().endswith(_CONFIG_SUFFIXES):
        flags |= FileFlag.CONFIG
    return flags


class TermCounter:
    """In how many files each term of a definition's name occurs. Bounded: rare terms are let go."""

    MAXIMUM = 20_000

    def __init__(self) -> None:
        self._files: Counter[str] = Counter()

    def add(self, names: Iterable[str]) -> None:
        """The names of one file's definitions."""
        found = {term for name in names for term in terms(name)} - STOP_WORDS
        self._files.update(term for term in found if len(term) >= MINIMUM_TERM_CHARS)
        self._let_go()

    def _let_go(self) -> None:
        if len(self._files) > self.MAXIMUM:
            self._files = Counter(dict(self._files.most_common(self.MAXIMUM // 2)))

    def merge(self, other: TermCounter) -> None:
        """Also what was counted in other files."""
        self._files.update(other._files)
        self._let_go()

    def top(self) -> tuple[str, ...]:
        """Most frequent first, ties in alphabetical order."""
        ranked = sorted(self._files.items(), key=lambda item: (-item[1], item[0]))
        return tuple(term for term, _ in ranked[:TOP_TERMS])


def telling_terms(segments: Iterable[Segment]) -> tuple[str, ...]:
    """`TermCounter.top` of an index, from the names of its definitions."""
    counter = TermCounter()
    for segment in segments:
        names: dict[int, list[str]] = {}
        files = segment.chunks["file"][segment.definitions["chunk"]] if len(segment.definitions) else ()
        for file, name in zip(files, segment.definitions["name"], strict=True):
            names.setdefault(int(file), []).append(segment.strings[int(name)])
        for row in segment.live_file_rows():
            counter.add(names.get(row, ()))
    return counter.top()


def sample_of_descriptions(segments: Sequence[Segment], dimensions: int) -> NDArray[np.float16]:
    """(n, d) at most SAMPLE_ROWS of the description vectors of live chunks, evenly spread."""
    lists = [(segment, vectors) for segment in segments if (vectors := segment.vectors("descriptions")) is not None]
    step = max(1, -(-sum(len(vectors.floats) for _, vectors in lists) // SAMPLE_ROWS))
    sample = [np.zeros((0, dimensions), dtype=np.float16)]
    first = 0
    for segment, vectors in lists:
        rows = np.arange(first, len(vectors.floats), step)
        first = (first - len(vectors.floats)) % step
        if segment.live_chunks is not None:
            rows = rows[segment.live_chunks[vectors.owners(rows)]]
        for start in range(0, len(rows), SAMPLE_BLOCK):  # each row is on a page of its own
            sample.append(vectors.floats[rows[start : start + SAMPLE_BLOCK]])
            segment.release()
    return np.concatenate(sample)


def readme_span(path: bytes, blob_id: str, encoding: str, raw: bytes) -> ReadmeSpan | None:
    """The first paragraph of prose of a README at the root; None when this file is not one or has none."""
    if b"/" in path or not path.lower().startswith(b"readme") or encoding != "utf-8":
        return None
    start = end = 0
    for line in raw.splitlines(keepends=True):
        if line.strip():
            end += len(line)
            continue
        if _is_prose(raw[start:end]):
            break
        end += len(line)
        start = end
    if not _is_prose(raw[start:end]):
        return None
    end = start + len(raw[start:end].rstrip())
    return ReadmeSpan(path.decode("utf-8", "surrogateescape"), blob_id, encoding, start, end)


def _is_prose(paragraph: bytes) -> bool:
    """Not a heading, a badge, a list, a table or markup: those start with a sign."""
    text = paragraph.strip()
    return len(text) >= MINIMUM_PARAGRAPH_BYTES and text[:1].isalnum()


def centroids(vectors: NDArray[np.float16]) -> tuple[NDArray[np.float16], NDArray[np.float32]]:
    """(n, d) unit rows -> ((k, d) float16 unit rows, (k,) float32 weights that sum to 1), k <= 32, heaviest first.

    Spherical k-means from a fixed start, so equal vectors give equal centroids. No rows give no centroids.
    """
    if not len(vectors):
        return vectors[:0], np.zeros(0, dtype=np.float32)
    rows = vectors[:: -(-len(vectors) // SAMPLE_ROWS)].astype(np.float32)
    centres = _spread_rows(rows, min(CENTROIDS, len(rows)))
    nearest = np.argmax(rows @ centres.T, axis=1)
    for _ in range(ROUNDS):
        centres = _means(rows, nearest, centres)
        nearest = np.argmax(rows @ centres.T, axis=1)
    weights = np.bincount(nearest, minlength=len(centres)).astype(np.float32) / np.float32(len(rows))
    order = np.argsort(-weights, kind="stable")
    order = order[weights[order] > 0]
    return centres[order].astype(np.float16), weights[order]


def _spread_rows(rows: NDArray[np.float32], count: int) -> NDArray[np.float32]:
    """Rows far from each other: each next one is the least similar to those already taken."""
    taken = [0]
    similarity = rows @ rows[0]
    while len(taken) < count:
        taken.append(int(np.argmin(similarity)))
        similarity = np.maximum(similarity, rows @ rows[taken[-1]])
    return rows[taken]


def _means(rows: NDArray[np.float32], nearest: NDArray[np.intp], centres: NDArray[np.float32]) -> NDArray[np.float32]:
    """The unit mean of each group; a centre that lost all its rows stays where it was."""
    sums = np.zeros_like(centres)
    np.add.at(sums, nearest, rows)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.where(lengths > 0, sums / np.maximum(lengths, 1e-12), centres)
