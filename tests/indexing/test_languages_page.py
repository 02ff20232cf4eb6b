"""Which languages are indexed, and what staff see when a grammar does not load."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from indexing import embedding, parsing
from indexing.building import build_now
from indexing.index_format import open_index
from indexing.languages_page import language_rows
from indexing.models import Index, Repository
from tests.factories import commit_files, make_repo, make_repository, make_user
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db

PAGE = "/repositories/languages/"
FILES: dict[str, str | bytes] = {
    "a.go": "package a\n\nfunc Total() int {\n\treturn 1\n}\n",
    "b.py": "def total():\n    return 1\n",
    "notes.txt": "remember\n",
}


@pytest.fixture(autouse=True)
def fresh_grammars(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    parsing._grammar.cache_clear()
    yield
    parsing._grammar.cache_clear()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository("acme/shop", url=str(make_repo(tmp_path, FILES)))


def refuse_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the binding does with a grammar that is newer than itself."""
    load = parsing.get_language

    def get_language(language: Any) -> Any:
        if language == "go":
            raise ValueError("Incompatible Language version 99")
        return load(language)

    monkeypatch.setattr(parsing, "get_language", get_language)


def test_it_counts_files_and_tries_grammars(repository: Repository, staff_client: Client) -> None:
    build_now(repository)
    rows, unread = language_rows([repository])
    assert [(row.name, row.files, row.needs_grammar, row.problem, row.reason) for row in rows] == [
        ("go", 1, True, "", ""),
        ("python", 1, True, "", ""),
        ("text", 1, False, "", ""),
    ]
    assert unread == []
    assert staff_client.get(PAGE).content.decode().count(">loads<") == 2


def test_a_grammar_that_raises_costs_syntax_and_no_build(
    repository: Repository, staff_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_go(monkeypatch)
    index = build_now(repository)
    assert index.status == Index.Status.READY
    said = "the go grammar cannot be loaded: Incompatible Language version 99"
    assert index.warnings == [f"1 file was cut by lines: {said}"]
    row = language_rows([repository])[0][0]
    assert (row.name, row.files, row.cut_by_lines, row.reason) == ("go", 1, 1, said)
    assert f"1 file: {said}." in staff_client.get(PAGE).content.decode()
    assert said in staff_client.get("/repositories/").content.decode()


def test_it_still_says_so_after_an_update_of_another_file(
    repository: Repository, tmp_path: Path, staff_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_go(monkeypatch)
    build_now(repository)
    commit_files(tmp_path / "example", {"b.py": "def total():\n    return 2\n"})
    build_now(Repository.objects.get())
    assert "1 file: the go grammar cannot be loaded" in staff_client.get(PAGE).content.decode()


def test_it_leaves_out_an_index_that_cannot_be_read(repository: Repository, staff_client: Client) -> None:
    build_now(repository)
    index = open_index(repository.index_path)
    next((index.path / "segments").glob("*/*")).unlink()
    assert "The index of acme/shop cannot be read" in staff_client.get(PAGE).content.decode()


def test_it_counts_only_what_the_person_may_read(repository: Repository) -> None:
    build_now(repository)
    Repository.objects.update(visibility=Repository.Visibility.PRIVATE)
    client = Client()
    client.force_login(make_user("lead", is_staff=True))
    assert "Nothing is indexed yet" in client.get(PAGE).content.decode()


def test_it_is_for_staff_alone(user_client: Client) -> None:
    assert user_client.get(PAGE).status_code == 404
