"""How a repository stands, in one word and one dot."""

from __future__ import annotations

from typing import Any

import pytest

from indexing.models import Index, Repository
from indexing.status import statuses
from tests.factories import make_index, make_repository

S = Index.Status


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("status", "has_current", "dot", "label"),
    [
        (S.READY, True, "ok", "Up to date"),
        (S.QUEUED, False, "busy", "Waiting"),
        (S.BUILDING, False, "busy", "Indexing"),
        (S.BUILDING, True, "busy", "Updating"),
        (S.FAILED, False, "bad", "Failed"),
        (S.FAILED, True, "bad", "Update failed"),
        (S.CANCELLED, True, "ok", "Update stopped"),
        (S.CANCELLED, False, "stale", "Stopped"),
        (S.EMPTY, False, "stale", "Empty repository"),
    ],
)
def test_it_describes_the_newest_build(status: str, has_current: bool, dot: str, label: str) -> None:
    repository = make_repository()
    if has_current:
        make_index(repository, current=True)
    make_index(repository, status=status)
    (row,) = statuses([repository])
    assert (row.dot, row.label) == (dot, label)


@pytest.mark.django_db
def test_it_counts_chunks_once_they_are_known_and_files_before() -> None:
    index = make_index(status=S.BUILDING, files_done=1, files_known=4)
    assert statuses([index.repository])[0].percent == 25
    Index.objects.update(chunks_done=3, chunks_known=6)
    assert statuses([index.repository])[0].percent == 50


@pytest.mark.django_db
def test_it_asks_twice_for_any_number_of_repositories(django_assert_num_queries: Any) -> None:
    for _ in range(4):
        make_index(current=True)
    rows = list(Repository.objects.all())
    with django_assert_num_queries(2):
        statuses(rows)
