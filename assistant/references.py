"""A name -> where it is written in a repository: its definitions, and every other mention as a whole word.

The term index names the files and the definitions, the mirror has the last word: a mention is shown when its bytes are
there. Looks at the newest indexed commit only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from assistant.source_view import Row, read_places
from indexing import git
from indexing.errors import GitError, IndexFormatError
from indexing.index_format import OpenIndex, Segment
from indexing.models import Repository
from indexing.tokenizing import term_hash, terms
from search.index_cache import opened

MAX_FILES = 40
MAX_REFERENCES = 200
MAX_NAME_CHARS = 100


@dataclass(frozen=True, slots=True)
class Reference:
    """One mention: its bytes in the file, the line it is on, and whether it is where the name is defined."""

    start_byte: int
    end_byte: int
    row: Row
    definition: bool


@dataclass(frozen=True, slots=True)
class FileReferences:
    path: bytes
    references: tuple[Reference, ...]


@dataclass(frozen=True, slots=True)
class References:
    """`files`: those that define the name first. `cut`: there may be more than is listed."""

    name: str
    commit: str
    files: tuple[FileReferences, ...]
    cut: bool

    @property
    def total(self) -> int:
        return sum(len(file.references) for file in self.files)


def references(repository: Repository, name: str) -> References:
    """Empty for what is no name, and for a repository without a readable index."""
    word = name.strip()[:MAX_NAME_CHARS]
    tokens = terms(word)
    if not tokens or re.search(r"\W", word):
        return References(word, "", (), cut=False)
    try:
        index = opened(repository.index_path)
    except IndexFormatError:
        return References(word, "", (), cut=False)
    candidates = _candidates(index, word, tokens[0])
    files = []
    room = MAX_REFERENCES
    for path, definitions in list(candidates.items())[:MAX_FILES]:
        found = _in_file(repository, index.manifest.commit, path, word, definitions)[:room]
        if found:
            files.append(FileReferences(path, tuple(found)))
            room -= len(found)
    files.sort(key=lambda file: not any(mention.definition for mention in file.references))
    return References(word, index.manifest.commit, tuple(files), cut=room <= 0 or len(candidates) > MAX_FILES)


def _candidates(index: OpenIndex, word: str, term: str) -> dict[bytes, set[int]]:
    """Paths that may mention the word, those that define it first, with the bytes where a definition's name begins."""
    defining: dict[bytes, set[int]] = {}
    mentioning: dict[bytes, set[int]] = {}
    for segment in index.segments:
        live = segment.live_files
        for path, start in _definitions(segment, word):
            defining.setdefault(path, set()).add(start)
        if (postings := segment.postings("code_terms")) is None:
            continue
        chunks, _ = postings.find(term_hash(term))
        for file in dict.fromkeys(segment.chunks["file"][chunks].tolist()):
            if live is None or live[file]:
                mentioning.setdefault(segment.paths.raw(file), set())
    return defining | {path: starts for path, starts in mentioning.items() if path not in defining}


def _definitions(segment: Segment, word: str) -> list[tuple[bytes, int]]:
    found = []
    for number in segment.definitions_named(term_hash(word.lower())):
        record = segment.definition(int(number))
        file = int(segment.chunks["file"][record.chunk])
        if record.name == word and (segment.live_files is None or segment.live_files[file]):
            found.append((segment.paths.raw(file), record.name_byte))
    return found


def _in_file(repository: Repository, commit: str, path: bytes, word: str, definitions: set[int]) -> list[Reference]:
    """Whole words only; beside a letter beyond ASCII it is part of a longer one."""
    pattern = re.compile(rb"(?<![\w\x80-\xff])" + re.escape(word.encode()) + rb"(?![\w\x80-\xff])")
    try:
        blob_id = git.blob_at(repository.mirror.path, commit, path)
        if blob_id is None:
            return []
        with git.BlobReader(repository.mirror.path) as blobs:
            ranges = [match.span() for match in pattern.finditer(blobs.read(blob_id))][:MAX_REFERENCES]
        rows = read_places(repository, commit, path, ranges)
    except (GitError, LookupError, OSError):
        return []
    return [
        Reference(start, end, row, definition=start in definitions)
        for (start, end), row in zip(ranges, rows, strict=True)
    ]
