from __future__ import annotations

from pathlib import Path

import pytest

from indexing.errors import EmptyRepository
from indexing.models import Index, Repository
from indexing.previewing import fetch_mirror, preview_files
from tests.factories import make_repo, make_repository

pytestmark = pytest.mark.django_db
FILES: dict[str, str | bytes] = {
    "src/app.py": "def total():\n    return 1\n",
    "src/gen.py": "# @generated\nx = 1\n",
    "vendor/lib.py": "x = 1\n",
    "big.txt": "words " * 1000,
    ".env": "TOKEN=x\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repository = make_repository("acme/shop", url=str(make_repo(tmp_path, FILES)))
    fetch_mirror(repository)
    return repository


def test_it_counts_what_would_be_indexed_and_why_not_without_a_build(repository: Repository) -> None:
    preview = preview_files(repository, rules="", max_file_bytes=5000)
    assert preview.indexed_paths == ["src/app.py"]
    assert preview.skipped == {"generated": 1, "vendored": 1, "too_large": 1, "secret": 1}
    assert ("src/gen.py", "generated", "says: @generated") in preview.skipped_files
    assert not Index.objects.exists()


def test_it_tries_rules_that_are_not_saved(repository: Repository) -> None:
    preview = preview_files(repository, rules="!vendor/\nbig.txt\n", max_file_bytes=None)
    assert preview.indexed_paths == ["src/app.py", "vendor/lib.py"]
    assert preview.skipped["ignored"] == 1


def test_it_judges_by_name_what_it_has_no_time_to_read(repository: Repository) -> None:
    preview = preview_files(repository, rules="", max_file_bytes=None, seconds=-1)
    assert (preview.files, preview.unread) == (3, 2)
    assert preview.skipped == {"vendored": 1, "secret": 1}


def test_it_says_that_a_repository_is_empty(tmp_path: Path) -> None:
    repository = make_repository("acme/empty", url=str(make_repo(tmp_path, {}, name="empty")))
    fetch_mirror(repository)
    with pytest.raises(EmptyRepository, match="no commit yet"):
        preview_files(repository, rules="", max_file_bytes=None)
