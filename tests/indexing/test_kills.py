"""Three kills with -9; `tests/measure_kills.py` does twenty at random moments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from indexing import embedding, tasks
from tests.factories import make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder
from tests.measure_kills import change, clean_build, differences, go_on, killed_build
from tests.measure_updates import module_text

pytestmark = pytest.mark.django_db(transaction=True)  # the process that is killed has to see the rows
FILES = 12


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    monkeypatch.setattr(tasks, "_send", lambda _queue: None)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, {f"pkg/m{number}.py": module_text(number) for number in range(FILES)})


def test_it_goes_on_when_it_was_killed_before_the_database_knew(repo: Path) -> None:
    repository = make_repository("example/killed", url=str(repo))
    found = killed_build(repository, publication=1, must_answer=False)
    go_on(repository)
    clean, seconds = clean_build(repo, "example/clean")
    assert found.killed
    assert differences(repository, clean) == []

    change(repo, FILES, 1, random.Random(1))
    for kill in ({"publication": 1}, {"seconds": seconds / 4}):
        found = killed_build(repository, must_answer=True, **kill)  # type: ignore[arg-type]
        assert (found.unanswered, found.differs) == (0, [])
    go_on(repository)
    clean, _ = clean_build(repo, "example/clean-update")
    assert differences(repository, clean) == []
