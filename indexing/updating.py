"""What a new commit changes in the published index: which files to read, and which rows are over.

In: the published index and a commit. Out: an `Update`, or None when everything is parsed again: another format, model
or way of cutting, rules about other files changed, or most files did. Two trees are compared by (path, blob id), so a
rename is a deletion and a new file, and a base commit that a force-push took away only costs a comparison of lists.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

import numpy as np
from django.conf import settings

from indexing import git
from indexing.errors import IndexFormatError, MissingObject
from indexing.git import BlobReader, TreeEntry
from indexing.index_format import (
    VECTOR_LISTS,
    Manifest,
    OpenIndex,
    ReadmeSpan,
    Segment,
    SegmentInfo,
    open_index,
)
from indexing.index_writing import PartWriter, with_parts
from indexing.models import Repository
from indexing.profiling import readme_span
from indexing.vector_cache import VectorCache
from indexing.walking import RULE_FILES

# Whatever decides which files are read, where they are cut, and which terms and texts they give.
_CUTTING_MODULES = (
    "chunking/*.py collecting.py context.py decoding.py languages.py masking.py offsets.py parsing.py path_rules.py "
    "postings.py profiling.py segment_writing.py tags.py tokenizing.py walking.py"
).split()
_CUTTING_PACKAGES = ("tree-sitter", "tree-sitter-language-pack", "PyStemmer")
_CUTTING_SETTINGS = (
    *("MAX_FILE_BYTES", "CHUNK_TARGET_CHARS", "CHUNK_MAX_CHARS", "LINE_CHUNK_LINES", "LINE_CHUNK_OVERLAP"),
    "EMBEDDED_PATH_CHARS",
)
WHOLE_SHARE = 1 / 2  # of the files: from there on one new segment is cheaper to have than two halves


@dataclass(frozen=True, slots=True)
class Update:
    """`gone` maps a segment's position in the base to the file rows that were deleted or replaced."""

    base: OpenIndex
    entries: tuple[TreeEntry, ...]  # to read, in path order
    gone: Mapping[int, tuple[int, ...]]
    paths: frozenset[bytes]  # that changed in any way
    lists_all: bool = False  # `entries` hold every file that is not indexed, changed or not

    @property
    def changes(self) -> int:
        return max(len(self.entries), sum(map(len, self.gone.values())))


def published_base(directory: Path, manifest: Manifest | None, *, fingerprint: str) -> OpenIndex | None:
    """The published index, which can be opened, when new segments of its model may stand beside its own; else None."""
    if manifest is None or manifest.model is None or manifest.chunking != fingerprint:
        return None
    if manifest.coverage.lexical < 1 or not manifest.coverage.vectors:
        return None
    return OpenIndex(directory, manifest)


def can_be_opened(directory: Path) -> bool:
    """False when there is no index, or one that no search can use."""
    try:
        open_index(directory)
    except IndexFormatError:
        return False
    return True


@lru_cache(maxsize=1)
def _fingerprint_of_code() -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    folder = Path(__file__).parent
    for pattern in _CUTTING_MODULES:
        for file in sorted(folder.glob(pattern)):
            digest.update(file.read_bytes())
    for package in _CUTTING_PACKAGES:
        digest.update(f"{package} {version(package)}\n".encode())
    return digest.digest()


def chunking_fingerprint(repository: Repository) -> str:
    """Over the code, packages and settings that decide which files are read and how: no version number to forget."""
    digest = hashlib.blake2b(_fingerprint_of_code(), digest_size=16)
    for name in _CUTTING_SETTINGS:
        digest.update(f"{name}={getattr(settings, name)}\n".encode())
    if repository.file_rules or repository.max_file_bytes:
        digest.update(f"{repository.max_file_bytes} {repository.file_rules}".encode())
    return digest.hexdigest()


