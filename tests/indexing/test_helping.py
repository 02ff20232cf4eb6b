"""One worker builds a repository, others embed a part of it. The vectors are a stub's, the processes are real."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from indexing import embedding, helping, sharing, tasks
from indexing.building import build_now, open_build, request_build
from indexing.helping import help_builds
from indexing.models import EmbeddingRange, Index, Repository
from tests.factories import make_repo, make_repository
from tests.indexing.stub_embedder import StubEmbedder
from tests.measure_kills import differences
from tests.measure_updates import module_text

pytestmark = pytest.mark.django_db(transaction=True)  # other processes and threads have to see the rows

FILES = 12
WAIT_SECONDS = 30  # for another process, on a busy machine


class Asking(StubEmbedder):
    """Of the worker that has the build: calls `at_first` in its first batch, when all its ranges are offered."""

    def __init__(self, at_first: Callable[[], object]) -> None:
        super().__init__()
        self.at_first = at_first

    def embed_documents(self, texts: Any) -> Any:
        if self.batches == 0:
            self.batches = 1
            self.at_first()
        return super().embed_documents(texts)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything as it is for large repositories, with small numbers."""
    monkeypatch.setattr(sharing, "OFFERED_FROM_CHUNKS", 10)
    monkeypatch.setattr(sharing, "RANGE_CHUNKS", 11)  # one file
    monkeypatch.setattr(sharing, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr("indexing.vectorising.WINDOW_TEXTS", 20)
    monkeypatch.setattr(tasks, "_send", lambda _queue: None)
    monkeypatch.setattr(tasks.help_builds, "apply_async", lambda *_, **__: None)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    modules = {f"pkg/m{number}.py": module_text(number) for number in range(FILES)}
    return make_repository("example/shared", url=str(make_repo(tmp_path, modules)))


def _build(repository: Repository, monkeypatch: pytest.MonkeyPatch, owner: StubEmbedder) -> StubEmbedder:
    monkeypatch.setattr(embedding, "get_embedder", lambda: owner)
    build_now(repository)
    return owner


def _clean(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> tuple[Repository, set[str]]:
    """The same by one worker alone, and the texts it embedded."""
    monkeypatch.setattr(sharing, "OFFERED_FROM_CHUNKS", 10**9)
    clean = make_repository("example/alone", url=repository.mirror.url)
    return clean, set(_build(clean, monkeypatch, StubEmbedder()).texts)


def _helped(helper: StubEmbedder, monkeypatch: pytest.MonkeyPatch) -> int:
    """In this process, with another model in memory."""
    owner = embedding.get_embedder
    monkeypatch.setattr(embedding, "get_embedder", lambda: helper)
    try:
        return help_builds()
    finally:
        monkeypatch.setattr(embedding, "get_embedder", owner)
        connections.close_all()


def _in_another_process(helper: StubEmbedder, report: Path) -> int:
    """A worker that helps until nothing is left; the texts that it embedded are counted in `report`."""
    connections.close_all()
    child = os.fork()
    if child:
        return child
    try:
        embedding.get_embedder = lambda: helper  # type: ignore[assignment,return-value]
        while Index.objects.filter(status__in=("queued", "building")).exists():
            help_builds()
            report.write_text(str(len(set(helper.texts))))
            time.sleep(0.02)  # as a worker that waits for the next message
    finally:
        os._exit(0)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_two_workers_make_what_one_makes(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report"
    open_build(repository)
    child = _in_another_process(StubEmbedder(), report)
    ranges: list[int] = []

    def until_helped() -> None:
        ranges.append(EmbeddingRange.objects.count())
        _wait_until(lambda: EmbeddingRange.objects.count() <= ranges[0] - 3)

    owner = _build(repository, monkeypatch, Asking(until_helped))
    os.waitpid(child, 0)
    clean, all_texts = _clean(repository, monkeypatch)
    assert differences(repository, clean) == []
    assert int(report.read_text()) >= len(all_texts) // FILES  # of the three ranges it had at least one whole
    assert len(set(owner.texts)) <= len(all_texts) * (FILES - 3) // FILES + 1
    assert not EmbeddingRange.objects.exists()
    assert not (repository.index_path / "partial").exists()


def test_a_helper_that_is_killed_loses_nothing(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dying(StubEmbedder):
        def embed_documents(self, texts: Any) -> Any:
            if self.batches == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().embed_documents(texts)

    status: list[int] = []

    def until_dead() -> None:
        connections.close_all()
        child = os.fork()
        if child == 0:
            embedding.get_embedder = lambda: Dying()  # type: ignore[assignment,return-value]
            help_builds()
            os._exit(0)
        status.append(os.waitpid(child, 0)[1])
        assert EmbeddingRange.objects.exclude(holder="").count() == 1

    monkeypatch.setattr("django.conf.settings.EMBEDDING_BATCH", 8)
    _build(repository, monkeypatch, Asking(until_dead))
    clean, _ = _clean(repository, monkeypatch)
    assert os.WIFSIGNALED(status[0])
    assert differences(repository, clean) == []
    assert not EmbeddingRange.objects.exists()


@pytest.mark.parametrize("setting", ["", "CHUNK_TARGET_CHARS", "EMBEDDED_PATH_CHARS"])
def test_a_helper_with_another_model_or_other_settings_embeds_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Any, setting: str
) -> None:
    helper = StubEmbedder(revision="1" if setting else "2")
    found: list[int] = []

    def try_to_help() -> None:
        before = getattr(settings, setting, None)
        if setting:
            setattr(settings, setting, before + 1)
        found.append(_helped(helper, monkeypatch))
        if setting:
            setattr(settings, setting, before)

    _build(repository, monkeypatch, Asking(try_to_help))
    assert (found, helper.texts) == ([0], [])


def test_a_helper_embeds_what_the_build_then_need_not(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    helper, found = StubEmbedder(), list[int]()
    owner = _build(repository, monkeypatch, Asking(lambda: found.append(_helped(helper, monkeypatch))))
    assert found[0] >= FILES - 3
    assert len(set(helper.texts)) > len(set(owner.texts))


def test_a_build_that_waits_goes_before_helping(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(StubEmbedder):
        def embed_documents(self, texts: Any) -> Any:
            if self.batches == 0:
                request_build(other)
                connections.close_all()
            return super().embed_documents(texts)

    other = make_repository("example/other", url=str(make_repo(tmp_path, {"a.py": "x = 1\n"}, name="other")))
    helper, found = Interrupted(), list[int]()
    monkeypatch.setattr("django.conf.settings.EMBEDDING_BATCH", 8)

    def help_twice() -> None:
        found.extend([_helped(helper, monkeypatch), _helped(helper, monkeypatch)])
        assert set(EmbeddingRange.objects.values_list("holder", "attempts")) == {("", 0)}

    _build(repository, monkeypatch, Asking(help_twice))
    assert (found, helper.batches) == ([0, 0], 1)


def test_a_helper_leaves_the_range_that_the_build_has_reached(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Overtaken(StubEmbedder):
        def embed_documents(self, texts: Any) -> Any:
            EmbeddingRange.objects.exclude(holder="").delete()
            connections.close_all()
            return super().embed_documents(texts)

    helper, found = Overtaken(), list[int]()
    monkeypatch.setattr("django.conf.settings.EMBEDDING_BATCH", 8)
    _build(repository, monkeypatch, Asking(lambda: found.append(_helped(helper, monkeypatch))))
    assert (found, helper.batches) == ([0], 1)


def test_a_range_is_taken_by_one_helper_until_its_lease_ends(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take() -> None:
        index = Index.objects.get()
        first, second = (sharing.claim(index.pk, f"elsewhere:1:{letter}") for letter in "ab")
        assert first is not None
        assert second is not None
        assert first.row.position == second.row.position + 1
        EmbeddingRange.objects.filter(pk=first.row.pk).update(leased_until=timezone.now() - timedelta(seconds=1))
        third = sharing.claim(index.pk, "elsewhere:1:c")
        assert third is not None
        assert third.row.pk == first.row.pk
        with pytest.raises(sharing.HelpOver):
            first.check()
        EmbeddingRange.objects.filter(pk=first.row.pk).update(leased_until=timezone.now() - timedelta(seconds=1))
        fourth = sharing.claim(index.pk, "elsewhere:1:d")  # two helpers died of the first one
        assert fourth is not None
        assert fourth.row.position == second.row.position - 1
        connections.close_all()

    _build(repository, monkeypatch, Asking(take))
    assert not EmbeddingRange.objects.exists()


def test_the_ranges_of_a_build_that_failed_are_not_taken(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Exception, match="Indexing failed"):
        _build(repository, monkeypatch, StubEmbedder(fail_at=1))
    assert not EmbeddingRange.objects.exists()
    assert helping.help_builds() == 0
