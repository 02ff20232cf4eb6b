"""Everything that an index says about live files, without row numbers: two indexes of one commit are equal in it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from indexing.index_format import TERM_LISTS, VECTOR_LISTS, OpenIndex, Segment

Contents = dict[str, Any]


def contents(index: OpenIndex) -> dict[bytes, Contents]:
    """Path -> what is known of the file."""
    found: dict[bytes, Contents] = {}
    for segment in index.segments:
        terms = {name: _terms(segment, name) for name in TERM_LISTS}
        definitions = _definitions(segment)
        for row in segment.live_file_rows():
            file = segment.file(row)
            assert file.path not in found
            first, last = (int(edge) for edge in segment.file_chunks[row : row + 2])
            found[file.path] = {
                "file": file,
                "chunks": [segment.chunk(chunk) for chunk in range(first, last)],
                "shown": [_shown(segment, chunk) for chunk in range(first, last)],
                "definitions": definitions[row],
                "file terms": terms["files"][row],
                "terms": [[terms[name][chunk] for name in TERM_LISTS[:-1]] for chunk in range(first, last)],
                "vectors": {
                    name: [
                        _vector_hashes(segment, name, owner)
                        for owner in ([row] if name == "files" else range(first, last))
                    ]
                    for name in VECTOR_LISTS
                },
            }
    return found


def _terms(segment: Segment, name: str) -> dict[int, dict[str, int]]:
    postings = segment.postings(name)
    assert postings is not None
    rows: dict[int, dict[str, int]] = defaultdict(dict)
    for position, term in enumerate(postings.hashes.tolist()):
        window = slice(int(postings.starts[position]), int(postings.starts[position + 1]))
        for row, freq in zip(postings.rows[window].tolist(), postings.freqs[window].tolist(), strict=True):
            rows[row][term] = freq
    return defaultdict(
        dict, rows | {row: {**rows[row], -1: int(length)} for row, length in enumerate(postings.lengths)}
    )


def _definitions(segment: Segment) -> dict[int, list[tuple[Any, ...]]]:
    found: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for row in range(len(segment.definitions)):
        one = segment.definition(row)
        parent = segment.definition(one.parent).qualified_name if one.parent >= 0 else ""
        chunk = segment.chunk(one.chunk)
        known = row in segment.definitions_named(_hash(one.name)).tolist()
        place = (one.start_byte, one.end_byte, one.name_byte, one.start_line, one.end_line)
        found[int(segment.chunks["file"][one.chunk])].append(
            (one.name, one.qualified_name, one.kind, parent, *place, chunk.start_byte, chunk.path, known)
        )
    return found


def _hash(name: str) -> int:
    from indexing.tokenizing import term_hash

    return term_hash(name.lower())


def _shown(segment: Segment, chunk: int) -> list[str]:
    record = segment.chunks[chunk]
    first = int(record["first_definition"])
    return [segment.definition(row).name for row in range(first, first + int(record["definitions"]))]


def _vector_hashes(segment: Segment, name: str, owner: int) -> list[bytes]:
    vectors = segment.vectors(name)
    assert vectors is not None
    window = slice(int(vectors.starts[owner]), int(vectors.starts[owner + 1]))
    return [row.tobytes() for row in vectors.hashes[window]]
