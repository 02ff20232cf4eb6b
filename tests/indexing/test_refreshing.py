"""Whose source is asked for news and when, and what follows from the answer."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone
from pytest_django import Settings

from indexing import building, embedding, refreshing, tasks
from indexing.access import Principal
from indexing.building import build_now, request_build, request_update, run_build
from indexing.index_format import verify
from indexing.models import Index, Job, Repository
from indexing.queueing import in_line
from indexing.refreshing import refresh_due, request_repair
from indexing.status import statuses
from indexing.tasks import build
from search.pipeline import search
from tests.factories import commit_files, git, head, make_index, make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> StubEmbedder:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    monkeypatch.setattr(embedding, "DEFAULT_MODEL", stub.model_id)
    return stub


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, {"a.py": "def first():\n    return 1\n"})


@pytest.fixture
def repository(repo: Path) -> Repository:
    """Indexed, and not asked for news for a day."""
    repository = make_repository("acme/shop", url=str(repo))
    build_now(repository)
    _let_time_pass()
    repository.refresh_from_db()
    return repository


def _let_time_pass() -> None:
    Repository.objects.update(checked_at=timezone.now() - timedelta(days=1))
    Index.objects.update(finished_at=timezone.now() - timedelta(days=1))


def test_it_asks_for_a_build_when_the_source_has_a_new_commit(repository: Repository, repo: Path) -> None:
    assert refresh_due() == []
    commit_files(repo, {"a.py": "def second():\n    return 2\n"})
    _let_time_pass()
    (index_id,) = refresh_due()
    assert run_build(index_id)
    index = Index.objects.get(pk=index_id)
    assert (index.status, index.commit) == ("ready", head(repo))


def test_it_asks_a_source_once_in_an_interval(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(refreshing.git, "remote_commit", lambda mirror, ref: asked.append(mirror.pk) or "")
    refresh_due()
    refresh_due()
    assert len(asked) == 1
    Repository.objects.update(checked_at=timezone.now() - timedelta(minutes=11))
    refresh_due()
    assert len(asked) == 1
    Repository.objects.update(checked_at=timezone.now() - timedelta(minutes=19))
    refresh_due()
    assert len(asked) == 2
    settings.REFRESH_MINUTES = 0
    _let_time_pass()
    assert refresh_due() == []
    assert len(asked) == 2


def test_it_spreads_the_checks_over_time(settings: Settings) -> None:
    shares = [refreshing._share(Repository(pk=number)) for number in range(200)]
    assert min(shares) >= 0.8
    assert max(shares) <= 1.2
    assert max(shares) - min(shares) > 0.3


def test_it_leaves_a_source_to_one_worker(repository: Repository) -> None:
    same = Repository.objects.get(pk=repository.pk)
    assert [refreshing._claim(repository), refreshing._claim(same)] == [True, False]


def test_it_never_fills_the_queue_and_takes_the_longest_waiting_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        repository = make_repository(f"r{number}")
        make_index(repository, current=True)
        Repository.objects.filter(pk=repository.pk).update(checked_at=timezone.now() - timedelta(days=number + 1))
    monkeypatch.setattr(refreshing.git, "remote_commit", lambda mirror, ref: "d" * 40)
    asked = refresh_due()
    names = [Index.objects.get(pk=index_id).repository.name for index_id in asked]
    assert names == ["r4", "r3", "r2"]
    assert refresh_due() == []


def test_it_does_not_try_a_commit_again_that_failed(repository: Repository, repo: Path) -> None:
    commit = commit_files(repo, {"a.py": "def third():\n    return 3\n"})
    make_index(repository, status="failed", commit=commit)
    _let_time_pass()
    assert refresh_due() == []


def test_it_lets_a_source_rest_after_a_failure(repository: Repository) -> None:
    failed = make_index(repository, status="failed", commit="")
    Index.objects.filter(pk=failed.pk).update(finished_at=timezone.now() - timedelta(minutes=30))
    assert refresh_due() == []
    Index.objects.filter(pk=failed.pk).update(finished_at=timezone.now() - timedelta(minutes=90))
    Repository.objects.update(checked_at=None)
    assert len(refresh_due()) == 1


def test_it_says_why_a_source_could_not_be_asked(repository: Repository, repo: Path) -> None:
    moved = repo.rename(repo.with_name("moved"))
    assert refresh_due() == []
    repository.refresh_from_db()
    assert "not on this server any more" in repository.check_error
    moved.rename(repo)
    _let_time_pass()
    refresh_due()
    repository.refresh_from_db()
    assert repository.check_error == ""


def test_it_asks_a_source_that_did_not_answer_more_seldom(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(refreshing.git, "remote_commit", lambda mirror, ref: asked.append(mirror.pk) or "")
    for minutes, times in ((40, 0), (80, 1)):
        Repository.objects.update(check_error="no", checked_at=timezone.now() - timedelta(minutes=minutes))
        refresh_due()
        assert len(asked) == times


def test_it_indexes_an_empty_repository_on_its_first_push(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {}, name="empty")
    build_now(make_repository("acme/empty", url=str(repo)))
    _let_time_pass()
    assert refresh_due() == []
    commit_files(repo, {"a.py": "x = 1\n"})
    _let_time_pass()
    assert len(refresh_due()) == 1


@pytest.mark.parametrize(("name", "value"), [("CHUNK_TARGET_CHARS", 200), ("EMBEDDING_DOCUMENT_PROMPT", "passage: ")])
def test_it_renews_indexes_that_were_made_otherwise(
    repository: Repository, settings: Settings, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(refreshing, "_started", timezone.now())
    setattr(settings, name, value)
    assert len(refresh_due()) == 1


def test_it_reads_branches_tags_and_detached_heads_of_a_source(repository: Repository, repo: Path) -> None:
    first = head(repo)
    git(repo, "tag", "-a", "-m", "one", "v1")
    second = commit_files(repo, {"b.py": "y = 1\n"})
    mirror = repository.mirror
    asked = {ref: refreshing.git.remote_commit(mirror, ref) for ref in ("", "main", "v1", "refs/tags/v1", first, "no")}
    assert (asked[""], asked["main"], asked["v1"]) == (second, second, first)
    assert (asked[first], asked["no"]) == ("", "")


def test_it_counts_the_commits_that_the_index_lacks(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        commit_files(repo, {"a.py": f"x = {number}\n"})
    index = request_build(repository)
    monkeypatch.setattr(embedding, "get_embedder", lambda: StubEmbedder(fail_at=1))
    run_build(index.pk)
    assert statuses(Repository.objects.all())[0].behind == 3
    monkeypatch.setattr(embedding, "get_embedder", lambda: StubEmbedder())
    build_now(repository)
    assert statuses(Repository.objects.all())[0].behind == 0


def test_it_builds_again_when_newer_commits_came_in_the_meantime(repository: Repository, repo: Path) -> None:
    index = request_build(repository)
    Job.objects.filter(index=index).update(again=True)
    run_build(index.pk)
    assert Index.objects.filter(status="queued").count() == 1


def test_it_lets_others_go_first_after_its_turn(
    repository: Repository, repo: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(tasks, "_send", sent.append)
    for name in ("TURN_SECONDS", "TURN_FACTOR", "LOOK_SECONDS"):
        monkeypatch.setattr(building, name, 0)
    commit_files(repo, {f"m{number}.py": f"def function_{number}():\n    return {number}\n" for number in range(4)})
    settings.EMBEDDING_BATCH = 1
    huge, other = request_build(repository), request_update(make_repository("acme/other"))
    build("builds")
    huge.refresh_from_db()
    assert (huge.status, huge.job.state, huge.job.attempts, sent[-1]) == ("queued", "queued", 0, "builds")
    assert in_line("builds").first() == Job.objects.get(index=other)
    Job.objects.filter(index=other).update(state=Job.State.DONE)
    build("builds")
    huge.refresh_from_db()
    assert huge.status == "ready"


def test_it_repairs_a_damaged_index_once_after_a_search_met_it(repository: Repository) -> None:
    next(repository.index_path.rglob("chunks.npy")).write_bytes(b"")
    for _ in range(2):
        result = search("what does first do?", principal=Principal.operator())
        assert "has to be made anew" in " ".join(result.trace.notices)
    index = Index.objects.latest("pk")
    assert (Index.objects.count(), index.rebuild) == (2, True)
    Index.objects.filter(pk=index.pk).update(status="failed")
    assert request_repair(repository) is None
    Index.objects.filter(pk=index.pk).update(status="queued")
    run_build(index.pk)
    assert verify(repository.index_path).chunk_count > 0
