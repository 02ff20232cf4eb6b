from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from assistant.writing import Answer, Ask, Evidence, Found, Notice, Step, Text, write
from indexing.access import Principal
from indexing.errors import LLMRefused, LLMUnavailable
from indexing.models import Repository
from search.errors import EmptyQuestion
from search.results import Scope, Stage
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_model, script_search

pytestmark = pytest.mark.django_db(transaction=True)

SIGN = 'def sign(value: str) -> str:\n    """Sign the cookie."""\n    return f"{value}.signature"'
UNSIGN = 'def unsign(value: str) -> str:\n    return value.rpartition(".")[0]'


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return real_repository(tmp_path, {"src/sessions.py": SESSIONS})


async def _steps(question: str = "How is the cookie signed?", **options: Any) -> list[Step]:
    return [step async for step in write(Ask(question, Principal.operator(), **options))]


def _text(steps: list[Step]) -> str:
    return "".join(step.text for step in steps if isinstance(step, Text))


def _notices(steps: list[Step]) -> list[str]:
    return [step.text for step in steps if isinstance(step, Notice)]


def _answer(steps: list[Step]) -> Answer:
    assert isinstance(steps[-1], Answer)
    return steps[-1]


async def test_it_shows_the_evidence_before_the_first_word(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    hit = hit_for(repository, "src/sessions.py", SIGN)
    script_search(monkeypatch, [hit])
    script_model(monkeypatch, settings, ["It appends ", "a signature [1]."])
    steps = await _steps()
    assert [type(step) for step in steps] == [Stage, Stage, Evidence, Stage, Text, Text, Stage, Answer]
    assert steps[2] == Evidence((hit,), final=True, trace=_answer(steps).trace)
    answer = _answer(steps)
    assert (answer.mentions.cited, answer.verified, answer.answered_by) == ((1,), (1,), "ollama/llama3.1")
    assert [stage["name"] for stage in answer.trace["stages"]] == ["plan", "first_token", "write"]


async def test_it_passes_rights_scope_and_history_to_the_search(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = script_search(monkeypatch, [])
    principal, scope = Principal(user_id=7, repository_ids=frozenset({1})), Scope(path="src")
    history = (("How are sessions stored?", "In a cookie."),)
    assert [step async for step in write(Ask("and in Redis?", principal, scope=scope, history=history))]
    call = scripted.calls[0]
    assert (call["principal"], call["scope"], call["history"]) == (principal, scope, history)


async def test_it_gives_the_model_the_turns_before_a_follow_up(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)])
    model = script_model(monkeypatch, settings, ["So [1]."])
    await _steps("How can I delete one?", history=(("How are sessions stored?", "In a signed cookie [4]."),))
    contents = [message["content"] for message in model.calls[0]]
    assert contents[1:3] == ["How are sessions stored?", "In a signed cookie ."]
    assert contents[3].endswith("Question: How can I delete one?")


async def test_it_ranks_passages_without_a_model_and_says_so(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", text) for text in (SIGN, UNSIGN)])
    steps = await _steps()
    assert _notices(steps) == ["No language model is set up, so these are ranked passages without a written answer."]
    assert _text(steps) == "- `acme/web src/sessions.py`: lines 4–6 `sign` [1], lines 9–10 `sign` [2]"
    assert "signature" not in _text(steps)
    assert (_answer(steps).answered_by, _answer(steps).verified) == ("", (1, 2))


@pytest.mark.parametrize(
    "error", [LLMUnavailable("ollama did not answer within 120 s."), LLMRefused("401: check LLM_API_KEY.")]
)
async def test_it_ranks_passages_when_the_model_fails_at_once(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings, error: Exception
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)])
    script_model(monkeypatch, settings, [error])
    steps = await _steps()
    assert _notices(steps) == [f"{error} These are ranked passages without a written answer."]
    assert "[1]" in _text(steps)
    assert (_answer(steps).answered_by, _answer(steps).error) == ("", "")
    assert _answer(steps).trace["stages"][-1]["state"] == "failed"


async def test_it_keeps_what_a_model_wrote_before_it_broke_off(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)])
    script_model(monkeypatch, settings, ["It signs [1]. When", LLMUnavailable("The connection broke.")])
    steps = await _steps()
    assert _text(steps) == "It signs [1]. When"
    assert _answer(steps).error == "The connection broke. The text above is saved."
    assert _answer(steps).mentions.cited == (1,)


async def test_it_takes_an_empty_reply_for_a_failure(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)])
    script_model(monkeypatch, settings, ["  \n"])
    assert "ollama/llama3.1 returned an empty answer." in _notices(await _steps())[0]


