from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from indexing import embedding
from indexing.building import build_now
from indexing.index_format import verify
from indexing.models import Repository
from tests.factories import make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)
    repo = make_repo(tmp_path, {f"m{n}.py": f"def part_{n}(value):\n    return value + {n}\n" for n in range(3)})
    repository = make_repository("acme/web", url=str(repo))
    build_now(repository)
    return repository


@pytest.mark.parametrize("how", [[], ["--link"]])
def test_it_measures_search_over_copies_with_profiles_of_their_own(how: list[str]) -> None:
    out = StringIO()
    call_command("simulate", "3", "--rounds", "1", "--json", *how, stdout=out)
    row = json.loads(out.getvalue())
    assert (row["made"], row["repositories"], row["chunks"]) == (2, 3, 9)
    assert row["search_ms"] > 0
    for repository in Repository.objects.all():
        assert verify(repository.index_path).manifest.repository_id == repository.pk


def test_it_removes_its_copies_and_nothing_else(template: Repository) -> None:
    call_command("simulate", "3", "--rounds", "1", stdout=StringIO())
    paths = [copy.index_path for copy in Repository.objects.exclude(pk=template.pk)]
    call_command("simulate", "--remove", stdout=StringIO())
    assert list(Repository.objects.all()) == [template]
    assert not any(path.exists() for path in paths)
    assert verify(template.index_path)


def test_it_refuses_to_guess(template: Repository) -> None:
    with pytest.raises(CommandError, match="Say how many"):
        call_command("simulate")
