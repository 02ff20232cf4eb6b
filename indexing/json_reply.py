"""What a language model wrote -> the JSON value in it.

Models wrap JSON in thoughts, chatter and code fences, leave trailing commas, use Python's spelling, and stop in the
middle when their tokens run out. `read` takes what is unambiguous:

    read('Sure! ```json\\n{"ids": [3, 1,], "why": "the par') == {"ids": [3, 1]}

A value that was cut is left out with its key, because half a number or half a sentence is a wrong one. It refuses
(LLMBadReply) a reply without any object or array.
"""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from indexing.errors import LLMBadReply

MAX_CHARS = 200_000
MAX_STARTS = 100  # brackets in chatter that are tried as the begin of JSON
MAX_DEPTH = 30
MAX_DIGITS = 300  # Python refuses 4,300; a model that repeats itself writes them

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_THOUGHT_END = re.compile(r"\A.*</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"```[\w-]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_START = re.compile(r"[{\[]")
_SPACE = re.compile(r"\s*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z_]\w*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS = {"true": True, "false": False, "null": None, "none": None, "nan": None}


def read(text: str) -> Any:  # Any: JSON
    """The largest object or array in the reply. Raises LLMBadReply."""
    answer = without_thoughts(text)[:MAX_CHARS]
    for candidate in (answer, *_FENCED.findall(answer)):
        try:
            value = json.loads(candidate, strict=False, parse_constant=lambda _: None)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            return value
    return _largest(answer)


def without_thoughts(text: str) -> str:
    """Without what reasoning models write before they answer, closed or not."""
    return _THOUGHT_END.sub("", _THOUGHT.sub("", text)).strip()


def _largest(answer: str) -> Any:  # Any: JSON
    best: tuple[int, Any] = (0, None)
    position = 0
    for _ in range(MAX_STARTS):
        start = _START.search(answer, position)
        if start is None:
            break
        reader = _Reader(answer, start.start())
        try:
            value = reader.value()
        except (_Cut, _Malformed):
            position = start.end()
            continue
        position = reader.position
        if value and position - start.start() > best[0]:
            best = (position - start.start(), value)
    if best[1] is None:
        raise LLMBadReply(f"The model's reply of {len(answer)} characters holds no JSON.")
    return best[1]


class _Cut(Exception):
    """The text ended inside this value."""


class _Malformed(Exception):
    pass


class _Reader:
    """A forgiving recursive reader of one value; `position` is where it stands."""

    def __init__(self, text: str, position: int) -> None:
        self.text = text
        self.position = position
        self.depth = 0

    def value(self) -> Any:  # Any: JSON
        match self._peek():
            case "{":
                return self._nested(self._object)
            case "[":
                return self._nested(self._array)
            case '"' | "'":
                return self._string()
            case _:
                return self._scalar()

    def _nested(self, read: Any) -> Any:  # Any: one of the two methods below, and JSON
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Malformed
        self.position += 1
        value = read()
        self.depth -= 1
        return value

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        try:
            while self._peek() != "}":
                key = self._string() if self._peek() in "\"'" else self._take(_WORD)
                if self._peek() != ":":
                    raise _Malformed
                self.position += 1
                found[key] = self.value()
                self._comma()
            self.position += 1
        except _Cut:
            self.position = len(self.text)
        return found

    def _array(self) -> list[Any]:
        found: list[Any] = []
        try:
            while self._peek() != "]":
                found.append(self.value())
                self._comma()
            self.position += 1
        except _Cut:
            self.position = len(self.text)
        return found

    def _comma(self) -> None:
        if self._peek() == ",":
            self.position += 1

    def _string(self) -> str:
        match = _STRING.match(self.text, self.position)
        if match is None:
            raise _Cut
        self.position = match.end()
        with contextlib.suppress(ValueError):
            return str(json.loads(match.group(), strict=False))
        return _ESCAPE.sub(_unescape, match.group()[1:-1])

    def _scalar(self) -> Any:  # Any: JSON
        if number := _NUMBER.match(self.text, self.position):
            if number.end() == len(self.text):
                raise _Cut
            self.position = number.end()
            return _number(number.group())
        if self.text.startswith("-", self.position) and self.position + 1 == len(self.text):
            raise _Cut
        word = self._take(_WORD).lower()
        if word not in _WORDS:
            raise _Malformed
        return _WORDS[word]

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.position)
        if match is None:
            raise _Malformed
        if match.end() == len(self.text):
            raise _Cut
        self.position = match.end()
        return match.group()

    def _peek(self) -> str:
        """The next character that is no space."""
        space = _SPACE.match(self.text, self.position)
        self.position = space.end() if space else self.position
        if self.position >= len(self.text):
            raise _Cut
        return self.text[self.position]


def _number(digits: str) -> int | float | None:
    if len(digits) > MAX_DIGITS:
        return None
    return float(digits) if re.search(r"[.eE]", digits) else int(digits)


def _unescape(match: re.Match[str]) -> str:
    """One escape of a string that JSON does not allow: in single quotes, or an unknown escape."""
    code = match.group(1)
    if len(code) == 5:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code)
