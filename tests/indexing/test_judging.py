from __future__ import annotations

import itertools
import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from indexing import judging
from indexing.chunking import ChunkedFile
from indexing.git import ensure_mirror
from indexing.judging import judge_chunks
from indexing.models import ChunkReview, LLMCall, Mirror, Repository
from indexing.walking import SourceFile
from tests.factories import head, make_index, make_repo, make_repository
from tests.fake_llm import FakeLLM, ProviderError
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db

AREA = "KEY = 'AKIA" + "ABCDEFGHIJKLMNOP'\n\n\n# The surface.\ndef area(a, b):\n    total = a * b\n    return total\n"
GOOD = {"unit": 5, "edges": 5, "companions": 5, "name": 5, "remark": ""}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    repo = make_repo(tmp_path, {"shapes.py": AREA, "notes.md": "# Notes\n\nWords.\n", ".env": "KEY=1\n"})
    repository = make_repository("acme/shapes", url=str(repo))
    ensure_mirror(Mirror.objects.get())
    make_index(repository, current=True, commit=head(repo))
    repository.refresh_from_db()
    return repository


def _judge(repository: Repository, sample: int) -> ChunkReview:
    return judge_chunks(repository, sample=sample, on_file=lambda files: None)


def test_it_checks_every_file_of_the_current_commit_without_a_model(repository: Repository) -> None:
    review = _judge(repository, sample=0)
    assert (review.files, review.chunks, review.problems, review.score) == (2, 3, {}, None)
    assert not LLMCall.objects.exists()


def test_it_counts_a_file_that_raises_and_goes_on(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    chunk_file = judging.chunk_file

    def fail(source: Any) -> Any:
        if source.path == b"shapes.py":
            raise ValueError(source.text)
        return chunk_file(source)

    monkeypatch.setattr(judging, "chunk_file", fail)
    review = _judge(repository, sample=0)
    assert (review.problems, review.files) == ({"exception": 1}, 2)
    assert review.examples == [{"check": "exception", "path": "shapes.py", "line": 1, "detail": "ValueError"}]


def test_it_stores_marks_and_their_mean(repository: Repository, fake_llm: FakeLLM) -> None:
    fake_llm.replies = [GOOD, GOOD | {"unit": 1, "edges": 1, "companions": 1, "name": 1, "remark": "Torn."}]
    review = _judge(repository, sample=2)
    assert (review.score, len(review.marked), review.notice) == (0.5, 2, "")
    assert review.marked[1]["remark"] == "Torn."
    assert {call.purpose for call in LLMCall.objects.all()} == {"judge"}


def test_it_shows_the_file_with_the_chunk_marked_and_secrets_masked(repository: Repository, fake_llm: FakeLLM) -> None:
    fake_llm.replies = [GOOD]
    _judge(repository, sample=5)
    prompt = next(text for text in map(str, fake_llm.requests) if "lines 4 to 7, function, symbol: area" in text)
    assert "AKIAABCDEF" not in str(fake_llm.requests)
    assert ">    5 def area" in prompt
    assert "     1 KEY = " in prompt


def test_it_leaves_out_what_is_farthest_from_the_chunk(repository: Repository) -> None:
    chunk = judging.Chunk("primary", "function", "f", 0, 1, 50, 51)
    shown = judging._lines_around([f"line {number}" for number in range(1, 101)], chunk, 120).splitlines()
    assert ">   50 line 50" in shown
    assert 5 < len(shown) < 40
    assert not any(line[-6:] == "line 1" for line in shown)


def test_it_says_when_the_model_fails(repository: Repository, fake_llm: FakeLLM) -> None:
    fake_llm.replies = [GOOD, {"unit": 9}, ProviderError(401)]
    review = _judge(repository, sample=3)
    assert len(review.marked) == 1
    assert review.notice.startswith("1 of 3 chunks were judged.")


def test_it_takes_the_same_sample_for_the_same_commit(repository: Repository, fake_llm: FakeLLM) -> None:
    fake_llm.replies = [GOOD]
    first, second = _judge(repository, sample=1), _judge(repository, sample=1)
    assert first.marked == second.marked


def test_its_command_prints_json_and_knows_its_repositories(repository: Repository) -> None:
    out = StringIO()
    call_command("judge_chunks", "--json", stdout=out)
    [document] = json.loads(out.getvalue())["reviews"]
    assert (document["repository"], document["chunks"], document["problems"]) == ("acme/shapes", 3, {})
    with pytest.raises(CommandError, match="Indexed: acme/shapes") as caught:
        call_command("judge_chunks", "acme/other")
    assert caught.value.returncode == 2


def test_its_command_prints_for_people(repository: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("judge_chunks", "acme/shapes")
    assert "3 chunks of 2 files" in capsys.readouterr().out


def test_its_report_escapes_what_repositories_say(repository: Repository, staff_client: Client) -> None:
    place = {"check": "cut_through", "path": "<b>.py", "line": 3, "detail": "if_statement of 90 characters"}
    review = ChunkReview.objects.create(
        repository=repository, commit="a" * 40, files=1, chunks=2, problems={"cut_through": 1}, examples=[place]
    )
    html = staff_client.get(f"/admin/indexing/chunkreview/{review.pk}/change/").content.decode()
    assert "&lt;b&gt;.py:3" in html
    assert "acme/shapes" in staff_client.get("/admin/indexing/chunkreview/").content.decode()


@pytest.fixture
def stub_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexing.management.commands.judge_chunks.get_embedder", StubEmbedder)


@pytest.mark.usefixtures("stub_embedder")
def test_it_checks_checkouts_that_are_not_indexed(tmp_path: Path) -> None:
    make_repo(tmp_path, {"shapes.py": AREA}, name="one")
    make_repo(tmp_path, {"notes.md": "# Notes\n\nWords.\n"}, name="two")
    out = StringIO()
    call_command("judge_chunks", path=[tmp_path], stdout=out)
    assert out.getvalue().splitlines()[-1] == "2 checkouts, 2 files, 3 chunks, 0 problems"
    call_command("judge_chunks", path=[tmp_path], json=True, stdout=(out := StringIO()))
    assert json.loads(out.getvalue())["checked"]["two"] == {"files": 1, "chunks": 1, "problems": {}, "examples": []}
    assert not ChunkReview.objects.exists()


@pytest.mark.usefixtures("stub_embedder")
def test_it_fails_when_a_file_is_cut_differently_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = make_repo(tmp_path, {"shapes.py": AREA})
    chunk_file, readings = judging.chunk_file, itertools.count()

    def unsteady(source: SourceFile) -> ChunkedFile:
        chunked = chunk_file(source)
        return replace(chunked, chunks=chunked.chunks[1:]) if next(readings) else chunked

    monkeypatch.setattr(judging, "chunk_file", unsteady)
    with pytest.raises(CommandError, match="1 unsteady"):
        call_command("judge_chunks", path=[repo], stdout=StringIO())


def test_it_says_when_a_folder_has_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No Git checkout in"):
        call_command("judge_chunks", path=[tmp_path])
