from __future__ import annotations

from pytest_django import Settings

from tests.indexing.sources import chunk, texts, uncovered


def _lines(count: int) -> str:
    return "".join(f"entry {number}\n" for number in range(1, count + 1))


def test_it_keeps_a_source_that_fits_in_one_chunk() -> None:
    [only] = chunk("notes.txt", _lines(40)).chunks
    assert (only.kind, only.symbol, only.start_line, only.end_line) == ("lines", "", 1, 40)


def test_it_takes_forty_lines_and_then_steps_that_leave_room_for_the_overlap() -> None:
    chunks = chunk("notes.txt", _lines(100)).chunks
    assert [(item.start_line, item.end_line) for item in chunks] == [(1, 40), (41, 65), (66, 90), (91, 100)]


def test_it_follows_the_settings(settings: Settings) -> None:
    settings.LINE_CHUNK_LINES, settings.LINE_CHUNK_OVERLAP = 10, 4
    chunks = chunk("notes.txt", _lines(20)).chunks
    assert [(item.start_line, item.end_line) for item in chunks] == [(1, 10), (11, 16), (17, 20)]


def test_it_never_exceeds_the_ceiling() -> None:
    content = ("a word " * 20 + "\n") * 60
    assert all(len(piece) <= 1500 for piece in texts(content, chunk("notes.txt", content)))


def test_it_cuts_one_endless_line_between_words_and_between_characters() -> None:
    content = "wort größe " * 400 + "é" * 4000
    chunked = chunk("notes.txt", content)
    pieces = texts(content, chunked)
    assert all(len(piece) <= 1500 for piece in pieces)
    assert pieces[0].endswith(("wort", "größe"))
    assert uncovered(content.encode(), chunked) == b""


def test_it_is_the_fallback_for_languages_without_grammar() -> None:
    chunked = chunk("run.bat", "@echo off\r\ncall build.bat\r\n")
    assert chunked.parsed.fallback == "no grammar for batch"
    assert [item.kind for item in chunked.chunks] == ["lines"]
