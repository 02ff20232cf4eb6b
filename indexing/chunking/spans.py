"""What every chunker hands on: spans of a text, in offsets of that text; `chunk_file` makes coordinates of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise


@dataclass(frozen=True, slots=True)
class Span:
    """Text offsets, 0-based and end-exclusive."""

    start: int
    end: int
    kind: str
    symbol: str = ""
    role: str = "primary"


@dataclass(frozen=True, slots=True)
class Sizes:
    """The settings that bound a chunk."""

    target_chars: int
    max_chars: int
    lines: int
    overlap_lines: int


class Text:
    """UTF-8 bytes measured in characters and lines."""

    __slots__ = ("_is_ascii", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._is_ascii = data.isascii()

    def chars(self, start: int, end: int) -> int:
        if self._is_ascii or (part := self.data[start:end]).isascii():
            return end - start
        return len(part.decode("utf-8", "replace"))

    def lines(self, start: int, end: int) -> int:
        """Lines that the bytes touch; a lone carriage return counts where there is no line feed."""
        return 1 + (self.data.count(b"\n", start, end) or self.data.count(b"\r", start, end))

    def trim(self, start: int, end: int) -> tuple[int, int]:
        """Without blank edges; empty (start == end) when all is blank."""
        part = self.data[start:end]
        kept = part.lstrip()
        start += len(part) - len(kept)
        return start, start + len(kept.rstrip())

    def line_ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """The lines between two offsets, each with its line end."""
        lines = self.data[start:end].splitlines(keepends=True)
        return list(pairwise(accumulate(map(len, lines), initial=start)))


def tile(text: Text, cuts: list[int], end: int) -> list[tuple[int, int]]:
    """The trimmed ranges between sorted cuts; blank ones are left out."""
    ranges = (text.trim(start, stop) for start, stop in zip(cuts, [*cuts[1:], end], strict=True))
    return [(start, stop) for start, stop in ranges if start < stop]
