"""Walked files -> segments that can be searched by words: coordinates, definitions and hashed terms.

Nothing here is embedded and no text is kept. The first segment is small, so that a large repository can be searched
after seconds; each next one is larger, so that there are few. One file that fails is left out and reported.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from indexing.chunking import Chunk, ChunkedFile, chunk_file
from indexing.context import extractive_description
from indexing.index_format import FileRecord, ReadmeSpan, SegmentInfo
from indexing.index_writing import new_folder_id
from indexing.masking import mask_secrets
from indexing.offsets import LineIndex
from indexing.profiling import TermCounter, path_flags, readme_span
from indexing.segment_writing import SegmentWriter
from indexing.suspects import Suspects
from indexing.tokenizing import terms
from indexing.walking import SkippedEntry, SkipReason, SourceFile, decode

FIRST_SEGMENT_CHUNKS = 5_000  # two or three seconds of parsing
LARGEST_SEGMENT_CHUNKS = 10_000  # about 40 MB while it is written; many of them are merged when all are there
SEGMENT_GROWTH = 2

OnEntry = Callable[[SourceFile | SkippedEntry, int], None]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Collected:
    """What the files of one commit gave so far."""

    segments: list[SegmentInfo] = field(default_factory=list)
    files: int = 0
    chunks: int = 0
    skipped: Counter[str] = field(default_factory=Counter)  # reason -> files
    fallbacks: Counter[str] = field(default_factory=Counter)  # why files were cut by lines -> files
    failed: list[bytes] = field(default_factory=list)  # paths that raised an error
    languages: Counter[str] = field(default_factory=Counter)  # language -> chunks
    names: TermCounter = field(default_factory=TermCounter)
    readme: ReadmeSpan | None = None
    readme_at: int = 0  # range of the tree that it is in

    def add(self, other: Collected, *, position: int) -> None:
        """Also what another range of the same tree gave, in whatever order they come."""
        self.segments += other.segments
        self.files += other.files
        self.chunks += other.chunks
        self.skipped.update(other.skipped)
        self.fallbacks.update(other.fallbacks)
        self.failed += other.failed
        self.languages.update(other.languages)
        self.names.merge(other.names)
        if other.readme is not None and (self.readme is None or position < self.readme_at):
            self.readme, self.readme_at = other.readme, position


def collect(
    entries: Iterable[SourceFile | SkippedEntry],
    *,
    directory: Path,
    index_id: int,
    suspects: Suspects,
    on_entry: OnEntry,
    segments_before: int = 0,
) -> Iterator[Collected]:
    """Yields the same growing `Collected` after each finished segment; the last time when all entries are done.

    `on_entry` hears of each file and of how many chunks there are so far.
    """
    collected = Collected()
    writer: SegmentWriter | None = None
    for entry in entries:
        if isinstance(entry, SkippedEntry):
            collected.skipped[entry.reason.value] += 1
        else:
            writer = writer or SegmentWriter(directory, segment_id=new_folder_id(index_id))
            if suspects.must_be_left_out(entry):
                entry = SkippedEntry(entry.path, SkipReason.PARSER, "it ended the process that parsed it")  # noqa: PLW2901
                collected.skipped[entry.reason.value] += 1
            elif not _add_file(writer, entry, collected, suspects):
                entry = SkippedEntry(entry.path, SkipReason.FAILED, "the log says why")  # noqa: PLW2901
                collected.skipped[entry.reason.value] += 1
        on_entry(entry, collected.chunks)
        if writer is not None and writer.chunks >= _segment_limit(segments_before + len(collected.segments)):
            suspects.rest()
            collected.segments.append(writer.finish())
            writer = None
            yield collected
    suspects.rest()
    if writer is not None and writer.files:
        collected.segments.append(writer.finish())
    yield collected


def _segment_limit(position: int) -> int:
    return min(LARGEST_SEGMENT_CHUNKS, FIRST_SEGMENT_CHUNKS * int(SEGMENT_GROWTH**position))


def _add_file(writer: SegmentWriter, source: SourceFile, collected: Collected, suspects: Suspects) -> bool:
    """False when the file failed."""
    suspects.reading(source.blob_id)
    try:
        chunked, prepared = prepare(source)
    except Exception as error:  # noqa: BLE001 (whatever one file does to a parser, the others are indexed)
        log.warning("file %s of blob %s was left out: %s", display(source.path), source.blob_id, type(error).__name__)
        collected.failed.append(source.path)
        return False
    finally:
        suspects.done()
    writer.add_file(prepared.file, chunked, prepared.content_hashes)
    for own, description in zip(prepared.code_terms, prepared.descriptions, strict=True):
        writer.terms.code.add(prepared.path_terms, own)
        writer.terms.descriptions.add(description)
    writer.terms.files.add(prepared.path_terms, *prepared.file_terms)
    collected.files += 1
    collected.chunks += len(chunked.chunks)
    collected.languages[source.language] += len(chunked.chunks)
    collected.names.add(definition.name for definition in chunked.parsed.definitions)
    if chunked.parsed.fallback:
        collected.fallbacks[chunked.parsed.fallback] += 1
    if collected.readme is None:
        collected.readme = readme_span(source.path, source.blob_id, source.encoding, source.raw)
    return True


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a segment holds of a file, beside its chunks."""

    file: FileRecord
    content_hashes: list[int]
    path_terms: list[str]
    code_terms: list[list[str]]  # of each chunk: symbol, then its own text
    descriptions: list[list[str]]  # of each chunk
    file_terms: list[list[str]]  # own text of the primary chunks; the others repeat what those hold


def prepare(source: SourceFile) -> tuple[ChunkedFile, Prepared]:
    """Everything that can fail, before anything is added to the segment."""
    chunked = chunk_file(source)
    has_secrets = _has_secrets(source)
    code_terms, file_terms = [], []
    for chunk in chunked.chunks:
        own = terms(own_text(source, chunk, mask=has_secrets))
        if chunk.role == "primary":
            file_terms.append(own)
        code_terms.append(terms(chunk.symbol) + own)
    descriptions = [extractive_description(source, chunked, position) for position in range(len(chunked.chunks))]
    return chunked, Prepared(
        file=FileRecord(
            path=source.path,
            blob_id=source.blob_id,
            language=source.language,
            encoding=source.encoding,
            flags=int(path_flags(source.path)),
            lines=LineIndex(source.raw, source.encoding).line_count,
            imports=chunked.parsed.imports,
        ),
        content_hashes=[content_hash(source.raw[chunk.start_byte : chunk.end_byte]) for chunk in chunked.chunks],
        path_terms=terms(display(source.path)),
        code_terms=code_terms,
        descriptions=[terms(text) for text in descriptions],
        file_terms=file_terms,
    )


def own_text(source: SourceFile, chunk: Chunk, *, mask: bool) -> str:
    """The chunk as it stands in the file."""
    text = decode(source.raw[chunk.start_byte : chunk.end_byte], source.encoding)
    return mask_secrets(text) if mask else text


def _has_secrets(source: SourceFile) -> bool:
    """Looked for once a file, because nearly all have none."""
    text = source.text.decode("utf-8", "replace")
    return mask_secrets(text) != text


def content_hash(raw: bytes) -> int:
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "little")


def display(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