def plan_update(base: OpenIndex, mirror_path: Path, commit: str, *, skipped: int) -> Update | None:
    """`skipped`: how many files of the base commit are not indexed. Raises MissingObject when the mirror lacks some."""
    try:
        update = _differences(base, mirror_path, commit)
        expected = 0
    except MissingObject:
        update = _compared(base, mirror_path, commit)
        expected = skipped
    if any(path.rpartition(b"/")[2] in RULE_FILES for path in update.paths):
        return None
    if update.changes - expected > WHOLE_SHARE * base.manifest.files:
        return None
    return update


def _differences(base: OpenIndex, mirror_path: Path, commit: str) -> Update:
    """From Git's own comparison, which skips what is equal."""
    changes = git.changed_files(mirror_path, base.manifest.commit, commit)
    return Update(
        base=base,
        entries=tuple(change.entry for change in changes if change.entry is not None),
        gone=_rows_of(base, (change.path for change in changes)),
        paths=frozenset(change.path for change in changes),
    )


def _rows_of(base: OpenIndex, paths: Iterable[bytes]) -> dict[int, tuple[int, ...]]:
    gone: dict[int, list[int]] = {}
    for path in paths:
        for number, segment in enumerate(base.segments):
            if (row := segment.find_file(path)) is not None:
                gone.setdefault(number, []).append(row)
    return {number: tuple(rows) for number, rows in gone.items()}


def _compared(base: OpenIndex, mirror_path: Path, commit: str) -> Update:
    """Without the base commit: the new tree against the files of the index. Files that are not in it are read."""
    indexed = {
        segment.paths.raw(row): (segment.array("blobs")[row].tobytes().hex(), number, row)
        for number, segment in enumerate(base.segments)
        for row in segment.live_file_rows()
    }
    entries = []
    for entry in git.list_tree(mirror_path, commit):
        blob_id, _, _ = indexed.get(entry.path, ("", 0, 0))
        if blob_id == entry.blob_id and entry.mode & 0o170000 == 0o100000:
            del indexed[entry.path]
        else:
            entries.append(entry)
    gone: dict[int, list[int]] = {}
    for _, number, row in indexed.values():
        gone.setdefault(number, []).append(row)
    return Update(
        base=base,
        entries=tuple(entries),
        gone={number: tuple(sorted(rows)) for number, rows in gone.items()},
        paths=frozenset({entry.path for entry in entries} | set(indexed)),
        lists_all=True,
    )


def kept_segments(directory: Path, update: Update, *, suffix: str) -> list[SegmentInfo]:
    """The base's segments as the next generation names them: with tombstones, without those that are all gone."""
    kept = []
    for number, segment in enumerate(update.base.segments):
        info = segment.info
        if rows := update.gone.get(number, ()):
            info = _with_tombstones(directory, segment, rows, suffix)
        if info.live_files:
            kept.append(info)
    return kept


def _with_tombstones(directory: Path, segment: Segment, rows: tuple[int, ...], suffix: str) -> SegmentInfo:
    tombstones = np.zeros(segment.info.files, dtype=np.uint8)
    if segment.live_files is not None:
        tombstones[~segment.live_files] = 1
    tombstones[list(rows)] = 1
    parts = PartWriter(directory, folder=segment.info.id, suffix=suffix)
    parts.add("tombstones", tombstones)
    parts.sync()
    info, chunks = with_parts(segment.info, parts.parts), _chunks_of(segment, rows)
    return replace(
        info,
        dead_files=info.dead_files + len(rows),
        dead_chunks=info.dead_chunks + len(chunks),
        embedded=info.embedded - _embedded(segment, chunks),
        described=info.described - len(_descriptions(segment, chunks)),
    )


def _chunks_of(segment: Segment, rows: Iterable[int]) -> list[int]:
    edges = segment.file_chunks
    return [chunk for row in rows for chunk in range(int(edges[row]), int(edges[row + 1]))]


def _embedded(segment: Segment, chunks: list[int]) -> int:
    starts = segment.array("vectors.code.starts")
    return sum(int(starts[chunk + 1]) > int(starts[chunk]) for chunk in chunks)


