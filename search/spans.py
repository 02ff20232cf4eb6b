"""Documented functions of a tree -> a copy without their documentation, and the questions it leaves: span accuracy.

The documentation of a function is what people would ask for it. So it is taken out of a copy, the copy is indexed, and
the words are asked: a good index has the function among the first ten, and cites little more than it. Sampled functions
are public, named once in their file, and have a body and documentation of some length.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from indexing import wording
from indexing.parsing import FUNCTION_KINDS, Definition, Syntax, parse
from indexing.walking import SourceFile, decode
from search.results import Hit

DEPTH = 10
MIN_QUESTION_CHARS = 30
MAX_QUESTION_CHARS = 1000
_DOCSTRING = re.compile(rb"\s*[rRuU]{0,2}(\"\"\"|''')(.*?)\1\s*", re.S)
_COMMENT = re.compile(rb"//|/\*|#(?!\[)|--|\{-|\(\*|;|%")
_TESTS = re.compile(rb"(?:^|[/_.-])tests?(?:[/_.-]|$)", re.I)
_DOCSTRING_LANGUAGES = frozenset({"python", "starlark"})


@dataclass(frozen=True, slots=True)
class Function:
    """`cuts` are the byte ranges of its documentation in the original file."""

    path: bytes
    name: str
    question: str
    cuts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """`rank` from 1, 0 when it is not among the first; `ratio`: bytes cited per byte of the function."""

    rank: int
    ratio: float


def documented(source: SourceFile) -> Iterator[Function]:
    """Files of code outside of tests."""
    if source.route != "code" or _TESTS.search(source.path):
        return
    syntax = parse(source.text, source.language)
    names = Counter(definition.qualified_name for definition in syntax.parsed.definitions)
    for definition in syntax.parsed.definitions:
        if not _is_askable(definition) or names[definition.qualified_name] > 1:
            continue
        question, cuts = _documentation(source, syntax, definition)
        if len(question) >= MIN_QUESTION_CHARS:
            places = tuple((source.offsets.to_raw(start), source.offsets.to_raw(end)) for start, end in cuts)
            yield Function(source.path, definition.qualified_name, question[:MAX_QUESTION_CHARS], places)


def _is_askable(definition: Definition) -> bool:
    is_public = not any(part.startswith("_") for part in definition.qualified_name.split("."))
    return is_public and definition.kind in FUNCTION_KINDS - {"test"} and definition.body_byte < definition.end_byte


def _documentation(
    source: SourceFile, syntax: Syntax, definition: Definition
) -> tuple[str, tuple[tuple[int, int], ...]]:
    if source.language in _DOCSTRING_LANGUAGES:
        match = _DOCSTRING.match(source.text, definition.body_byte, definition.end_byte)
        if match is None or match.end() >= definition.end_byte:  # nothing would be left of the function
            return "", ()
        start = match.start(1) - len(match[0].split(match[1])[0].strip())
        return " ".join(decode(match[2], "utf-8").split()), ((start, match.end()),)
    cuts = tuple(
        (start, end)
        for start, end in syntax.prefixes
        if definition.start_byte <= start and end <= definition.head_byte and _COMMENT.match(source.text, start)
    )
    text = "\n".join(decode(source.text[start:end], "utf-8") for start, end in cuts)
    return " ".join(wording.comment_text(text).split()), cuts


def without_documentation(source: SourceFile, functions: Sequence[Function]) -> bytes:
    raw = source.raw
    for start, end in sorted((cut for function in functions for cut in function.cuts), reverse=True):
        raw = raw[:start] + raw[end:]
    return raw


def place_of(source: SourceFile, function: Function) -> tuple[int, int] | None:
    """Bytes of a function in the copy; None when its file reads differently without the documentation."""
    found = [d for d in parse(source.text, source.language).parsed.definitions if d.qualified_name == function.name]
    if len(found) != 1:
        return None
    return source.offsets.to_raw(found[0].start_byte), source.offsets.to_raw(found[0].end_byte)


def judge(hits: Sequence[Hit], path: bytes, place: tuple[int, int]) -> Answer:
    start, end = place
    for rank, hit in enumerate(hits[:DEPTH], 1):
        if hit.path == path and hit.start_byte < end and hit.end_byte > start:
            return Answer(rank, (hit.end_byte - hit.start_byte) / (end - start))
    return Answer(0, 0.0)


def summary(answers: Sequence[Answer]) -> dict[str, Any]:  # Any: JSON
    found = [answer for answer in answers if answer.rank]
    return {
        "functions": len(answers),
        "in_top_10": len(found) / len(answers) if answers else 0.0,
        "first": sum(answer.rank == 1 for answer in found) / len(answers) if answers else 0.0,
        "median_span_ratio": median(answer.ratio for answer in found) if found else None,
    }
