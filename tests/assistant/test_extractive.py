from __future__ import annotations

import pytest

from assistant.citations import mentions
from assistant.extractive import code_span, compose, is_supported, looked, missing_names, not_found
from assistant.markdown import render
from search.results import Hit, QueryPlan, RepositoryChoice, Trace


def _hit(path: str = "src/app.py", **changes: object) -> Hit:
    values: dict[str, object] = {
        "repository_id": 1,
        "repository": "pallets/flask",
        "commit": "c" * 40,
        "path": path.encode(),
        "blob_id": "b" * 40,
        "encoding": "utf-8",
        "language": "python",
        "kind": "function",
        "symbol": "save_session",
        "start_byte": 10,
        "end_byte": 20,
        "start_line": 3,
        "end_line": 9,
        "score": 1.0,
        "cosine": 0.1,
    }
    return Hit(**(values | changes))  # type: ignore[arg-type]


def _trace(hits: tuple[Hit, ...], readable: int = 212) -> Trace:
    choices = tuple(RepositoryChoice(n, f"r{n}", False, False, 1.0) for n in range(4))
    return Trace(QueryPlan("q"), choices, readable, hits, (), ())


def test_it_groups_passages_by_file_and_cites_each() -> None:
    text = compose([_hit(), _hit("b.py", start_line=5, end_line=5, symbol=""), _hit(symbol="open_session")])
    assert text == (
        "- `pallets/flask src/app.py`: lines 3–9 `save_session` [1], lines 3–9 `open_session` [3]\n"
        "- `pallets/flask b.py`: line 5 [2]"
    )
    assert mentions(text, {1, 2, 3}).cited == (1, 3, 2)


def test_it_keeps_hostile_names_inside_their_code_span() -> None:
    text = compose([_hit("a`` [x](javascript:alert(1)) <img>\n# b.py", symbol="`[9]`")])
    assert mentions(text, {1}).unknown == ()
    assert "<h" not in render(text, {})


@pytest.mark.parametrize("name", ["a", "`", "a`b", "``a", "b`` "])
def test_it_quotes_any_name(name: str) -> None:
    assert f"<code>{' '.join(name.split())}</code>" in render(code_span(name), {})


@pytest.mark.parametrize(
    ("cosine", "text", "supported"),
    [(0.3, "", True), (0.1, "", False), (None, "", False), (0.1, "def sign(cookie): ...", True)],
)
def test_it_needs_meaning_or_a_shared_word(cosine: float | None, text: str, supported: bool) -> None:
    hit = _hit(cosine=cosine, symbol="f")
    assert is_supported("How are cookies signed?", [hit], [text], minimum_cosine=0.2) is supported


def test_it_is_not_supported_by_no_hits() -> None:
    assert not is_supported("How are cookies signed?", [], [], minimum_cosine=0.2)


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Where is the Kafka consumer?", ["Kafka"]),
        ("Where is the Kafka consumer of sessions?", ["Kafka"]),
        ("what does `RedisStore` do", ["RedisStore"]),
        ("Where is the session saved?", []),
        ("How does Flask use it?", []),
        ("Wo wird die Sitzung gespeichert?", []),
        ("Where is the Flask Kafka code?", []),
    ],
)
def test_it_notices_names_that_no_passage_mentions(question: str, names: list[str]) -> None:
    assert missing_names(question, [_hit()], ["def save_session(): 'for flask'"]) == names


def test_it_says_what_it_did_not_find() -> None:
    assert not_found([]) == "I did not find this in the indexed code."
    assert "mentions `Kafka`." in not_found(["Kafka"])


def test_it_says_where_it_looked() -> None:
    hits = (_hit(cosine=0.31), _hit(cosine=0.2))
    assert looked(_trace(hits), minimum_cosine=0.45) == (
        "Looked in 4 of 212 repositories, 2 passages, best score 0.31 (0.45 needed)."
    )
    assert looked(_trace((), 1), minimum_cosine=0.2) == "Looked in 4 of 1 repository, 0 passages."
