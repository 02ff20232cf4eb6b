"""`"quoted phrase"` or `/regular expression/` -> the lines that match, by Git's own grep over the mirrors.

Only indexed files count, so that what was kept out of the index stays out; and a line with a masked secret never
matches, so that nobody can guess one letter by letter. Time, output and number of files are bounded; what was cut
off is said.
"""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from indexing.errors import GitError, MissingObject
from indexing.git import BlobReader
from indexing.git_process import running
from indexing.index_format import ChunkRecord
from indexing.masking import mask_secrets
from indexing.models import Repository
from indexing.walking import decode
from search.corpus import Source
from search.placing import file_at, hit_of
from search.results import Hit

MAX_SECONDS = 4.0  # for all repositories together
MAX_OUTPUT_BYTES = 2 * 1024 * 1024  # of each repository
MAX_FILES = 100  # read back from each repository, to say where in them
MAX_PATTERN_CHARS = 500
LATER_CODE = 0.5  # score of tests, examples, documents and other flagged files; 1 for the rest

_PHRASE = re.compile(r'"([^"]{2,})"')
_REGEX = re.compile(r"/(.{2,})/(i?)")
_RECORD = re.compile(rb"[0-9a-f]{40,64}:([^\0]+)\0(\d+)\0[^\n]*\n")

_NO_MATCH = 1  # exit status of git grep


@dataclass(frozen=True, slots=True)
class Pattern:
    text: str
    regex: bool = False
    ignore_case: bool = False


def read_pattern(question: str) -> Pattern | None:
    """The pattern when the question is one and nothing else; None for anything that is to be ranked by meaning."""
    text = question.strip()
    if len(text) > MAX_PATTERN_CHARS or "\n" in text or "\0" in text:
        return None
    if match := _PHRASE.fullmatch(text):
        return Pattern(match[1]) if match[1].strip() else None
    if match := _REGEX.fullmatch(text):
        return Pattern(match[1], regex=True, ignore_case=bool(match[2]))
    return None


# What people write in expressions and POSIX does not know, or takes for something else without a word.
_PIECE = re.compile(r"\\.|\(\?:|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]")
_OUTSIDE = {"(?:": "(", r"\d": "[0-9]", r"\D": "[^0-9]", r"\t": "\t", r"\/": "/"}
_INSIDE = {"d": "0-9", "w": "[:alnum:]_", "s": "[:space:]", "t": "\t", "n": "", "r": "\r"}  # a line has no line end
_INSIDE |= {mark: f"[.{mark}.]" for mark in "[]^-"}  # each means itself in one place only
_ANYTHING = frozenset((r"[\s\S]", r"[\S\s]", r"[\d\D]", r"[\D\d]", r"[\w\W]", r"[\W\w]", r"[^\n]", r"[^\r\n]"))


def as_posix(expression: str) -> str:
    r"""`[\w.]+(?:a|\d)` is `[[:alnum:]_.]+(a|[0-9])`. In brackets a backslash is a character like any other."""
    return _PIECE.sub(lambda match: _piece_as_posix(match[0]), expression)


def _piece_as_posix(piece: str) -> str:
    if not piece.startswith("[") or "\\" not in piece:
        return _OUTSIDE.get(piece, piece)
    if piece in _ANYTHING:
        return "."
    return re.sub(r"\\(.)", lambda match: _INSIDE.get(match[1], match[1]), piece)


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[Hit, ...]
    notices: tuple[str, ...]


def grep(sources: Sequence[Source], pattern: Pattern, *, folder: bytes = b"", languages: Collection[str] = ()) -> Found:
    """One hit for each chunk with matching lines, from the first such line to the last; own code before tests.

    The sources are those that the person may read. Git is asked only for folders that they have: it refuses others.
    """
    deadline = time.monotonic() + MAX_SECONDS
    mirrors = Repository.objects.select_related("mirror").in_bulk([source.repository_id for source in sources])
    hits: list[Hit] = []
    notices: list[str] = []
    for number, source in enumerate(sources):
        if time.monotonic() > deadline:
            notices.append(f"Time was up after {number} of {len(sources)} repositories. Name one with @ to search it.")
            break
        if folder and not any(segment.files_in(folder) for segment in source.index.segments):
            continue
        try:
            search = _Search(source, pattern, folder, languages, deadline)
            hits += search.hits(mirrors[source.repository_id].mirror.path)
            notices += search.notices
        except (GitError, MissingObject, KeyError):
            notices.append(f"{source.name} could not be searched: its copy cannot be read. Update it.")
    return Found(tuple(sorted(hits, key=lambda hit: -hit.score)), tuple(notices))  # stable: by path within a score


