"""Which lines of a passage hold words of the question."""

from __future__ import annotations

from search.marking import marked_lines


def hits(text: str, question: str) -> list[int]:
    return [place for place, (_, hit) in enumerate(marked_lines(text, "python", question), start=1) if hit]


def test_it_marks_lines_with_words_of_the_question_or_their_stems() -> None:
    assert hits("x = 1\ndef cancel_order(n):\n    return refunds[n]\n", "refund a cancelled order") == [2, 3]


def test_it_does_not_mark_words_that_are_on_most_lines() -> None:
    text = "\n".join(f"order.step({n})" for n in range(8)) + "\norder.refund()"
    assert hits(text, "refund order") == [9]


def test_it_gives_one_row_a_line_and_masks_secrets() -> None:
    rows = marked_lines('a = 1\r\nAWS = "AKIAIOSFODNN7ABCDEFG"\r\n', "python", "aws")
    assert len(rows) == 2
    assert "AKIAIOSFODNN7ABCDEFG" not in rows[1][0]


def test_it_shortens_very_long_lines() -> None:
    ((html, _),) = marked_lines("x" * 5000, "", "y")
    assert len(html) < 1000
