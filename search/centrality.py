"""How many files of a repository lean on each file: a hub is more often what a general question means.

Imports are counted where they can be read as files ("./utils", "crate::de", "flask.sessions"). Files that nothing
imports by name (Swift, C#, one package of Kotlin) count the files that mention their name instead.
"""

from __future__ import annotations

import re
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from indexing.index_format import OpenIndex, Postings
from indexing.tokenizing import stems, term_hash
from search.lexical import document_frequency

Floats = npt.NDArray[np.float32]

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
    keys = [file_key(segment.paths.raw(row)) for segment in index.segments for row in range(segment.info.files)]
    importers = _importers(index)
    lists = [postings for segment in index.segments if (postings := segment.postings("files")) is not None]
    counts = np.zeros(len(keys), np.float32)
    for place, key in enumerate(keys):
        imported = importers.get(key, 0)
        counts[place] = imported or MENTION_WEIGHT * max(0, _mentions(lists, key) - 1)
    logs = np.log1p(counts)
    return (logs / max(float(logs.max(initial=0)), 1e-9)).astype(np.float32)


def _mentions(lists: list[Postings], key: str) -> int:
    found = stems([key]) if len(key) > 3 else []
    return document_frequency(lists, term_hash(found[0])) if found else 0


def _importers(index: OpenIndex) -> dict[str, int]:
    """File key -> number of files with an import that ends in it."""
    counts: dict[str, int] = {}
    for segment in index.segments:
        for row in segment.live_file_rows():
            own = file_key(segment.paths.raw(row))
            for key in {key for name in segment.imports(row) if (key := import_key(name))} - {own}:
                counts[key] = counts.get(key, 0) + 1
    return counts


def file_key(path: bytes) -> str:
    """`src/Foo/BarBaz.py` -> "barbaz"; `foo/__init__.py` -> "foo"."""
    segments = path.decode("utf-8", "replace").split("/")
    stem = _NOT_NAME.sub("", segments[-1].split(".", 1)[0].lower())
    if stem in _FOLDER_FILES and len(segments) > 1:
        return _NOT_NAME.sub("", segments[-2].lower())
    return stem


def import_key(name: str) -> str:
    """`./utils/buildURL.js` -> "buildurl"; `crate::de::Visitor` -> "visitor"; `flask.sessions` -> "sessions"."""
    parts = [part for part in _SEPARATORS.split(name.lower().strip("\"'<> ")) if part]
    if len(parts) > 1 and parts[-1] in _EXTENSIONS:
        parts.pop()
    last = _NOT_NAME.sub("", parts[-1]) if parts else ""
    if last in _FOLDER_FILES and len(parts) > 1:
        last = _NOT_NAME.sub("", parts[-2])
    return last
