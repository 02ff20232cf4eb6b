"""Code -> highlighted, inert HTML, line by line. Only a few classes are used: k s c f n, as the style sheet has them.

In: text that is already masked, and the language as the index names it.

Nothing here trusts its input: unknown languages, very long lines and lexers that lose text give plain lines, and
characters that could hide or reorder what a reader sees are made visible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from django.utils.safestring import SafeString, mark_safe
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound

MAX_LINE_CHARS = 2_000  # a longer line leaves the text plain: some lexers need quadratic time for it
MAX_CHARS = 200_000

_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Builtin.Pseudo, "k"),
    (Name.Tag, "k"),
    (String, "s"),
    (Number, "n"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
)
# Names of grammars that Pygments knows under another one.
_LEXERS = {"shell": "bash", "starlark": "python", "hcl": "terraform", "gomod": "go", "jsonc": "json"}

# What a terminal or a browser would not draw, and marks that reorder text around them.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f\u200b\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    css_class: str = ""


Line = Sequence[Piece]


def highlighted_lines(text: str, language: str) -> list[SafeString]:
    r"""As many lines as `text.split("\n")`."""
    return [mark_safe(to_html(line)) for line in highlighted_pieces(text, language)]  # noqa: S308  # escaped


def highlighted_pieces(text: str, language: str) -> list[list[Piece]]:
    r"""The lines of `text`, whose only line ends are `\n`; joined again they are the same text."""
    lines = text.split("\n")
    lexer = _lexer(language)
    if lexer is None or len(text) > MAX_CHARS or max(map(len, lines)) > MAX_LINE_CHARS:
        return [[Piece(line)] for line in lines]
    found: list[list[Piece]] = [[]]
    for token_type, value in lexer.get_tokens(text):
        first, *rest = value.split("\n")
        _add(found[-1], first, _css_class(token_type))
        for part in rest:
            found.append([])
            _add(found[-1], part, _css_class(token_type))
    if ["".join(piece.text for piece in line) for line in found] != lines:
        return [[Piece(line)] for line in lines]
    return found


def split_line(line: Line, position: int) -> tuple[list[Piece], list[Piece]]:
    """The pieces before and after a character position."""
    before: list[Piece] = []
    after: list[Piece] = []
    at = 0
    for piece in line:
        cut = min(max(position - at, 0), len(piece.text))
        if cut:
            before.append(Piece(piece.text[:cut], piece.css_class))
        if cut < len(piece.text):
            after.append(Piece(piece.text[cut:], piece.css_class))
        at += len(piece.text)
    return before, after


def to_html(pieces: Iterable[Piece]) -> str:
    return "".join(
        f'<span class="{piece.css_class}">{visible(piece.text)}</span>' if piece.css_class else visible(piece.text)
        for piece in pieces
    )


def visible(text: str) -> str:
    """Escaped, with invisible characters drawn: controls as their pictures, the rest by number."""
    return drawn(escape(text))


def drawn(text: str) -> str:
    """Not escaped: for names that templates show, which could hide or reorder what stands around them."""
    return _INVISIBLE.sub(_picture, text)


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return f"⟨U+{code:04X}⟩"


def _add(line: list[Piece], text: str, css_class: str) -> None:
    """Neighbours of one class become one piece."""
    if not text:
        return
    if line and line[-1].css_class == css_class:
        line[-1] = Piece(line[-1].text + text, css_class)
    else:
        line.append(Piece(text, css_class))


@lru_cache(maxsize=200)
def _css_class(token_type: _TokenType) -> str:
    return next((css_class for kind, css_class in _CLASSES if token_type in kind), "")


@lru_cache(maxsize=200)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(_LEXERS.get(language, language), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
