"""Where things are in a file: from parsed text back to original bytes, and from bytes to lines.

The parsers see UTF-8; the file may be UTF-16 or Shift-JIS. `OffsetMap` takes a byte offset of that UTF-8 text to
the byte offset of the original file, exactly at every character. `LineIndex` numbers the lines of the original.
Offsets are 0-based and end-exclusive, lines 1-based and inclusive.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

_UNIT_DTYPES = {"utf-16-le": "<u2", "utf-16-be": ">u2", "utf-32-le": "<u4", "utf-32-be": ">u4"}
_LINE_FEED, _CARRIAGE_RETURN = 10, 13


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring characters that are all equally wide in the text and equally wide in the original."""

    text_start: int
    raw_start: int
    text_width: int
    raw_width: int


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Runs in order of `text_start`; no runs means that text and original are the same bytes.

    >>> OffsetMap((Run(0, 3, 1, 1),)).to_raw(5)  # UTF-8 behind a byte order mark
    8
    """

    runs: tuple[Run, ...] = ()
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_starts", tuple(run.text_start for run in self.runs))

    @property
    def is_identity(self) -> bool:
        return not self.runs

    def to_raw(self, text_offset: int) -> int:
        """An offset inside a character counts as that character's first byte."""
        if not self.runs:
            return text_offset
        run = self.runs[max(0, bisect_right(self._starts, text_offset) - 1)]
        return run.raw_start + (text_offset - run.text_start) // run.text_width * run.raw_width


IDENTITY = OffsetMap()


def map_offsets(text: str, raw: bytes, *, encoding: str, mark_bytes: int) -> OffsetMap:
    """The map for `text`, which is `raw[mark_bytes:]` decoded strictly; `encoding` has no shift states."""
    if encoding == "utf-8":
        return OffsetMap((Run(0, mark_bytes, 1, 1),)) if mark_bytes else IDENTITY
    widths = _raw_widths(text, raw[mark_bytes:], encoding)
    runs: list[Run] = []
    text_offset, raw_offset, previous = 0, mark_bytes, (0, 0)
    for character, raw_width in zip(text, widths, strict=True):
        width = (_utf8_width(character), raw_width)
        if width != previous:
            runs.append(Run(text_offset, raw_offset, *width))
            previous = width
        text_offset += width[0]
        raw_offset += width[1]
    return OffsetMap(tuple(runs))


def _utf8_width(character: str) -> int:
    code = ord(character)
    return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4


def _raw_widths(text: str, raw: bytes, encoding: str) -> list[int]:
    """Bytes in `raw` of each character of `text`."""
    if encoding.startswith("utf-16"):
        return [4 if ord(character) > 0xFFFF else 2 for character in text]
    if encoding.startswith("utf-32"):
        return [4] * len(text)
    if len(text) == len(raw):
        return [1] * len(raw)
    decoder = codecs.getincrementaldecoder(encoding)()
    ends = [0] + [at for at, byte in enumerate(raw, 1) if decoder.decode(bytes((byte,)))]
    return [end - start for start, end in pairwise(ends)]


class LineIndex:
    r"""The lines of a file. `\n`, `\r\n` and a lone `\r` end a line, nothing else does.

    A final line end does not open another line: b"a\n" has one line, b"" has none.
    """

    __slots__ = ("_starts", "line_count", "size")

    def __init__(self, raw: bytes, encoding: str = "utf-8") -> None:
        self.size = len(raw)
        dtype = np.dtype(_UNIT_DTYPES.get(encoding, "u1"))
        units = np.frombuffer(raw, dtype=dtype, count=len(raw) // dtype.itemsize)
        is_end = units == _LINE_FEED
        lone_return = units == _CARRIAGE_RETURN
        lone_return[:-1] &= ~is_end[1:]
        ends = np.flatnonzero(is_end | lone_return)
        self._starts: list[int] = [0, *((ends + 1) * dtype.itemsize).tolist()]
        if self._starts[-1] >= self.size:
            self._starts.pop()
        self.line_count = len(self._starts)

    def line_of(self, offset: int) -> int:
        """The line that holds the byte at `offset`; past the end it is the last line."""
        return bisect_right(self._starts, offset) or 1

    def lines_of(self, start: int, end: int) -> tuple[int, int]:
        """First and last line of the bytes `start` to `end` (exclusive)."""
        return self.line_of(start), self.line_of(max(start, end - 1))

    def line_start(self, line: int) -> int:
        """Byte offset of a line's first byte; for a line behind the last one, the size of the file."""
        return self._starts[line - 1] if line <= self.line_count else self.size