class _Search:
    """One pattern in one repository."""

    def __init__(
        self, source: Source, pattern: Pattern, folder: bytes, languages: Collection[str], deadline: float
    ) -> None:
        self._source, self._pattern, self._folder, self._deadline = source, pattern, folder, deadline
        self._languages = languages
        self.notices: list[str] = []

    def hits(self, mirror: Path) -> list[Hit]:
        """Raises MissingObject and GitError."""
        found: list[Hit] = []
        files = groupby(self._places(mirror), key=lambda place: place[0])
        with BlobReader(mirror) as blobs:
            read = 0
            for path, places in files:
                lines = [line for _, line in places]
                if (file := file_at(self._source, path)) is None:
                    continue
                record = file.segment.file(file.row)
                if self._languages and record.language not in self._languages:
                    continue
                if read == MAX_FILES or time.monotonic() > self._deadline:
                    self.notices.append(f"{self._source.name}: the first {read} files with matches are shown.")
                    break
                read += 1
                kept = _without_secrets(blobs.read(record.blob_id), record.encoding, lines)
                owned = zip(file.chunks_at([line.number for line in kept]), kept, strict=True)
                chunks = [(chunk, line) for chunk, line in owned if chunk is not None]
                score = LATER_CODE if record.flags else 1.0
                found += [
                    _hit(self._source, chunk, [line for _, line in members], score)
                    for chunk, members in groupby(chunks, key=lambda entry: entry[0])
                ]
        return found

    def _places(self, mirror: Path) -> Iterator[tuple[bytes, int]]:
        """(path, line) in Git's order, which keeps the lines of a file together."""
        for match in _RECORD.finditer(self._output(mirror)):
            yield match[1], int(match[2])

    def _output(self, mirror: Path) -> bytes:
        output, code = bytearray(), None
        with running(mirror, *self._arguments()) as process:
            assert process.stdout is not None
            while time.monotonic() < self._deadline and len(output) < MAX_OUTPUT_BYTES:
                received = _received(process, self._deadline)
                if received is None:
                    break
                if not received:
                    code = _exit_status(process)
                    break
                output += received
        if code is None:
            self.notices.append(f"{self._source.name} has more matches than can be shown. Make the pattern narrower.")
        elif code > _NO_MATCH:
            self.notices.append(f"{self._source.name}: Git could not search for /{self._pattern.text}/. Check it.")
        return bytes(output)

    def _arguments(self) -> list[str | bytes]:
        pattern = self._pattern
        kind = "--extended-regexp" if pattern.regex else "--fixed-strings"
        text = as_posix(pattern.text) if pattern.regex else pattern.text
        options = ["--line-number", "--null", "-I", "--full-name", "--no-color", "--threads=1", kind]
        options += ["--ignore-case"] if pattern.ignore_case else []
        scope: list[str | bytes] = ["--", self._folder] if self._folder else ["--"]
        return ["grep", *options, "-e", text, self._source.index.manifest.commit, *scope]


def _received(process: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """The next piece of output, b"" at its end, None when the time is up."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(max(0.0, deadline - time.monotonic())):
            return None
    return os.read(process.stdout.fileno(), 65536)


def _exit_status(process: subprocess.Popen[bytes]) -> int | None:
    with suppress(subprocess.TimeoutExpired):
        return process.wait(timeout=1)
    return None


@dataclass(frozen=True, slots=True)
class _Line:
    number: int  # from 1
    start_byte: int
    end_byte: int


def _without_secrets(raw: bytes, encoding: str, numbers: Sequence[int]) -> list[_Line]:
    """Where those lines are in the file, without lines in which something is masked."""
    text = decode(raw, encoding)
    shown, masked = text.split("\n"), mask_secrets(text).split("\n")
    lines, start = [], 0
    wanted = set(numbers)
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if number in wanted and number <= len(shown) and shown[number - 1] == masked[number - 1]:
            lines.append(_Line(number, start, start + len(line)))
        start += len(line) + 1
    return lines


def _hit(source: Source, chunk: ChunkRecord, lines: Sequence[_Line], score: float) -> Hit:
    return replace(
        hit_of(source, chunk, score=score, leg="lines"),
        start_byte=lines[0].start_byte,
        end_byte=lines[-1].end_byte,
        start_line=lines[0].number,
        end_line=lines[-1].number,
        legs={"lines": float(len(lines))},
    )