def _descriptions(segment: Segment, chunks: list[int]) -> dict[int, str]:
    table = segment.descriptions
    return {} if table is None else {chunk: text for chunk in chunks if (text := table[chunk])}


def gone_descriptions(update: Update) -> dict[int, str]:
    """Content hash -> description of the chunks that are over: their likes under another path need no model."""
    found: dict[int, str] = {}
    for number, rows in update.gone.items():
        segment = update.base.segments[number]
        for chunk, text in _descriptions(segment, _chunks_of(segment, rows)).items():
            found[int(segment.chunks["content_hash"][chunk])] = text
    return found


def inherited(segments: Iterable[Segment], known: Mapping[int, str]) -> dict[str, dict[int, str]]:
    """Segment id -> chunk row -> sentences, for chunks without any whose content hash is known."""
    found: dict[str, dict[int, str]] = {}
    hashes = np.array(list(known), dtype=np.uint64)
    for segment in segments:
        for row in np.flatnonzero(np.isin(segment.chunks["content_hash"], hashes)):
            if segment.descriptions is None or not segment.descriptions[int(row)]:
                found.setdefault(segment.info.id, {})[int(row)] = known[int(segment.chunks["content_hash"][row])]
    return found


def gone_languages(update: Update) -> Counter[str]:
    """Language -> chunks that are over."""
    found: Counter[str] = Counter()
    for number, rows in update.gone.items():
        segment = update.base.segments[number]
        for row in rows:
            language = segment.info.languages[int(segment.files["language"][row])]
            found[language] += int(segment.file_chunks[row + 1]) - int(segment.file_chunks[row])
    return found


def unchanged_cut_by_lines(update: Update) -> Counter[str]:
    """Why files that stay as they are were cut by lines -> how many."""
    found: Counter[str] = Counter()
    for number, segment in enumerate(update.base.segments):
        gone = set(update.gone.get(number, ()))
        for why, rows in segment.info.cut_by_lines.items():
            live = (row for row in rows if segment.live_files is None or segment.live_files[row])
            found[why] += sum(row not in gone for row in live)
    return +found


def offer_gone_vectors(update: Update, cache: VectorCache) -> None:
    """Most texts of a file that changed are as before: their vectors are taken from its old rows."""
    for number, rows in update.gone.items():
        segment = update.base.segments[number]
        for row in rows:
            for name in VECTOR_LISTS:
                if (vectors := segment.vectors(name)) is not None:
                    edges = (row, row + 1) if name == "files" else segment.file_chunks[row : row + 2]
                    cache.take(vectors, int(edges[0]), int(edges[1]))


def updated_readme(update: Update, new: ReadmeSpan | None, mirror_path: Path) -> ReadmeSpan | None:
    """The first README with prose: of the files that were read or, when the old one is over, of the others."""
    old = update.base.manifest.profile.readme
    if old is not None and old.path.encode("utf-8", "surrogateescape") in update.paths:
        old = _other_readme(update, mirror_path)
    spans = [span for span in (old, new) if span is not None]
    return min(spans, key=lambda span: span.path.encode("utf-8", "surrogateescape"), default=None)


def _other_readme(update: Update, mirror_path: Path) -> ReadmeSpan | None:
    found = sorted(
        (segment.file(row).path, segment.file(row).blob_id, segment.file(row).encoding)
        for number, segment in enumerate(update.base.segments)
        for prefix in (b"README", b"Readme", b"readme")
        for row in segment.live_file_rows(segment.files_under(prefix))
        if row not in update.gone.get(number, ()) and b"/" not in segment.paths.raw(row)
    )
    with BlobReader(mirror_path) as blobs:
        spans = (readme_span(path, blob_id, encoding, blobs.read(blob_id)) for path, blob_id, encoding in found)
        return next((span for span in spans if span is not None), None)
