"""Terms of rows -> the postings of a segment, and the postings of several segments -> those of one.

A list is collected as numbers of a vocabulary, four bytes for each time a term occurs; hashing, stemming and counting
are done once a distinct term or for whole columns. Merging goes through the hashes slice by slice: what is in memory
does not grow with the lists.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexing.index_format import Postings
from indexing.index_writing import PartWriter, starts_of
from indexing.tokenizing import STOP_WORDS, stem, term_hash

MAX_FREQUENCY = 255
SLICE_ITEMS = 200_000  # postings that are sorted at once: about 10 MB
GONE = -1  # the new row of a row that is left out

Rows = NDArray[np.int64]


class Vocabulary(dict[str, int]):
    """Term -> number, in the order in which terms are met."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class TermRows:
    """Collects one list row by row. Rows without terms count as well."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._numbers = array("I")
        self._per_row = array("I")

    def add(self, *terms: Iterable[str]) -> None:
        """The next row's terms, each as often as it occurs."""
        before = len(self._numbers)
        for some in terms:
            self._numbers.extend(map(self._vocabulary.__getitem__, some))
        self._per_row.append(len(self._numbers) - before)

    def postings(self, hashes: NDArray[np.uint64], known: NDArray[np.bool_]) -> Postings:
        """hashes, known: (terms of the vocabulary,); terms that are not `known` are left out."""
        unique, positions = np.unique(hashes[known], return_inverse=True)
        place = np.zeros(len(hashes), dtype=np.uint64)
        place[known] = positions.astype(np.uint64) << np.uint64(32)
        numbers = np.frombuffer(self._numbers, dtype=np.uint32)
        per_row = np.frombuffer(self._per_row, dtype=np.uint32)
        rows = np.repeat(np.arange(len(per_row), dtype=np.uint32), per_row)
        if not known.all():
            kept = known[numbers]
            numbers, rows = numbers[kept], rows[kept]
        lengths = np.bincount(rows, minlength=len(per_row)).astype(np.uint32)
        keys = place[numbers]
        keys |= rows
        del numbers, rows
        keys.sort()
        return _counted(keys, unique, lengths)


def _counted(keys: NDArray[np.uint64], hashes: NDArray[np.uint64], lengths: NDArray[np.uint32]) -> Postings:
    """keys: sorted, one for each time a term occurs: its position in `hashes` in the upper half, its row below."""
    first = np.flatnonzero(np.diff(keys, prepend=~keys[:1])) if len(keys) else np.zeros(0, dtype=np.int64)
    freqs = np.minimum(np.diff(first, append=len(keys)), MAX_FREQUENCY).astype(np.uint8)
    pairs = keys[first]
    counts = np.bincount((pairs >> np.uint64(32)).astype(np.int64), minlength=len(hashes))
    used = counts > 0
    return Postings(
        hashes=hashes[used],
        starts=starts_of(counts[used], np.uint32),
        rows=(pairs & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        freqs=freqs,
        lengths=lengths,
    )


class SegmentTerms:
    """The term lists of one segment, collected with one vocabulary. `code` is written stemmed and as it stands."""

    def __init__(self) -> None:
        self._vocabulary = Vocabulary()
        self.code = TermRows(self._vocabulary)
        self.descriptions = TermRows(self._vocabulary)
        self.files = TermRows(self._vocabulary)

    def write(self, parts: PartWriter) -> None:
        vocabulary = list(self._vocabulary)
        known = np.ones(len(vocabulary), dtype=np.bool_)
        _write(parts, "code_terms", self.code.postings(_hashes(vocabulary), known))
        for position, term in enumerate(vocabulary):
            known[position] = term not in STOP_WORDS
        stems = _hashes(map(stem, vocabulary))
        for name, rows in (("code_stems", self.code), ("descriptions", self.descriptions), ("files", self.files)):
            _write(parts, name, rows.postings(stems, known))


def _hashes(terms: Iterable[str]) -> NDArray[np.uint64]:
    return np.fromiter(map(term_hash, terms), dtype=np.uint64)


def _write(parts: PartWriter, name: str, postings: Postings) -> None:
    parts.add(f"terms.{name}.hashes", postings.hashes)
    parts.add(f"terms.{name}.starts", postings.starts)
    parts.add(f"terms.{name}.rows", postings.rows)
    parts.add(f"terms.{name}.freqs", postings.freqs)
    parts.add(f"terms.{name}.lengths", postings.lengths)


@dataclass(frozen=True, slots=True)
class MovedPostings:
    """`places`: (rows,) the new row of each old one, or GONE."""

    postings: Postings
    places: Rows


def merge_postings(
    parts: PartWriter,
    name: str,
    sources: Sequence[MovedPostings],
    lengths: Iterable[NDArray[np.uint32]],
    release: Callable[[], None] = lambda: None,
) -> None:
    """`lengths` of the merged rows in blocks; `release` is called when mapped pages are not needed any more."""
    hash_file = parts.open(f"terms.{name}.hashes", np.uint64)
    starts = parts.open_starts(f"terms.{name}.starts")
    row_file = parts.open(f"terms.{name}.rows", np.uint32)
    freqs = parts.open(f"terms.{name}.freqs", np.uint8)
    length_file = parts.open(f"terms.{name}.lengths", np.uint32)
    for windows in term_slices([source.postings for source in sources]):
        found = [_live(source, window) for source, window in zip(sources, windows, strict=True)]
        hashes, rows, counts = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((rows, hashes))
        unique, per_term = np.unique(hashes[order], return_counts=True)
        hash_file.append(unique)
        starts.append(per_term)
        row_file.append(rows[order])
        freqs.append(counts[order])
        release()
    for block in lengths:
        length_file.append(block)
        release()


def _live(source: MovedPostings, window: slice) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint8]]:
    """(hashes, new rows, freqs) of the postings of a range of terms."""
    postings = source.postings
    edges = postings.starts[window.start : window.stop + 1].astype(np.int64)
    inside = slice(int(edges[0]), int(edges[-1]))
    rows = source.places[postings.rows[inside]]
    live = rows != GONE
    hashes = np.repeat(postings.hashes[window], np.diff(edges))
    return hashes[live], rows[live].astype(np.uint32), postings.freqs[inside][live]


