"""Model-written descriptions -> the parts of the generation that adds them to segments.

A description takes the place of the deterministic one of its chunk, in the term list and in the vector list; chunks
without one keep what they have. The sentences are model output, so they are the one text that an index holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from indexing.chunking import chunk_file
from indexing.collecting import display, own_text
from indexing.describing import ChunkToDescribe, DescribeBudget, describe_chunks
from indexing.errors import DamagedIndex
from indexing.index_format import Segment, SegmentInfo, VectorList
from indexing.index_writing import PartWriter, VectorListWriter, with_parts
from indexing.postings import replace_postings
from indexing.tokenizing import terms
from indexing.vector_cache import HASH_BYTES
from indexing.vectorising import ListRows, Vectoriser, files_of_segments, same_cuts
from indexing.walking import SkippedEntry

MINIMUM_CHUNK_BYTES = 40  # a closing line says nothing that a description could add


def describe_segments(
    mirror_path: Path, segments: list[Segment], *, repository_id: int, budget: DescribeBudget
) -> Iterator[tuple[int, int, str]]:
    """(position of the segment, chunk row, sentences) as they are written, for live chunks that have none yet."""
    owners: list[tuple[int, int]] = []
    items = _chunks_to_describe(mirror_path, segments, owners)
    for position, text in describe_chunks(items, repository_id=repository_id, budget=budget):
        number, row = owners[position]
        yield number, row, text


def _chunks_to_describe(
    mirror_path: Path, segments: list[Segment], owners: list[tuple[int, int]]
) -> Iterator[ChunkToDescribe]:
    """Notes in `owners` which segment and row each yielded chunk is."""
    for source, number, file_row in files_of_segments(mirror_path, segments):
        segment = segments[number]
        first, last = (int(row) for row in segment.file_chunks[file_row : file_row + 2])
        known = segment.descriptions
        if isinstance(source, SkippedEntry) or (known is not None and all(known[row] for row in range(first, last))):
            continue
        chunked = chunk_file(source)
        if not same_cuts(segment.chunks[first:last], chunked):
            continue
        for row, chunk in enumerate(chunked.chunks, first):
            if known is not None and known[row]:
                continue
            if chunk.role != "window" and chunk.end_byte - chunk.start_byte >= MINIMUM_CHUNK_BYTES:
                owners.append((number, row))
                text = own_text(source, chunk, mask=False)
                yield ChunkToDescribe(display(source.path), source.language, chunk.symbol, text)


def with_descriptions(
    segment: Segment, texts: Mapping[int, str], *, directory: Path, vectoriser: Vectoriser, suffix: str
) -> SegmentInfo:
    """The segment with sentences (chunk row -> text) beside those that it has. Raises EmbeddingError, DamagedIndex."""
    postings, vectors = segment.postings("descriptions"), segment.vectors("descriptions")
    if postings is None or vectors is None:
        raise DamagedIndex(f"{segment.path} lacks its list of descriptions; index the repository again")
    known = segment.descriptions
    after = [texts.get(row) or (known[row] if known is not None else "") for row in range(segment.info.chunks)]
    parts = PartWriter(directory, folder=segment.info.id, suffix=suffix)
    parts.add_strings("descriptions", after)
    replace_postings(parts, "descriptions", postings, {row: terms(text) for row, text in texts.items()})
    vectoriser.cache.take_all(vectors)
    rows = _replaced_rows(vectors, texts, vectoriser)
    vectoriser.embed_waiting()
    writer = VectorListWriter(parts, "descriptions", dimensions=vectoriser.cache.dimensions)
    writer.append(rows.counts, bytes(rows.hashes), vectoriser.cache.blocks(bytes(rows.hashes)))
    parts.sync()
    live = segment.live_chunks
    described = sum(bool(text) and (live is None or bool(live[row])) for row, text in enumerate(after))
    return replace(with_parts(segment.info, parts.parts), described=described)


def _replaced_rows(old: VectorList, texts: Mapping[int, str], vectoriser: Vectoriser) -> ListRows:
    new = ListRows()
    hashes, starts = old.hashes.tobytes(), old.starts.tolist()
    for owner, (start, end) in enumerate(pairwise(starts)):
        if owner in texts:
            new.add(vectoriser.wait_for_windows(texts[owner], path=b""))
        else:
            new.hashes += hashes[start * HASH_BYTES : end * HASH_BYTES]
            new.counts.append(end - start)
    return new