async def test_it_says_that_nothing_was_found_and_where_it_looked(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    hit = hit_for(repository, "src/sessions.py", UNSIGN, cosine=0.11)
    script_search(monkeypatch, [hit], readable=212)
    model = script_model(monkeypatch, settings, ["class KafkaConsumer [1]"])
    steps = await _steps("Where is the Kafka consumer?")
    assert _text(steps) == "I did not find this in the indexed code."
    assert _notices(steps) == ["Looked in 1 of 212 repositories, 1 passage, best score 0.11 (0.20 needed)."]
    assert _answer(steps).mentions.cited == ()
    assert model.calls == []


async def test_it_does_not_rank_passages_that_never_mention_what_was_asked_for(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", UNSIGN, cosine=0.3)])
    steps = await _steps("Where is the Kafka consumer?")
    assert "none of the passages that came closest mentions `Kafka`" in _text(steps)
    assert _answer(steps).mentions.cited == ()


async def test_it_says_when_there_is_nothing_to_search(monkeypatch: pytest.MonkeyPatch) -> None:
    script_search(monkeypatch, [], readable=0)
    steps = await _steps()
    assert _text(steps).startswith("There is no indexed repository")
    assert _notices(steps) == []


async def test_it_marks_citations_that_do_not_exist(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)])
    script_model(monkeypatch, settings, ["True [1], but [9] and [7] are made up."])
    steps = await _steps()
    assert (_answer(steps).mentions.cited, _answer(steps).mentions.unknown) == ((1,), (9, 7))
    assert _notices(steps) == ["Citations 7, 9 could not be verified and are not linked."]


async def test_it_does_not_verify_a_passage_whose_lines_are_wrong(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN, start_line=1)])
    script_model(monkeypatch, settings, ["So [1]."])
    steps = await _steps()
    assert _answer(steps).verified == ()
    assert _notices(steps) == ["Citation 1 could not be verified and is not linked."]


async def test_it_warns_of_an_answer_that_cites_nothing(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)])
    script_model(monkeypatch, settings, ["Surely by magic."])
    assert (
        "cites no passage, so nothing in it could be verified. Looked in 1 of 1 repository"
        in _notices(await _steps())[0]
    )


async def test_it_says_that_the_length_limit_cut_the_answer(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)])
    script_model(monkeypatch, settings, ["It signs [1] and"], finish_reason="length")
    steps = await _steps()
    assert _notices(steps) == ["The answer reached the length limit of ollama/llama3.1."]
    assert _answer(steps).finish_reason == "length"


async def test_it_leaves_out_passages_that_the_mirror_does_not_have(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = hit_for(repository, "src/sessions.py", SIGN, blob_id="0" * 40)
    script_search(monkeypatch, [gone, hit_for(repository, "src/sessions.py", UNSIGN)])
    evidence = next(step for step in await _steps() if isinstance(step, Evidence))
    assert [hit.start_line for hit in evidence.hits] == [9]


async def test_it_shows_a_first_ranking_while_a_model_plans(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (hit_for(repository, "src/sessions.py", text) for text in (SIGN, UNSIGN))
    script_search(monkeypatch, [second, first], early=(first,))
    found = [(step.final, step.hits) for step in await _steps() if isinstance(step, Evidence)]
    assert found == [(False, (first,)), (True, (second, first))]


async def test_it_hands_on_the_notices_of_the_search(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", SIGN)], notices=("acme/web is 38% indexed.",))
    assert _notices(await _steps())[0] == "acme/web is 38% indexed."


async def test_it_raises_what_the_search_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    script_search(monkeypatch, [], error=EmptyQuestion("The question is empty."))
    with pytest.raises(EmptyQuestion):
        await _steps()


async def test_it_goes_on_from_what_was_written_without_another_search(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    hit = hit_for(repository, "src/sessions.py", SIGN)
    search = script_search(monkeypatch, [])
    model = script_model(monkeypatch, settings, ["signature [1]."])
    stage = {"name": "plan", "milliseconds": 1.0, "started_ms": 0.0, "llm": False, "state": "done", "note": ""}
    earlier = Found((hit,), {"stages": [stage, stage | {"name": "write"}]})
    steps = await _steps(written="It appends a ", earlier=earlier)
    assert _text(steps) == "It appends a signature [1]."
    assert search.calls == []
    assert [message["content"] for message in model.calls[0][-2:-1]] == ["It appends a "]
    answer = _answer(steps)
    assert (answer.mentions.cited, answer.verified) == ((1,), (1,))
    assert [stage["name"] for stage in answer.trace["stages"]] == ["plan", "first_token", "write"]


async def test_it_keeps_what_was_written_when_going_on_fails(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    script_model(monkeypatch, settings, [LLMUnavailable("The model did not answer.")])
    earlier = Found((hit_for(repository, "src/sessions.py", SIGN),), {"stages": []})
    steps = await _steps(written="It appends a ", earlier=earlier)
    assert _text(steps) == "It appends a "
    assert _answer(steps).error == "The model did not answer. The text above is saved."
