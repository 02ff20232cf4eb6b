from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from indexing import embedding
from indexing.git import ensure_mirror
from indexing.models import Mirror, Repository
from tests.factories import commit_files, head, make_index, make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db

PYTHON = "# größe\n\n\ndef area(a, b):\n    '''The surface of a rectangle with these sides.'''\n    return a * b\n"


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, {"lib/shapes.py": PYTHON, ".env": "KEY=1\n", "run.bat": "echo 1\n"})


@pytest.fixture
def repository(repo: Path) -> Repository:
    repository = make_repository("acme/shapes", url=str(repo))
    ensure_mirror(Mirror.objects.get())
    repository.refresh_from_db()
    return repository


def _run(*arguments: str) -> list[dict[str, Any]]:
    out = StringIO()
    call_command("show_chunks", *arguments, "--json", stdout=out)
    document: dict[str, list[dict[str, Any]]] = json.loads(out.getvalue())
    assert list(document) == ["chunks"]
    return document["chunks"]


def test_it_shows_coordinates_own_text_and_embedded_text(repository: Repository) -> None:
    chunk = _run("acme/shapes", "lib/shapes.py")[-1]
    assert (chunk["role"], chunk["kind"], chunk["symbol"]) == ("primary", "function", "area")
    assert PYTHON.encode()[chunk["start_byte"] : chunk["end_byte"]].decode() == chunk["text"]
    assert (chunk["start_line"], chunk["end_line"]) == (4, 6)
    assert chunk["embedded_text"].startswith("lib/shapes.py\narea\ndef area(a, b):")
    assert chunk["embedded_rows"] == [chunk["embedded_text"]]


def test_it_reads_the_indexed_commit_and_not_a_newer_one(repository: Repository, repo: Path) -> None:
    make_index(repository, current=True, commit=head(repo))
    commit_files(repo, {"lib/shapes.py": "def other():\n    return 2\n"})
    ensure_mirror(repository.mirror)
    assert [chunk["symbol"] for chunk in _run("acme/shapes", "lib/shapes.py")][-1] == "area"


def test_it_prints_for_people(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("show_chunks", "acme/shapes", "lib/shapes.py")
    assert "== primary function area (lines 4-6, bytes" in capsys.readouterr().out


def test_it_says_on_standard_error_why_a_file_was_cut_by_lines(repository: Repository) -> None:
    out, err = StringIO(), StringIO()
    call_command("show_chunks", "acme/shapes", "run.bat", "--json", stdout=out, stderr=err)
    assert "no grammar for batch" in err.getvalue()
    assert len(json.loads(out.getvalue())["chunks"]) == 1


@pytest.mark.parametrize(
    ("name", "path", "status", "message"),
    [
        ("acme/unknown", "a.py", 2, "No repository is called acme/unknown. Known: acme/shapes."),
        ("acme/shapes", "missing.py", 2, "has no file missing.py"),
        ("acme/shapes", "../../etc/passwd", 2, "has no file"),
        ("acme/shapes", ".env", 1, "may hold secrets"),
    ],
)
def test_it_explains_what_it_cannot_show(
    repository: Repository, name: str, path: str, status: int, message: str
) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        _run(name, path)
    assert caught.value.returncode == status
