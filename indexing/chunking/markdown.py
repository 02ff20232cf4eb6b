"""Documents by heading: Markdown, reStructuredText, AsciiDoc and Org. A section's symbol is its heading path.

Headings are found line by line, outside fenced code. A section too large is cut between paragraphs; small sections
join their neighbour, under the path of the larger one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from indexing.chunking.lines import split_lines
from indexing.chunking.spans import Sizes, Span, Text

LANGUAGES = frozenset({"markdown", "rst", "asciidoc", "org"})
KIND = "section"
SEPARATOR = " > "
SMALL_CHARS = 200  # a section below this, say a lone title, joins the next one
_HEADINGS = {
    "markdown": re.compile(rb" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$"),
    "asciidoc": re.compile(rb"(={1,6})[ \t]+(.+?)[ \t]*$"),
    "org": re.compile(rb"(\*+)[ \t]+(.+?)[ \t]*$"),
}
_FENCES = {
    "markdown": re.compile(rb"[ \t]*(`{3,}|~{3,})"),
    "asciidoc": re.compile(rb"(-{4,}|\.{4,}|={4,})[ \t]*$"),
}
_UNDERLINES = {
    "markdown": re.compile(rb" {0,3}(=|-)\1{2,}[ \t]*$"),
    "rst": re.compile(rb"([=\-~^\"'`#*+:._<>])\1{2,}[ \t]*$"),
}
_UNDERLINE_LEVELS = {b"=": 1, b"-": 2}  # of Markdown; in reStructuredText the order of appearance decides
_TITLE_STARTS = b"`*:_\"'(["
_NEVER = re.compile(rb"(?!)")


@dataclass(frozen=True, slots=True)
class _Heading:
    start: int
    level: int
    title: str


@dataclass(slots=True)
class _Section:
    start: int
    end: int
    path: tuple[str, ...]


def chunk(text: Text, language: str, sizes: Sizes) -> list[Span]:
    sections = _merge(text, _sections(text, _headings(text, language)), sizes)
    spans: list[Span] = []
    for section in sections:
        symbol = SEPARATOR.join(section.path)
        spans += [Span(start, end, KIND, symbol) for start, end in _parts(text, section, sizes)]
    return spans


def _headings(text: Text, language: str) -> list[_Heading]:
    ranges = text.line_ranges(0, len(text.data))
    lines = [text.data[start:end].rstrip() for start, end in ranges]
    pattern, underline = _HEADINGS.get(language, _NEVER), _UNDERLINES.get(language, _NEVER)
    levels = dict(_UNDERLINE_LEVELS) if language == "markdown" else {}
    headings: list[_Heading] = []
    for number in _unfenced(lines, language):
        if match := pattern.fullmatch(lines[number]):
            headings.append(_Heading(ranges[number][0], len(match[1]), _title(match[2] or b"")))
        elif number and underline.fullmatch(lines[number]) and (first := _underlined_from(lines, number)) is not None:
            mark = lines[number].strip()[:1] * (number - first)  # an overlined title is of another level
            level = levels.setdefault(mark, len(levels) + 1)
            headings.append(_Heading(ranges[first][0], level, _title(lines[number - 1])))
    return headings


def _unfenced(lines: list[bytes], language: str) -> Iterator[int]:
    """Numbers of the lines that are neither front matter nor code."""
    pattern, fence = _FENCES.get(language, _NEVER), b""
    for number in range(_front_matter_lines(lines) if language == "markdown" else 0, len(lines)):
        match = pattern.match(lines[number])
        if fence:
            fence = b"" if match and match[1].startswith(fence) and lines[number].strip() == match[1] else fence
        elif match:
            fence = match[1]
        else:
            yield number


def _underlined_from(lines: list[bytes], number: int) -> int | None:
    """The first line of the title that line `number` underlines; None when it is no title."""
    title, before = lines[number - 1], lines[number - 2] if number > 1 else b""
    if not title.strip() or (title.isascii() and not title[:1].isalnum() and title[:1] not in _TITLE_STARTS):
        has_overline = before.strip() == lines[number].strip() and title[:1].isspace() and title.strip()
        return number - 2 if has_overline else None
    if before.strip() == lines[number].strip():
        return number - 2
    return number - 1 if not before.strip() else None


def _title(raw: bytes) -> str:
    title = re.sub(r"\[([^\]]*)\]\([^)]*\)|<[^>]*>|[`*]", lambda match: match[1] or "", raw.decode("utf-8", "replace"))
    return " ".join(title.split())[:120]


def _front_matter_lines(lines: list[bytes]) -> int:
    """How many lines a YAML header takes; its comments are not headings."""
    if lines[:1] != [b"---"]:
        return 0
    return next((number + 1 for number, line in enumerate(lines[1:], 1) if line in (b"---", b"...")), 0)


def _sections(text: Text, headings: list[_Heading]) -> list[_Section]:
    bounds = [*(heading.start for heading in headings), len(text.data)]
    sections = [_Section(0, bounds[0], ())]
    path: list[_Heading] = []
    for heading, end in zip(headings, bounds[1:], strict=True):
        path = [outer for outer in path if outer.level < heading.level] + [heading]
        sections.append(_Section(heading.start, end, tuple(part.title for part in path if part.title)))
    kept: list[_Section] = []
    for section in sections:
        section.start, section.end = text.trim(section.start, section.end)
        if section.start < section.end:
            kept.append(section)
    return kept


def _merge(text: Text, sections: list[_Section], sizes: Sizes) -> list[_Section]:
    merged: list[_Section] = []
    for section in sections:
        last = merged[-1] if merged else None
        if last is not None and _may_merge(text, last, section, sizes):
            if text.chars(section.start, section.end) > text.chars(last.start, last.end):
                last.path = section.path
            last.end = section.end
        else:
            merged.append(section)
    return merged


def _may_merge(text: Text, last: _Section, section: _Section, sizes: Sizes) -> bool:
    """A title joins what is under it; small sections join within one parent."""
    is_related = last.path == section.path[: len(last.path)] or last.path[:-1] == section.path[:-1]
    smaller = min(text.chars(last.start, last.end), text.chars(section.start, section.end))
    size = text.chars(last.start, section.end)
    fits = size <= sizes.max_chars and text.lines(last.start, section.end) <= sizes.lines
    return is_related and fits and smaller < SMALL_CHARS and size <= 2 * sizes.target_chars


def _parts(text: Text, section: _Section, sizes: Sizes) -> list[tuple[int, int]]:
    """Paragraphs, packed; the heading stays with the first one. Fenced code is cut only when it does not fit."""
    if text.chars(section.start, section.end) <= sizes.max_chars:
        return [(section.start, section.end)]
    parts: list[tuple[int, int]] = []
    for start, end in _paragraphs(text, section):
        if parts and text.chars(parts[-1][0], end) <= sizes.max_chars:
            parts[-1] = (parts[-1][0], end)
        elif text.chars(start, end) <= sizes.max_chars:
            parts.append((start, end))
        else:
            parts += split_lines(text, start, end, max_chars=sizes.max_chars, max_lines=sizes.lines)
    return [part for part in (text.trim(*part) for part in parts) if part[0] < part[1]]


def _paragraphs(text: Text, section: _Section) -> list[tuple[int, int]]:
    paragraphs: list[tuple[int, int]] = []
    begin, fence, after_blank = section.start, b"", False
    for start, end in text.line_ranges(section.start, section.end):
        line = text.data[start:end]
        if after_blank and not fence and line.strip():
            paragraphs.append((begin, start))
            begin = start
        if match := _FENCES["markdown"].match(line):
            fence = b"" if fence and match[1].startswith(fence) else fence or match[1]
        after_blank = not line.strip()
    return [*paragraphs, (begin, section.end)]
