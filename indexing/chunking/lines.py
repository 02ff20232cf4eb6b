"""The last resort, and for unknown text the first: ranges of whole lines.

The ranges tile the text. The overlap is in what is embedded: `indexing.context` puts the last lines before a range in
front of it, so that what straddles a border is found while no byte is cited twice. Hence the first range has
`lines` lines and every later one `lines - overlap_lines` of its own: with 40 and 15 the texts are lines 1-40, 26-65 ...
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from indexing.chunking.spans import Sizes, Span, Text

KIND = "lines"
PARAGRAPH_END = re.compile(rb"[ \t]*(?:[*#;]|//+!?|--+)?[ \t]*[\r\n]*")  # blank, or blank but for a comment mark
_CLOSER_LINE = re.compile(rb"\s*(?:[\])},;]|</)")
_NOWHERE = re.compile(rb"(?!)")


def chunk(text: Text, sizes: Sizes) -> list[Span]:
    start, end = text.trim(0, len(text.data))
    if start == end:
        return []
    if text.lines(start, end) <= sizes.lines and text.chars(start, end) <= sizes.max_chars:
        return [Span(start, end, KIND)]
    step = max(1, sizes.lines - sizes.overlap_lines)
    ranges = split_lines(text, start, end, max_chars=sizes.max_chars, max_lines=step, first_lines=sizes.lines)
    return [Span(first, last, KIND) for first, last in ranges]


def split_lines(
    text: Text,
    start: int,
    end: int,
    *,
    max_chars: int,
    max_lines: int,
    first_lines: int = 0,
    break_after: re.Pattern[bytes] = _NOWHERE,
) -> list[tuple[int, int]]:
    """Ranges of at most `max_chars` characters and so many lines, trimmed; only a longer line is cut inside.

    `first_lines`, when given, is the limit of the first range.
    With `break_after`, a range that is full ends after its last line that matches it, else before one that does not
    begin with closing punctuation, if that leaves at least half of it.
    """
    ranges: list[tuple[int, int]] = []
    lines = list(_bounded_lines(text, start, end, max_chars))
    is_ascii = text.chars(start, end) == end - start
    lengths = (last - first if is_ascii else text.chars(first, last) for first, last in lines)
    reached = list(accumulate(lengths, initial=0))  # characters before each line, found by bisection for each range
    line, limit = 0, first_lines or max_lines
    while line < len(lines):
        fitting = bisect_right(reached, reached[line] + max_chars) - 1 - line
        stop = line + max(1, min(fitting, limit))
        if stop < len(lines):
            stop = line + _lines_to_take(text, lines[line : stop + 1], break_after)
        ranges.append((lines[line][0], lines[stop - 1][1]))
        line, limit = stop, max_lines
    trimmed = (text.trim(first, last) for first, last in ranges)
    return [(first, last) for first, last in trimmed if first < last]


def _lines_to_take(text: Text, lines: list[tuple[int, int]], break_after: re.Pattern[bytes]) -> int:
    """How many of the lines but the last, which is too many already."""
    full = len(lines) - 1
    if break_after is _NOWHERE:
        return full
    for count in range(full, full // 2, -1):
        if break_after.fullmatch(text.data, *lines[count - 1]):
            return count
    for count in range(full, full // 2, -1):
        if not _CLOSER_LINE.match(text.data, *lines[count]):
            return count
    return full


def _bounded_lines(text: Text, start: int, end: int, max_chars: int) -> Iterator[tuple[int, int]]:
    for first, last in text.line_ranges(start, end):
        if last - first > max_chars and text.chars(first, last) > max_chars:
            yield from _cut_line(text, first, last, max_chars)
        else:
            yield first, last


def _cut_line(text: Text, start: int, end: int, max_chars: int) -> list[tuple[int, int]]:
    """Pieces of one overlong line, between words where words are short enough."""
    line = text.data[start:end].decode("utf-8", "replace")
    pieces: list[tuple[int, int]] = []
    position = 0
    while len(line) - position > max_chars:
        space = line.rfind(" ", position + max_chars // 2, position + max_chars)
        stop = space + 1 if space > 0 else position + max_chars
        size = len(line[position:stop].encode())
        pieces.append((start, start + size))
        start, position = start + size, stop
    return [*pieces, (start, end)]
