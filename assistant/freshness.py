"""A cited place -> how it compares with the newest indexed commit: the same, changed there, or gone.

A passage counts as changed when its bytes are no longer in the file; that they moved up or down is no change. Reads the
mirror; what it cannot read it says nothing about.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assistant.citations import Evidence
from assistant.models import Citation
from indexing import git
from indexing.errors import GitError
from indexing.models import Repository

logger = logging.getLogger(__name__)

CHANGED, GONE = "changed", "gone"


@dataclass(frozen=True, slots=True)
class Freshness:
    """`state`: empty for the same bytes, else CHANGED or GONE. `behind` counts commits, `touched` those to the file.

    `moved_to`: where the bytes are in the newest file; (0, 0) when they are not, or when nothing was marked.
    """

    newest: str
    behind: int
    touched: int
    state: str
    moved_to: tuple[int, int]


def freshness(repository: Repository, commit: str, path: bytes, byte_range: tuple[int, int]) -> Freshness | None:
    """None at the newest indexed commit, and when the mirror cannot tell."""
    newest = _newest(repository)
    if newest in ("", commit):
        return None
    mirror = repository.mirror.path
    try:
        behind = git.commits_between(mirror, commit, newest)
        touched = git.commits_between(mirror, commit, newest, path=path)
        then, now = git.blob_at(mirror, commit, path), git.blob_at(mirror, newest, path)
        with git.BlobReader(mirror) as blobs:
            state, moved_to = _compared(blobs, then, now, byte_range)
    except (GitError, OSError) as error:
        logger.warning("repository %s: commits not compared: %s", repository.pk, type(error).__name__)
        return None
    return Freshness(newest, behind, touched, state, moved_to)


def changed_since(evidence: Iterable[Evidence]) -> dict[int, str]:
    """CHANGED or GONE by the primary key of the citation, for the passages that may be opened; the others are left out.

    Two Git processes a repository, and none for what was cited at the newest indexed commit.
    """
    found: dict[int, str] = {}
    by_repository: dict[Repository, list[Citation]] = defaultdict(list)
    for item in evidence:
        row = item.citation
        if row and row.repository and item.linkable and _newest(row.repository) not in ("", row.commit):
            by_repository[row.repository].append(row)
    for repository, rows in by_repository.items():
        try:
            found |= _states(repository, rows)
        except (GitError, OSError) as error:
            logger.warning("repository %s: citations not compared: %s", repository.pk, type(error).__name__)
    return found


def _states(repository: Repository, rows: Sequence[Citation]) -> dict[int, str]:
    mirror = repository.mirror.path
    now = git.blobs_at(mirror, _newest(repository), {bytes(row.path) for row in rows})
    with git.BlobReader(mirror) as blobs:
        states = {
            row.pk: _compared(blobs, row.blob, now.get(bytes(row.path)), (row.start_byte, row.end_byte))[0]
            for row in rows
        }
    return {pk: state for pk, state in states.items() if state}


def _compared(
    blobs: git.BlobReader, then: str | None, now: str | None, byte_range: tuple[int, int]
) -> tuple[str, tuple[int, int]]:
    """The state of a range (of the whole file when nothing is marked), and where its bytes are now."""
    if now is None:
        return GONE, (0, 0)
    if then == now:
        return "", byte_range
    start, end = byte_range
    if then is None or not end:
        return CHANGED, (0, 0)
    passage = blobs.read(then)[start:end]
    at = blobs.read(now).find(passage)
    return ("", (at, at + len(passage))) if at >= 0 else (CHANGED, (0, 0))


def _newest(repository: Repository) -> str:
    return repository.current_index.commit if repository.current_index is not None else ""
