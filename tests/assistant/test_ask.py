from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from assistant.models import Conversation
from indexing.access import Principal
from indexing.errors import LLMUnavailable
from indexing.models import Repository
from search.errors import SearchError
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS})


def _ask(*arguments: str) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    call_command("ask", *arguments, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def _document(*arguments: str) -> dict[str, Any]:
    return json.loads(_ask(*arguments, "--json")[0])


def test_it_gives_one_json_document(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    hit = hit_for(repository, "src/sessions.py", "def sign(value: str) -> str:")
    scripted = script_search(monkeypatch, [hit])
    script_model(monkeypatch, settings, ["It signs [1]."])
    document = _document("How is the cookie signed?", "--repo", "acme/web")
    assert (document["answer"], document["model"]) == ("It signs [1].", "ollama/llama3.1")
    citation = document["citations"][0]
    assert (citation["path"], citation["start_byte"], citation["end_byte"]) == (
        "src/sessions.py",
        hit.start_byte,
        hit.end_byte,
    )
    assert (citation["repository"], citation["commit"], citation["cited"], citation["verified"]) == (
        "acme/web",
        hit.commit,
        True,
        True,
    )
    assert document["trace"]["stages"][0]["name"] == "plan"
    assert scripted.calls[0]["scope"].repository_ids == (repository.pk,)
    assert scripted.calls[0]["principal"] == Principal.operator()


def test_it_prints_the_answer_and_where_it_comes_from(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", "def sign(value: str) -> str:")])
    out, err = _ask("How is the cookie signed?")
    assert "[1] acme/web src/sessions.py, line 4, bytes 33–61" in out
    assert err == "No language model is set up, so these are ranked passages without a written answer.\n"


def test_it_stores_no_conversation(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    script_search(monkeypatch, [])
    _document("How is the cookie signed?")
    assert not Conversation.objects.exists()


@pytest.mark.parametrize("arguments", [["  "], ["x" * 20_001], ["q", "--repo", "acme/unknown"]])
def test_it_tells_wrong_use_by_its_exit_status(repository: Repository, arguments: list[str]) -> None:
    with pytest.raises(CommandError) as refused:
        _ask(*arguments)
    assert refused.value.returncode == 2


def test_it_fails_when_the_search_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    script_search(monkeypatch, [], error=SearchError("Nothing works."))
    with pytest.raises(CommandError, match="Nothing works.") as failed:
        _ask("How?")
    assert failed.value.returncode == 1


def test_it_fails_when_the_answer_broke_off_but_prints_what_there_is(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", "def sign")])
    script_model(monkeypatch, settings, ["It signs [1]. ", LLMUnavailable("The connection broke.")])
    out = io.StringIO()
    with pytest.raises(CommandError) as failed:
        call_command("ask", "How is it signed?", "--json", stdout=out)
    assert failed.value.returncode == 1
    assert json.loads(out.getvalue())["answer"] == "It signs [1]. "
