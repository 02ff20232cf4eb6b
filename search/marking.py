"""A passage's text -> its lines as safe HTML, and which of them hold words of the question.

A line is marked when it holds a rare enough word of the question, or its stem; words of every second line say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from django.utils.safestring import SafeString

from indexing.highlighting import highlighted_lines
from indexing.masking import mask_secrets
from indexing.tokenizing import stems, terms

MAX_LINE_CHARS = 400
_TOO_COMMON = 0.5  # of the lines of a passage of at least eight lines


def marked_lines(text: str, language: str, question: str) -> list[tuple[SafeString, bool]]:
    lines = [line[:MAX_LINE_CHARS] for line in mask_secrets(text.rstrip("\n")).replace("\r\n", "\n").split("\n")]
    html = highlighted_lines("\n".join(lines), language)
    return list(zip(html, _matches(lines, question), strict=True))


def _matches(lines: Sequence[str], question: str) -> list[bool]:
    wanted = set(stems(terms(question)))
    found = [wanted & set(stems(terms(line))) for line in lines]
    counts = Counter(word for words in found for word in words)
    common = {word for word, number in counts.items() if len(lines) >= 8 and number > _TOO_COMMON * len(lines)}
    return [bool(words - common) for words in found]
