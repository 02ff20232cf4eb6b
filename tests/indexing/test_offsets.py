"""Offsets and lines of files in many encodings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexing.offsets import IDENTITY, LineIndex, OffsetMap, Run, map_offsets

ENCODINGS = ["utf-8", "utf-16-le", "utf-16-be", "utf-32-le"]


@given(text=st.text(st.characters(exclude_categories=["Cs"])), encoding=st.sampled_from(ENCODINGS))
def test_it_maps_every_character_to_its_first_byte(text: str, encoding: str) -> None:
    raw = text.encode(encoding)
    offsets = map_offsets(text, raw, encoding=encoding, mark_bytes=0)
    for end in range(len(text) + 1):
        assert offsets.to_raw(len(text[:end].encode())) == len(text[:end].encode(encoding))


@pytest.mark.parametrize("encoding", ["cp1251", "cp932", "euc_jp", "gb18030"])
def test_it_maps_legacy_encodings(encoding: str) -> None:
    text = "x = 'я' + 'ы'\n" if encoding == "cp1251" else "# 注文の合計 total ア\n"
    offsets = map_offsets(text, text.encode(encoding), encoding=encoding, mark_bytes=0)
    for end in range(len(text) + 1):
        assert offsets.to_raw(len(text[:end].encode())) == len(text[:end].encode(encoding))


def test_it_counts_the_byte_order_mark() -> None:
    offsets = map_offsets("é=1", b"\xef\xbb\xbf\xc3\xa9=1", encoding="utf-8", mark_bytes=3)
    assert [offsets.to_raw(at) for at in (0, 2, 4)] == [3, 5, 7]


def test_it_needs_no_runs_for_plain_utf8() -> None:
    assert map_offsets("é", b"\xc3\xa9", encoding="utf-8", mark_bytes=0) is IDENTITY
    assert IDENTITY.to_raw(7) == 7


def test_it_takes_an_offset_inside_a_character_to_its_start() -> None:
    assert OffsetMap((Run(0, 0, 3, 2),)).to_raw(4) == 2


def test_it_ends_lines_at_every_kind_of_line_end() -> None:
    lines = LineIndex(b"a\nb\r\nc\rd")
    assert lines.line_count == 4
    assert [lines.line_start(line) for line in (1, 2, 3, 4, 5)] == [0, 2, 5, 7, 8]


@pytest.mark.parametrize(
    ("raw", "count"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"\n\n", 2), (b"a\r", 1), (b"\x0c\x1c", 1)]
)
def test_it_counts_lines(raw: bytes, count: int) -> None:
    assert LineIndex(raw).line_count == count


def test_it_finds_the_line_of_a_byte() -> None:
    lines = LineIndex(b"ab\r\ncd\n")
    assert [lines.line_of(at) for at in (0, 2, 3, 4, 6, 7, 99)] == [1, 1, 1, 2, 2, 2, 2]
    assert LineIndex(b"").line_of(0) == 1


def test_it_gives_inclusive_lines_of_an_exclusive_range() -> None:
    lines = LineIndex(b"one\ntwo\nthree\n")
    assert lines.lines_of(0, 4) == (1, 1)
    assert lines.lines_of(4, 9) == (2, 3)
    assert lines.lines_of(4, 4) == (2, 2)


def test_it_reads_utf16_in_units_and_not_in_bytes() -> None:
    raw = "\u0a0a\u0d00\nsecond\r\n".encode("utf-16-le")  # characters that hold the bytes of line ends
    lines = LineIndex(raw, "utf-16-le")
    assert lines.line_count == 2
    assert raw[lines.line_start(2) :].decode("utf-16-le") == "second\r\n"


@given(st.binary())
def test_it_agrees_with_splitlines(raw: bytes) -> None:
    lines = LineIndex(raw)
    assert lines.line_count == len(raw.splitlines())
    pieces = [raw[lines.line_start(line) : lines.line_start(line + 1)] for line in range(1, lines.line_count + 1)]
    assert pieces == raw.splitlines(keepends=True)
