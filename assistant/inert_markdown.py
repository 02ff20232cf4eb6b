"""Markdown of a model, or plain text -> Markdown that loads nothing, whatever program shows the exported file.

Other programs run HTML, load images and follow references. So outside of code `<` is escaped, images and links to
anything but http(s) become their own text, and definitions that would turn `[1]` into somebody's link are broken.
Where it is in doubt what is code, everything is escaped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

from markdown_it import MarkdownIt

from assistant.citations import answer_parser

_ESCAPE_OR_CODE = re.compile(r"(\\.|(?<!`)(?P<ticks>`+)(?!`)(?P<code>.*?)(?<!`)(?P=ticks)(?!`))", re.DOTALL)
_ACTIVE = re.compile(r"<|(?<=!)\[|(?<=\])\((?!https?://)|(?<=\]):", re.IGNORECASE)
_SPECIAL = re.compile(r"[\\`*<>\[\]!]")

Lines = tuple[int, int]


def inert(text: str) -> str:
    """The same document as far as it only says something; code blocks stay as they are."""
    lines = text.split("\n")
    for (first, last), spans in _code_spans(text).items():
        lines[first:last] = _escaped("\n".join(lines[first:last]), spans).split("\n")
    return "\n".join(lines)


def closed(text: str) -> str:
    """The text without a code fence that would go on into what is put behind it."""
    tokens = _parser().parse(f"{text}\n\nnext")
    return f"{text}\n{tokens[-1].markup}" if tokens and tokens[-1].type == "fence" else text


def plain(text: str) -> str:
    """Text that is not Markdown, on one line, for a heading or a list."""
    return _SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def _code_spans(text: str) -> dict[Lines, list[str]]:
    """Lines with running text -> the code spans that Markdown finds in them; cells of a table share a line."""
    found: dict[Lines, list[str]] = defaultdict(list)
    row: list[int] = []
    for token in _parser().parse(text):
        row = token.map or row  # cells have the lines of their row
        if token.type == "inline" and (token.map or row):
            first, last = token.map or row
            found[first, last] += [child.content for child in token.children or () if child.type == "code_inline"]
    return found


def _escaped(text: str, spans: Sequence[str]) -> str:
    seen = [match["code"] for match in _ESCAPE_OR_CODE.finditer(text) if match["code"] is not None]
    if [code.split() for code in seen] != [code.split() for code in spans]:
        return _ACTIVE.sub(lambda match: f"&#{ord(match[0])};", text)
    pieces, end = [], 0
    for match in _ESCAPE_OR_CODE.finditer(text):
        pieces += [_ACTIVE.sub(r"\\\g<0>", text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*pieces, _ACTIVE.sub(r"\\\g<0>", text[end:])])


@cache
def _parser() -> MarkdownIt:
    return answer_parser()