def hash_slices(tables: Sequence[NDArray[np.uint64]], items: int) -> Iterator[list[slice]]:
    """Ranges of sorted hashes, the same ones in every table, of about SLICE_ITEMS items in all: hashes are even."""
    slices = max(1, -(-items // SLICE_ITEMS))
    bounds = np.array([(1 << 64) * number // slices for number in range(1, slices)], dtype=np.uint64)
    edges = [[0, *np.searchsorted(table, bounds).tolist(), len(table)] for table in tables]
    for number in range(slices):
        yield [slice(edge[number], edge[number + 1]) for edge in edges]


def term_slices(lists: Sequence[Postings]) -> Iterator[list[slice]]:
    """As `hash_slices`, with no more postings in one than those of a single term where that is too many: words that
    nearly every row has may be neighbours.
    """
    tables = [postings.hashes for postings in lists]
    waiting = list(hash_slices(tables, sum(len(postings.rows) for postings in lists)))[::-1]
    while waiting:
        windows = waiting.pop()
        pairs = list(zip(lists, windows, strict=True))
        items = sum(int(one.starts[window.stop]) - int(one.starts[window.start]) for one, window in pairs)
        largest, window = max(pairs, key=lambda pair: pair[1].stop - pair[1].start)
        if items <= SLICE_ITEMS or window.stop - window.start < 2:
            yield windows
            continue
        middle = largest.hashes[(window.start + window.stop) // 2]
        cuts = [
            one.start + int(np.searchsorted(table[one], middle)) for table, one in zip(tables, windows, strict=True)
        ]
        waiting.append([slice(cut, one.stop) for cut, one in zip(cuts, windows, strict=True)])
        waiting.append([slice(one.start, cut) for cut, one in zip(cuts, windows, strict=True)])


def replace_postings(parts: PartWriter, name: str, old: Postings, replaced: Mapping[int, Sequence[str]]) -> None:
    """Stemmed list `name` again, with other terms (as often as they occur) for the rows in `replaced`."""
    vocabulary = Vocabulary()
    rows = TermRows(vocabulary)
    numbers = sorted(replaced)
    for row in numbers:
        rows.add(replaced[row])
    terms = list(vocabulary)
    known = np.array([term not in STOP_WORDS for term in terms], dtype=np.bool_)
    new = rows.postings(_hashes(map(stem, terms)), known)
    places = np.arange(len(old.lengths), dtype=np.int64)
    places[numbers] = GONE
    lengths = np.array(old.lengths)
    lengths[numbers] = new.lengths
    merge_postings(
        parts, name, [MovedPostings(old, places), MovedPostings(new, np.array(numbers, dtype=np.int64))], [lengths]
    )
