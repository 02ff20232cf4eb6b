from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from indexing import embedding
from indexing.models import Index, Repository
from tests.factories import commit_files, git, make_repo
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> StubEmbedder:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    return stub


def _run(*arguments: str) -> dict[str, Any]:
    out = StringIO()
    call_command("index_repository", *arguments, "--json", stdout=out)
    document: dict[str, Any] = json.loads(out.getvalue())
    return document


def test_it_indexes_a_local_path_and_reports(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"a.py": "def f():\n    return 1\n", "x.png": b"\x89PNG\x00"}, name="shop")
    document = _run(str(repo))
    assert (document["repository"], document["status"], document["files"]) == ("shop", "ready", 1)
    assert document["chunks"] >= 1
    assert document["skipped"] == {"binary": 1}
    assert document["coverage"]["vectors"] == 1.0
    assert document["seconds"] > 0
    assert document["bytes_per_chunk"] == round(Index.objects.get().size_bytes / document["chunks"])


def test_it_takes_a_path_outside_the_configured_roots(tmp_path: Path, settings: Any) -> None:
    settings.LOCAL_REPOSITORY_ROOTS = []
    assert _run(str(make_repo(tmp_path, {"a.py": "x = 1\n"})))["status"] == "ready"


def test_it_updates_a_repository_that_it_knows(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"a.py": "x = 1\n"})
    first = _run(str(repo), "--name", "acme/shop")
    commit = commit_files(repo, {"b.py": "y = 2\n"})
    second = _run(str(repo))
    assert (second["repository"], second["commit"], second["files"]) == ("acme/shop", commit, 2)
    assert first["repository_id"] == second["repository_id"]


def test_it_indexes_another_branch_beside(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"a.py": "x = 1\n"})
    git(repo, "branch", "old")
    commit_files(repo, {"b.py": "y = 2\n"})
    assert _run(str(repo))["files"] == 2
    document = _run(str(repo), "--ref", "old")
    assert (document["files"], document["repository"]) == (1, "example-2")


def test_it_prints_a_summary_for_people(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"a.py": "x = 1\n", "x.png": b"\x89PNG\x00"}, name="shop")
    out = StringIO()
    call_command("index_repository", str(repo), stdout=out)
    assert "shop at" in out.getvalue()
    assert "1 files" in out.getvalue()
    assert "skipped      1  binary file" in out.getvalue()


def test_it_takes_an_empty_repository(tmp_path: Path) -> None:
    document = _run(str(make_repo(tmp_path, {}, name="empty")))
    assert (document["status"], document["files"], document["chunks"]) == ("empty", 0, 0)


@pytest.mark.parametrize("source", ["ext::sh -c id", "--upload-pack=x", "file:///etc", "/no/such/place"])
def test_it_calls_a_wrong_source_wrong_use(source: str) -> None:
    with pytest.raises(CommandError) as caught:
        call_command("index_repository", "--", source)
    assert caught.value.returncode == 2
    assert not Repository.objects.exists()


def test_it_calls_a_folder_without_git_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(CommandError) as caught:
        call_command("index_repository", str(tmp_path / "plain"))
    assert caught.value.returncode == 2
    assert not Repository.objects.exists()


def test_it_calls_an_unknown_ref_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no-such-branch") as caught:
        call_command("index_repository", str(make_repo(tmp_path, {"a.py": "x = 1\n"})), "--ref", "no-such-branch")
    assert caught.value.returncode == 2


def test_it_fails_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubEmbedder(fail_at=1)
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    with pytest.raises(CommandError, match="Indexing failed at step embedding") as caught:
        call_command("index_repository", str(make_repo(tmp_path, {"a.py": "x = 1\n"})))
    assert caught.value.returncode == 1
    assert Index.objects.get().status == "failed"


def test_it_verifies_index_files(tmp_path: Path) -> None:
    _run(str(make_repo(tmp_path, {"a.py": "x = 1\n"}, name="shop")))
    out = StringIO()
    call_command("verify_index", stdout=out)
    assert out.getvalue() == "shop: sound\n"


def test_it_names_a_damaged_index(tmp_path: Path) -> None:
    _run(str(make_repo(tmp_path, {"a.py": "x = 1\n"}, name="shop")))
    part = next(Repository.objects.get().index_path.rglob("chunks.npy"))
    part.write_bytes(part.read_bytes()[:-1] + b"\x01")
    out = StringIO()
    with pytest.raises(CommandError, match="damaged") as caught:
        call_command("verify_index", "shop", "--json", stdout=out)
    assert caught.value.returncode == 1
    assert "wrong checksum" in json.loads(out.getvalue())["repositories"]["shop"]


def test_it_does_not_verify_what_it_does_not_know() -> None:
    with pytest.raises(CommandError, match="nothing-here") as caught:
        call_command("verify_index", "nothing-here")
    assert caught.value.returncode == 2


def test_it_only_says_what_it_would_index_in_a_dry_run(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"a.py": "x = 1\n", "x.png": b"\x89PNG\x00"}, name="shop")
    document = _run(str(repo), "--dry-run")
    assert (document["files"], document["skipped"]) == (1, {"binary": 1})
    out = StringIO()
    call_command("index_repository", str(repo), "--dry-run", stdout=out)
    assert out.getvalue().splitlines()[-1] == "  x.png: binary file (.png file)"
    assert not Index.objects.exists()
