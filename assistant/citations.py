"""Markers in an answer -> citations that exist in the evidence, and evidence -> proof that its bytes exist.

`[1]`, `[1, 2]`, `[1][3]`, `[2-4]` and `【1】` count wherever Markdown shows them as text; inside code they are code.
A number that is not in the evidence is never linked, and a passage is shown as verified only after `verify` has
seen its bytes in the mirror. Nothing here reads the database.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from assistant.models import Citation
from indexing import git
from indexing.errors import GitError
from indexing.highlighting import drawn
from indexing.offsets import LineIndex

logger = logging.getLogger(__name__)

MAX_NUMBERS_PER_MARKER = 20
_NUMBERS = r"[1-9]\d{0,2}(?:\s*(?:[,;、，]|[-–])\s*[1-9]\d{0,2})*"
_MARKER = re.compile(rf"\[\s*({_NUMBERS})\s*\]|【\s*({_NUMBERS})(?:†[^】\n]{{0,80}})?\s*】")
_SEPARATOR = re.compile(r"\s*[,;、，]\s*")
_RANGE = re.compile(r"\s*[-–]\s*")


@dataclass(frozen=True, slots=True)
class Mentions:
    """Numbers in the order an answer first mentions them: those in its evidence, and those that are not."""

    cited: tuple[int, ...]
    unknown: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One passage behind an answer, as one person may see it now.

    `citation` is None when the passage may not be read (any more): then nothing but the number is told.
    """

    number: int
    citation: Citation | None
    state: str  # ok, pending (not verified yet), broken (could not be verified), removed, hidden
    label: str  # sessions.py:303–321
    title: str  # pallets/flask src/flask/sessions.py, lines 303–321, bytes 12,077–12,736

    @property
    def linkable(self) -> bool:
        return self.state in ("ok", "pending")

    @property
    def cited(self) -> bool:
        return self.citation is not None and self.citation.cited

    @property
    def verified(self) -> bool:
        return self.citation is not None and self.citation.verified


def withheld(evidence: Sequence[Evidence]) -> bool:
    """Whether an answer draws on something its reader may not read (any more): then its text is not shown either."""
    return any(item.state == "hidden" for item in evidence)


@dataclass(frozen=True, slots=True)
class Place:
    """A byte range of a file at a commit, and the bare mirror that has it."""

    mirror_path: Path
    commit: str
    blob_id: str
    path: bytes
    encoding: str
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int


def answer_parser() -> MarkdownIt:
    """The Markdown of answers: no HTML; markers become tokens of type `citation` with `meta["numbers"]`."""
    md = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    md.inline.add_terminator_char("【")
    md.inline.ruler.before("link", "citation", _citation_rule)
    return md.disable("reference")  # "[1]: https://..." would turn every [1] into a link to that address


def mentions(text: str, known: Collection[int]) -> Mentions:
    """Every number that the Markdown `text` mentions as a citation, split by whether it is in `known`."""
    numbers = dict.fromkeys(number for block in _parser().parse(text) for number in _numbers_in(block))
    return Mentions(
        cited=tuple(number for number in numbers if number in known),
        unknown=tuple(number for number in numbers if number not in known),
    )


def without_markers(text: str) -> str:
    """For another prompt, where the numbers would point at other passages."""
    return _MARKER.sub("", text)


def place_label(file_name: str, start_line: int, end_line: int) -> str:
    lines = f"{start_line}" if start_line == end_line else f"{start_line}–{end_line}"
    return f"{drawn(file_name)}:{lines}"


def place_title(repository: str, path: str, lines: tuple[int, int], bytes_: tuple[int, int]) -> str:
    which = f"line {lines[0]}" if lines[0] == lines[1] else f"lines {lines[0]}–{lines[1]}"
    return f"{repository} {drawn(path)}, {which}, bytes {bytes_[0]:,}–{bytes_[1]:,}"


def verify(places: Sequence[Place]) -> list[bool]:
    """Aligned with `places`: the path holds that blob at that commit, and the bytes and lines lie in it and agree.

    Never raises for what a mirror lacks: that is what False is for.
    """
    verdicts = [False] * len(places)
    order = sorted(range(len(places)), key=lambda i: (str(places[i].mirror_path), places[i].commit, places[i].blob_id))
    for (mirror_path, commit), indexes in groupby(order, key=lambda i: (places[i].mirror_path, places[i].commit)):
        numbers = list(indexes)
        try:
            blobs = git.blobs_at(mirror_path, commit, {places[i].path for i in numbers})
            with git.BlobReader(mirror_path) as reader:
                for i in numbers:
                    verdicts[i] = blobs.get(places[i].path) == places[i].blob_id and _exists(places[i], reader)
        except (GitError, OSError) as error:
            logger.warning("citations of %s not verified: %s", mirror_path.name, type(error).__name__)
    return verdicts


def _exists(place: Place, reader: git.BlobReader) -> bool:
    try:
        raw = reader.read(place.blob_id)
    except GitError:
        return False
    if not 0 <= place.start_byte < place.end_byte <= len(raw):
        return False
    lines = LineIndex(raw, place.encoding)
    return lines.lines_of(place.start_byte, place.end_byte) == (place.start_line, place.end_line)


_parser = cache(answer_parser)


def _numbers_in(block: Token) -> Iterator[int]:
    for token in block.children or ():
        if token.type == "citation":
            yield from token.meta["numbers"]


def _citation_rule(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "[【":
        return False
    found = _MARKER.match(state.src, state.pos, state.posMax)
    if found is None:
        return False
    if not silent:
        token = state.push("citation", "", 0)
        token.content = found.group()
        token.meta["numbers"] = _expand(found.group(1) or found.group(2))
    state.pos = found.end()
    return True


def _expand(numbers: str) -> list[int]:
    """The numbers of one marker: "1, 3-5" -> [1, 3, 4, 5]."""
    found: dict[int, None] = {}
    for part in _SEPARATOR.split(numbers):
        ends = [int(end) for end in _RANGE.split(part)]
        first, last = ends[0], min(ends[-1], ends[0] + MAX_NUMBERS_PER_MARKER - 1)
        found.update(dict.fromkeys(range(first, last + 1) if last >= first else ends))
    return list(found)[:MAX_NUMBERS_PER_MARKER]
