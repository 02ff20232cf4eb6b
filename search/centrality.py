"""How many files of a repository lean on each file: a hub is more often what a general question means.

Imports are counted where they can be read as files ("./utils", "crate::de", "flask.sessions"). Files that nothing
imports by name (Swift, C#, one package of Kotlin) count the files that mention their name instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from indexing.index_format import OpenIndex, Postings, Segment
from indexing.tokenizing import stems, term_hash
from search.lexical import document_frequencies

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

# A mention is weaker than an import: the name may be a plain word.
MENTION_WEIGHT = 0.5

_SEPARATORS = re.compile(r"::|[./\\:]+")
_NOT_NAME = re.compile(r"[^a-z0-9]")
_EXTENSIONS = frozenset("py js jsx ts tsx mjs cjs vue rb php rs go h hpp hh c cc cpp zig lua sh bash css scss".split())
# These stand for their folder.
_FOLDER_FILES = frozenset({"index", "init", "mod", "lib", "main"})

_known: WeakKeyDictionary[OpenIndex, Floats] = WeakKeyDictionary()


def centrality(index: OpenIndex) -> Floats:
    """(files of all segments, in order) in [0, 1]: log(1 + files that lean on it), over the largest. Kept per index."""
    found = _known.get(index)
    if found is None:
        found = _known[index] = _centrality(index)
    return found


def _centrality(index: OpenIndex) -> Floats:
    if not index.segments:
        return np.empty(0, np.float32)
    numbers: dict[str, int] = {}  # file key -> its number, of files and imports alike
    own = [_numbered(map(file_key, _paths(segment)), numbers) for segment in index.segments]
    imported = [_imports(segment, keys, numbers) for segment, keys in zip(index.segments, own, strict=True)]
    files = np.concatenate(own)
    importers = np.bincount(np.concatenate(imported), minlength=len(numbers))
    counts = importers.astype(np.float32)
    lists = [postings for segment in index.segments if (postings := segment.postings("files")) is not None]
    names = list(numbers)
    alone = np.unique(files[importers[files] == 0])
    counts[alone] = MENTION_WEIGHT * np.maximum(0, _mentions(lists, [names[number] for number in alone.tolist()]) - 1)
    logs = np.log1p(counts[files])
    return (logs / max(float(logs.max(initial=0)), 1e-9)).astype(np.float32)


def _numbered(keys: Iterable[str], numbers: dict[str, int]) -> Rows:
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _paths(segment: Segment) -> list[bytes]:
    blob, edges = segment.paths.blob.tobytes(), segment.paths.starts.tolist()
    return [blob[start:end] for start, end in pairwise(edges)]


def _mentions(lists: Sequence[Postings], keys: Sequence[str]) -> npt.NDArray[np.int64]:
    """(keys,) in how many files each of the names occurs; 0 for names too short to be told from words."""
    found = [stems([key]) if len(key) > 3 else [] for key in keys]
    long = np.flatnonzero([bool(stemmed) for stemmed in found])
    mentions = np.zeros(len(keys), np.int64)
    mentions[long] = document_frequencies(lists, [term_hash(stemmed[0]) for stemmed in found if stemmed])
    return mentions


def _imports(segment: Segment, own: Rows, numbers: dict[str, int]) -> Rows:
    """The number of the key of each import: once a live file, and not its own. Each name is read once."""
    starts = np.asarray(segment.array("imports.starts")).astype(np.int64)
    names, places = np.unique(segment.array("imports.rows"), return_inverse=True)
    raws = segment.strings.raws(names.astype(np.int64))
    keys = [import_key(raw.decode("utf-8", "surrogateescape")) for raw in raws]
    imported = _numbered(keys, numbers)[places]
    files = np.repeat(np.arange(len(own)), np.diff(starts))
    counted = imported != own[files]
    if "" in numbers:
        counted &= imported != numbers[""]
    if segment.live_files is not None:
        counted &= segment.live_files[files]
    once: Rows = np.unique(files[counted] * len(numbers) + imported[counted]) % len(numbers)
    return once


def file_key(path: bytes) -> str:
    """`src/Foo/BarBaz.py` -> "barbaz"; `foo/__init__.py` -> "foo"."""
    folder, slash, name = path.decode("utf-8", "replace").rpartition("/")
    stem = _letters(name.partition(".")[0].lower())
    if stem in _FOLDER_FILES and slash:
        return _letters(folder.rpartition("/")[2].lower())
    return stem


def import_key(name: str) -> str:
    """`./utils/buildURL.js` -> "buildurl"; `crate::de::Visitor` -> "visitor"; `flask.sessions` -> "sessions"."""
    parts = [part for part in _SEPARATORS.split(name.lower().strip("\"'<> ")) if part]
    if len(parts) > 1 and parts[-1] in _EXTENSIONS:
        parts.pop()
    last = _letters(parts[-1]) if parts else ""
    if last in _FOLDER_FILES and len(parts) > 1:
        last = _letters(parts[-2])
    return last


def _letters(word: str) -> str:
    return word if word.isascii() and word.isalnum() else _NOT_NAME.sub("", word)
