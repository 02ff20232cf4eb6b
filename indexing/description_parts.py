"""Model-written descriptions -> the parts of the generation that adds them to segments.

A description takes the place of the deterministic one of its chunk, in the term list and in the vector list; chunks
without one keep what they have. The sentences are model output, so they are the one text that an index holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from indexing.chunking import chunk_file
from indexing.collecting import display, own_text, stem_frequencies
from indexing.describing import ChunkToDescribe, DescribeBudget, describe_chunks
from indexing.errors import DamagedIndex
from indexing.index_format import PartInfo, Segment
from indexing.index_writing import PartWriter, write_replaced_postings
from indexing.tokenizing import terms
from indexing.vector_cache import HASH_BYTES, VectorCache
from indexing.vectorising import ListRows, SegmentRows, Vectoriser, files_of_segments, same_cuts, write_list
from indexing.walking import SkippedEntry, SourceFile

MINIMUM_CHUNK_BYTES = 40  # a closing line says nothing that a description could add

Descriptions = list[dict[int, str]]  # per segment: chunk row -> sentences


def describe_segments(
    entries: Iterable[SourceFile | SkippedEntry],
    segments: list[Segment],
    *,
    repository_id: int,
    budget: DescribeBudget,
    on_described: Callable[[int], None],
) -> Descriptions:
    """`on_described` gets the number so far after each one; what it raises ends the work."""
    owners: list[tuple[int, int]] = []
    described: Descriptions = [{} for _ in segments]
    items = _chunks_to_describe(entries, segments, owners)
    found = describe_chunks(items, repository_id=repository_id, budget=budget)
    for count, (position, text) in enumerate(found, start=1):
        number, row = owners[position]
        described[number][row] = text
        on_described(count)
    return described


def _chunks_to_describe(
    entries: Iterable[SourceFile | SkippedEntry], segments: list[Segment], owners: list[tuple[int, int]]
) -> Iterator[ChunkToDescribe]:
    """Notes in `owners` which segment and row each yielded chunk is."""
    for source, number, file_row in files_of_segments(entries, segments):
        segment = segments[number]
        first, last = (int(row) for row in segment.file_chunks[file_row : file_row + 2])
        chunked = chunk_file(source)
        if not same_cuts(segment.chunks[first:last], chunked):
            continue
        for row, chunk in enumerate(chunked.chunks, first):
            if chunk.role != "window" and chunk.end_byte - chunk.start_byte >= MINIMUM_CHUNK_BYTES:
                owners.append((number, row))
                text = own_text(source, chunk, mask=False)
                yield ChunkToDescribe(display(source.path), source.language, chunk.symbol, text)


def write_descriptions(
    rows: SegmentRows,
    segment: Segment,
    described: dict[int, str],
    *,
    directory: Path,
    vectoriser: Vectoriser,
    cache: VectorCache,
    suffix: str,
) -> dict[str, PartInfo]:
    """New `descriptions`, `terms.descriptions` and `vectors.descriptions` of one segment. Raises EmbeddingError."""
    postings = segment.postings("descriptions")
    if postings is None:
        raise DamagedIndex(f"{segment.path} has no terms of descriptions; index the repository again")
    parts = PartWriter(directory, folder=segment.info.id, suffix=suffix)
    parts.add_strings("descriptions", (described.get(row, "") for row in range(segment.info.chunks)))
    words = {row: stem_frequencies(Counter(terms(text))) for row, text in described.items()}
    write_replaced_postings(parts, "descriptions", postings, words)
    rows.lists["descriptions"] = _replaced_rows(rows.lists["descriptions"], described, vectoriser)
    vectoriser.embed_waiting()
    write_list(parts, "descriptions", rows.lists["descriptions"], cache)
    parts.sync()
    return parts.parts


def _replaced_rows(old: ListRows, described: dict[int, str], vectoriser: Vectoriser) -> ListRows:
    new = ListRows()
    start = 0
    for owner, count in enumerate(old.counts):
        end = start + count * HASH_BYTES
        if owner in described:
            new.add(vectoriser.wait_for_windows(described[owner], path=b""))
        else:
            new.hashes += old.hashes[start:end]
            new.counts.append(count)
        start = end
    return new
