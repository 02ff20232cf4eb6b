"""The last resort, and for unknown text the first: ranges of whole lines.

The ranges tile the text. The overlap is in what is embedded: `indexing.context` puts the last lines before a range in
front of it, so that what straddles a border is found while no byte is cited twice. Hence the first range has
`lines` lines and every later one `lines - overlap_lines` of its own: with 40 and 15 the texts are lines 1-40, 26-65 ...
"""

from __future__ import annotations

from indexing.chunking.spans import Sizes, Span, Text

KIND = "lines"


def chunk(text: Text, sizes: Sizes) -> list[Span]:
    start, end = text.trim(0, len(text.data))
    if start == end:
        return []
    if text.lines(start, end) <= sizes.lines and text.chars(start, end) <= sizes.max_chars:
        return [Span(start, end, KIND)]
    step = max(1, sizes.lines - sizes.overlap_lines)
    ranges = split_lines(text, start, end, max_chars=sizes.max_chars, first_lines=sizes.lines, later_lines=step)
    return [Span(first, last, KIND) for first, last in ranges]


def split_lines(
    text: Text, start: int, end: int, *, max_chars: int, first_lines: int, later_lines: int
) -> list[tuple[int, int]]:
    """Ranges of at most `max_chars` characters and so many lines, trimmed; only a longer line is cut inside."""
    ranges: list[tuple[int, int]] = []
    begin, count, size = start, 0, 0
    for line_start, line_end in text.line_ranges(start, end):
        length = text.chars(line_start, line_end)
        allowed = later_lines if ranges else first_lines
        if begin < line_start and (count >= allowed or size + length > max_chars):
            ranges.append((begin, line_start))
            begin, count, size = line_start, 0, 0
        if length > max_chars:
            pieces = _cut_line(text, line_start, line_end, max_chars)
            ranges += pieces[:-1]
            begin = pieces[-1][0]
            length = text.chars(begin, line_end)
        count, size = count + 1, size + length
    ranges.append((begin, end))
    trimmed = (text.trim(first, last) for first, last in ranges)
    return [(first, last) for first, last in trimmed if first < last]


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
