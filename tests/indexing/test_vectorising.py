from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexing.vectorising import windows


def _words(text: str) -> int:
    return len(text.split())


def test_it_leaves_a_text_that_fits_alone() -> None:
    assert windows("a b\nc", count_tokens=_words, max_tokens=3) == ["a b\nc"]


def test_it_cuts_between_words() -> None:
    assert windows("aa bb cc dd ee", count_tokens=_words, max_tokens=2) == ["aa bb", "cc dd", "ee"]


def test_it_cuts_a_word_that_is_above_the_window() -> None:
    assert windows("abcdefg", count_tokens=len, max_tokens=3) == ["abc", "def", "g"]


def test_it_makes_nothing_of_blanks() -> None:
    assert windows(" \n", count_tokens=_words, max_tokens=3) == []


@given(st.text(alphabet="ab \n", max_size=60), st.integers(2, 9))
def test_it_loses_no_character_and_never_exceeds_the_window(text: str, limit: int) -> None:
    pieces = windows(text, count_tokens=len, max_tokens=limit)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(0 < len(piece) <= limit for piece in pieces)
