"""Coordinates -> the text they stand for, read from the mirrors. Nothing is kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from indexing.connections import let_go
from indexing.errors import MissingObject
from indexing.git import BlobReader
from indexing.models import Repository
from indexing.walking import decode
from search.results import Hit


def read_snippets(hits: Sequence[Hit]) -> list[str]:
    """The text of each hit, in order; empty where the mirror no longer has the blob.

    One Git process a mirror, and a blob is read once however many hits are in it. The caller has already
    checked that the person may read the repositories.
    """
    by_repository: dict[int, list[int]] = defaultdict(list)
    for position, hit in enumerate(hits):
        by_repository[hit.repository_id].append(position)
    repositories = Repository.objects.select_related("mirror").in_bulk(list(by_repository))
    let_go()
    texts = [""] * len(hits)
    for repository_id, positions in by_repository.items():
        repository = repositories.get(repository_id)
        if repository is None:
            continue
        with BlobReader(repository.mirror.path) as blobs:
            raw: dict[str, bytes] = {}
            for position in positions:
                hit = hits[position]
                if hit.blob_id not in raw:
                    raw[hit.blob_id] = _read(blobs, hit.blob_id)
                texts[position] = decode(raw[hit.blob_id][hit.start_byte : hit.end_byte], hit.encoding)
    return texts


def _read(blobs: BlobReader, blob_id: str) -> bytes:
    try:
        return blobs.read(blob_id)
    except MissingObject:
        return b""
