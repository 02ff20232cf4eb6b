from __future__ import annotations

import pytest

from indexing.tokenizing import term_hash
from search.wording import MAX_NAMES, MAX_QUERY_TERMS, Name, wording


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("how is BaseModel defined", [Name("BaseModel", "BaseModel")]),
        ("Sinatra::Base", [Name("Sinatra.Base", "Base")]),
        ("where does res.cookie sign?", [Name("res.cookie", "cookie")]),
        ("what calls `send`", [Name("send", "send")]),
        ("when is close() called", [Name("close", "close")]),
        ("what is get_signing_serializer for", [Name("get_signing_serializer", "get_signing_serializer")]),
        ("what does .:? do", [Name(".:?", ".:?")]),
        ("(<|>)", [Name("<|>", "<|>")]),
        ("what is <|>?", [Name("<|>?", "<|>?"), Name("<|>", "<|>")]),  # the mark may end the sentence
        ("how does `+` add forms", [Name("+", "+")]),
        ("operator!= of two values", [Name("!=", "!=")]),
        ("[]=", [Name("[]=", "[]=")]),
        ("def ==(other) of a set", [Name("==", "==")]),
        ("运算符.:?的作用", [Name(".:?", ".:?")]),
        ("where is a->b set", [Name("a.b", "b")]),
        ("C++ sources, *.py files and x[] = 1 + 2", []),
        ("JSON schema generation", []),
        ("how are sessions stored", []),
    ],
)
def test_it_finds_the_names_a_question_quotes(question: str, expected: list[Name]) -> None:
    assert list(wording(question).names) == expected


def test_it_knows_what_languages_call_an_operator() -> None:
    assert Name("<|>", "<|>").spellings == ("<|>", "(<|>)", "operator<|>")
    assert Name("Sinatra.Base", "Base").spellings == ("Base",)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Abort error and Sessions", ("Abort", "Sessions")),
        ("Explain how Storage works", ("Storage",)),  # a word about asking is no name, whatever it begins
        ("what is BaseModel", ()),  # a name already
        ("How are sessions stored", ()),
    ],
)
def test_it_keeps_words_with_a_capital_apart(question: str, expected: tuple[str, ...]) -> None:
    assert wording(question).capitalised == expected


@pytest.mark.parametrize(("question", "is_name"), [("response", True), ("HttpClient", True), ("http client", False)])
def test_it_takes_a_single_word_as_a_name(question: str, is_name: bool) -> None:
    assert wording(question).is_name is is_name


def test_it_leaves_the_repositorys_own_name_out() -> None:
    assert wording("how does flask store sessions", without={"flask"}).stem_words == {"store", "session"}


def test_it_keeps_the_repositorys_name_when_nothing_else_is_asked() -> None:
    assert wording("flask", without={"flask"}).stem_words == {"flask"}


def test_it_weighs_words_about_asking_less() -> None:
    weights = wording("function that rotates keys").stems
    assert weights[term_hash("function")] < weights[term_hash("rotat")]


def test_it_bounds_a_pasted_text() -> None:
    assert len(wording(" ".join(f"word{i}x" for i in range(5000))).terms) <= MAX_QUERY_TERMS
    assert len(wording(" ".join(f"some_name_{i}" for i in range(5000))).names) == MAX_NAMES


@pytest.mark.parametrize("question", ["", "???", "-> :: &&", "\u202e\u200f", "'\"\\", "a" * 20_000])
def test_it_reads_anything(question: str) -> None:
    assert wording(question).text == question
