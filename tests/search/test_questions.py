"""Follow-ups, politeness, classes and names, by rules."""

from __future__ import annotations

import pytest

from search.language import is_english
from search.questions import names_in, question_class, standalone

SESSIONS = ["How are sessions stored?"]
DELETE = [*SESSIONS, "How can I delete one?"]


@pytest.mark.parametrize(
    ("question", "earlier", "query"),
    [
        ("How can I delete one?", SESSIONS, "How can I delete one (sessions stored)"),
        ("and in Redis?", DELETE, "and in Redis (delete sessions stored)"),
        ("What about sessions in memory?", SESSIONS, "What about sessions in memory (stored)"),
        (
            "Where does it call the parser?",
            ["How does `load_config` work?"],
            "Where does it call the parser (`load_config`)",
        ),
        ("How is logging configured?", DELETE, "How is logging configured?"),
        ("Is it possible to disable colours?", DELETE, "Is it possible to disable colours?"),
        (
            "Which function parses headers that contain commas?",
            DELETE,
            "Which function parses headers that contain commas?",
        ),
        ("and in Redis?", [], "and in Redis?"),
    ],
)
def test_it_adds_the_subject_to_a_follow_up_only(question: str, earlier: list[str], query: str) -> None:
    assert standalone(question, earlier) == query


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("Hi there, could you please show me the retry loop? Thanks!", "the retry loop?"),
        ("I'd like to know how routes are matched", "how routes are matched"),
        ("please", "please"),
        ("hello_world", "hello_world"),
        ("HiThere", "HiThere"),
        ("ok", "ok"),
    ],
)
def test_it_drops_politeness_but_never_everything(question: str, query: str) -> None:
    assert standalone(question) == query


@pytest.mark.parametrize(
    ("question", "name"),
    [
        ("SessionStore.save", "symbol"),
        ("where is parse_header defined?", "symbol"),
        ("How do I add a middleware?", "how-to"),
        ("Why does the retry not stop?", "fix"),
        ("Give me an overview of the architecture", "architecture"),
        ("where are headers parsed", "behaviour"),
    ],
)
def test_it_classifies(question: str, name: str) -> None:
    assert question_class(question) == name


@pytest.mark.parametrize(
    "question",
    [
        "Wo werden Sitzungen gespeichert?",
        "¿Dónde se guardan las sesiones?",
        "Comment sont stockées les sessions ?",
        "Como funciona o roteamento de uma URL?",
        "Dove viene validato il token della sessione?",
        "会话如何存储?",
        "Где хранятся сессии?",
        "أين يتم تخزين الجلسات",
        "как работает SessionStore.save",
    ],
)
def test_it_knows_questions_that_are_not_english(question: str) -> None:
    assert not is_english(question)


@pytest.mark.parametrize(
    "question",
    [
        "useState",
        "os.path.join",
        "del operator",
        "DES encryption",
        "le endian",
        "what does `für` mean",
        "",
        "???",
        "naïve café",
    ],
)
def test_it_takes_names_and_rare_words_for_english(question: str) -> None:
    assert is_english(question)


def test_it_finds_the_names_in_a_foreign_question() -> None:
    assert names_in("Wo ruft `load_config` die Klasse SessionStore auf?") == ["load_config", "SessionStore"]
    assert names_in("Как Redis вызывает session::Store?") == ["Redis", "session::Store"]
    assert names_in("运算符 .:? 在 FromJSON 的作用") == ["FromJSON", ".:?"]
