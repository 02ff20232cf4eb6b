"""The words around a definition: its signature, the first sentence of its documentation, its name in plain words.

Everything is read from slices of the file; nothing is stored. What cannot be read gives an empty string.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from indexing.walking import decode

if TYPE_CHECKING:
    from indexing.parsing import Definition
    from indexing.walking import SourceFile

MAX_SENTENCE_CHARS = 180
_MAX_SIGNATURE_CHARS = 160
_MAX_DOC_BYTES = 2000
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_COMMENT_MARK = re.compile(
    r"^\s*(?:/\*[*!]?|\*/|\*|//[/!]?|#[:'|!]?(?!\[)|--+\s*[|^]?|;+|\{-\s*\|?|-\}|\(\*+|\*+\)|%+)\s?"
)
_COMMENT_LINE = re.compile(r"\s*(?:/\*|\*|//|#(?!\[)|--|;|\{-|\(\*|%)")
_DOCSTRING = re.compile(r"\s*(?:[rRuU]{0,2})(\"\"\"|'''|\"|')(.*?)(?:\1|\Z)", re.S)
_ATTRIBUTE_DOC = re.compile(r"@(?:module|type)?doc\s+(?:~[sS])?(?:\"\"\"|\")(.*?)(?:\"\"\"|\"|\Z)", re.S)
_MARKUP = re.compile(r"</?\w[^>]*>|[`*]+|:[a-z]+:(?=`)|\{@\w+\s+([^}]*)\}|\\[a-z]+ ")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])(?:\s|$)|\n\s*\n|\n\s*(?:@\w+|:\w+|Args:|Returns:|Parameters)")
_LICENCE = re.compile(r"copyright|licen[cs]e|spdx|all rights reserved", re.I)
_DOCSTRING_LANGUAGES = frozenset({"python", "starlark", "julia"})


def split_words(name: str) -> str:
    """`parseHTTPRequest_v2` -> "parse http request v 2".

    >>> split_words("SessionInterface.should_set_cookie")
    'session interface should set cookie'
    """
    return " ".join(_WORDS.findall(name)).lower()


def signature(source: SourceFile, definition: Definition) -> str:
    """The declaration on one line, without documentation and body."""
    end = definition.body_byte if definition.body_byte > definition.head_byte else definition.end_byte
    text = decode(source.raw[definition.head_byte : min(end, definition.head_byte + 600)], source.encoding)
    lines = [line for line in text.splitlines() if line.strip() and not _COMMENT_LINE.match(line)]
    if definition.body_byte >= definition.end_byte:
        lines = lines[:1]
    line = " ".join(" ".join(lines).split()).rstrip(" {=")
    return line if len(line) <= _MAX_SIGNATURE_CHARS else line[: _MAX_SIGNATURE_CHARS - 1] + "…"


def doc_sentence(source: SourceFile, definition: Definition) -> str:
    """The first sentence of the comment above a definition, or of its docstring."""
    above = decode(source.raw[definition.start_byte : definition.head_byte][:_MAX_DOC_BYTES], source.encoding)
    if sentence := first_sentence(comment_text(above)):
        return sentence
    if match := _ATTRIBUTE_DOC.search(above):
        return first_sentence(match[1])
    if source.language not in _DOCSTRING_LANGUAGES:
        return ""
    body = decode(source.raw[definition.body_byte : definition.end_byte][:_MAX_DOC_BYTES], source.encoding)
    match = _DOCSTRING.match(body)
    return first_sentence(match[2]) if match else ""


def file_sentence(source: SourceFile) -> str:
    """The first sentence that the file says about itself; licences say nothing."""
    head = decode(source.raw[:_MAX_DOC_BYTES], source.encoding)
    if source.language in _DOCSTRING_LANGUAGES and (match := _DOCSTRING.match(head)):
        return first_sentence(match[2])
    if match := re.search(r"@moduledoc\s+(?:~[sS])?\"\"\"(.*?)(?:\"\"\"|\Z)", head, re.S):
        return first_sentence(match[1])
    for paragraph in re.split(r"\n\s*\n", head)[:3]:
        lines = paragraph.strip().splitlines()
        is_comment = bool(lines) and _COMMENT_LINE.match(lines[0]) is not None
        if (
            is_comment
            and not lines[0].startswith(("#!", "#include", "#define", "#if"))
            and not _LICENCE.search(paragraph)
        ):
            return first_sentence(comment_text(paragraph))
    return ""


def comment_sentence(text: str) -> str:
    """The first sentence of the comments in a piece of code."""
    return first_sentence(comment_text(text))


def first_sentence(text: str) -> str:
    text = _MARKUP.sub(lambda match: match[1] or "", text.strip())
    sentence = " ".join(_SENTENCE_END.split(text, maxsplit=1)[0].split())
    if not any(character.isalpha() for character in sentence):
        return ""
    return sentence if len(sentence) <= MAX_SENTENCE_CHARS else sentence[: MAX_SENTENCE_CHARS - 1].rstrip() + "…"


def comment_text(text: str) -> str:
    """Only the comment lines, without their marks."""
    lines = text.splitlines()
    inside = False
    kept: list[str] = []
    for line in lines:
        starts_block = "/*" in line or "{-" in line or "(*" in line
        if inside or starts_block or _COMMENT_LINE.match(line):
            kept.append(re.sub(r"\s*(?:\*+/|-\}|\*+\))\s*$", "", _COMMENT_MARK.sub("", line)))
        if starts_block:
            inside = True
        if "*/" in line or "-}" in line or "*)" in line:
            inside = False
    return "\n".join(kept)
