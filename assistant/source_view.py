"""A window of a file at a commit, with a byte range marked: what the code viewer shows.

In: repository (the caller has checked that it may be read), commit, path and bytes. Only commits that were indexed
or cited are shown, never files that are skipped because they may hold secrets, and secrets inside others are
masked. However large the file is, only the window is highlighted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.safestring import SafeString, mark_safe

from assistant.citations import Evidence
from assistant.errors import SourceNotFound
from assistant.models import Citation
from indexing import git, walking
from indexing.errors import GitError
from indexing.highlighting import Piece, drawn, highlighted_pieces, split_line, to_html
from indexing.masking import mask_secrets
from indexing.models import Index, Repository
from indexing.offsets import LineIndex
from indexing.parsing import Definition, located, parse
from indexing.walking import SkipReason, SourceFile

WINDOW_LINES = 400
LINES_BEFORE_RANGE = 40  # how much is shown above a marked range
MASKING_LINES = 100  # read around the window, so that a key which begins outside of it is masked inside
MAX_LINE_CHARS = 1_000  # shown of one line
MAX_VIEW_BYTES = 20_000_000
MAX_OUTLINE_BYTES = 1_000_000
MAX_SYMBOLS = 500
PASSAGE_LINES = 30
MAX_SNIPPET_LINES = 500
MAX_SNIPPET_BYTES = 100_000

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_LETTERS = {"function": "F", "method": "M", "class": "C", "interface": "I", "struct": "S", "enum": "E", "trait": "T"}
_HIDDEN = {
    SkipReason.BINARY: "This is a binary file; there is no text to show.",
    SkipReason.SECRET: "This file may hold secrets, so it is not shown.",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `flags`: numbers of the passages that begin here."""

    number: int
    html: SafeString
    hit: bool
    flags: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    kind: str
    letter: str
    depth: int
    start_line: int
    end_line: int
    start_byte: int
    end_byte: int
    flags: tuple[int, ...]  # passages within it, as far as no inner symbol has them
    current: bool  # the innermost symbol around the start of the marked range


@dataclass(frozen=True, slots=True)
class SourceView:
    """Lines are 1-based and inclusive, bytes 0-based and end-exclusive; 0 for all of the range when none is marked."""

    repository: Repository
    commit: str
    path: bytes
    language: str
    size_bytes: int
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int
    first_line: int
    last_line: int
    line_count: int
    rows: tuple[Row, ...]
    earlier: int | None  # first line of the window before this one
    later: int | None
    outline: tuple[Symbol, ...]
    hosting_url: str
    marked_text: str  # the range, masked
    cut_lines: int  # lines of which only a part is shown

    @property
    def display_path(self) -> str:
        return drawn(self.path.decode("utf-8", "backslashreplace"))

    @property
    def name(self) -> str:
        return self.display_path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class PassageView:
    """The lines of one passage, for lists of them."""

    rows: tuple[Row, ...]
    hidden_lines: int  # at its end, left out


def read_view(
    repository: Repository,
    commit: str,
    path: bytes,
    start_byte: int = 0,
    end_byte: int = 0,
    *,
    first_line: int | None = None,
    evidence: Sequence[Evidence] = (),
) -> SourceView:
    """The window around the range, or the one that begins at `first_line`. `evidence`: whose passages get a flag.

    Raises SourceNotFound.
    """
    source = _read_source(repository, commit, path)
    file = _File(source)
    start_byte, end_byte = _checked_range(start_byte, end_byte, len(source.raw))
    marked = file.lines.lines_of(start_byte, end_byte) if end_byte else (0, 0)
    first, last = _window(file.lines.line_count, marked[0], first_line)
    here = [item for item in evidence if _is_of(item, source.blob_id, path)]
    rows, cut_lines = file.rows(first, last, (start_byte, end_byte), here)
    return SourceView(
        repository=repository,
        commit=commit,
        path=path,
        language=source.language,
        size_bytes=len(source.raw),
        start_byte=start_byte,
        end_byte=end_byte,
        start_line=marked[0],
        end_line=marked[1],
        first_line=first,
        last_line=last,
        line_count=file.lines.line_count,
        rows=rows,
        earlier=max(1, first - WINDOW_LINES) if first > 1 else None,
        later=last + 1 if last < file.lines.line_count else None,
        outline=_outline(source, file.lines, (start_byte, end_byte), here),
        hosting_url=git.hosting_url(repository.mirror.url, commit, path, marked[0] or first, marked[1] or first),
        marked_text=file.masked_text(start_byte, end_byte),
        cut_lines=cut_lines,
    )


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A byte range of a file: its lines, and its text with secrets masked."""

    language: str
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int
    rows: tuple[Row, ...]
    hidden_lines: int  # at its end, left out
    text: str


def read_excerpt(
    repository: Repository,
    commit: str,
    path: bytes,
    byte_range: tuple[int, int],
    *,
    line_range: tuple[int, int] = (0, 0),
    max_lines: int = PASSAGE_LINES,
) -> Excerpt:
    """The range, or without one the whole lines of `line_range`. Raises SourceNotFound when neither is in the file."""
    source = _read_source(repository, commit, path)
    file = _File(source)
    start, end = _checked_range(*byte_range, len(source.raw))
    first, last = line_range
    if not end and 1 <= first <= last <= file.lines.line_count:
        start, end = file.lines.line_start(first), file.lines.line_start(last + 1)
    if not start < end:
        raise SourceNotFound(f"There are no such lines in this file of {repository.name}.")
    first, last = file.lines.lines_of(start, end)
    shown = min(last, first + max_lines - 1)
    rows, _cut = file.rows(first, shown, (start, end), [])
    return Excerpt(source.language, start, end, first, last, rows, last - shown, file.masked_text(start, end))


def read_places(repository: Repository, commit: str, path: bytes, ranges: Sequence[tuple[int, int]]) -> list[Row]:
    """The first line of each byte range, with that range marked. Raises SourceNotFound."""
    file = _File(_read_source(repository, commit, path))
    found = []
    for start, end in ranges:
        line = file.lines.line_of(start)
        rows, _cut = file.rows(line, line, (start, end), [])
        found.append(rows[0])
    return found


@dataclass(frozen=True, slots=True)
class Snippet:
    """Masked text of a byte range and its lines."""

    text: str
    language: str
    encoding: str
    blob_id: str
    size_bytes: int
    start_byte: int
    end_byte: int
    start_line: int
    end_line: int


def read_snippet(
    repository: Repository, commit: str, path: bytes, byte_range: tuple[int, int], line_range: tuple[int, int]
) -> Snippet:
    """The text of a range of bytes, else of lines, else of the file's beginning. A large range is cut at its end.

    Raises SourceNotFound.
    """
    file = _File(_read_source(repository, commit, path))
    size = len(file.source.raw)
    start, end = byte_range
    if not end:
        first = max(1, line_range[0])
        last = min(line_range[1] or first + WINDOW_LINES - 1, file.lines.line_count)
        if first > last:
            raise SourceNotFound(f"The file has {file.lines.line_count:,} lines.")
        start, end = file.lines.line_start(first), file.lines.line_start(last + 1)
    if not 0 <= start < end <= size:
        raise SourceNotFound(f"The file has {size:,} bytes; there is no range {start}-{end} in it.")
    last_line = file.lines.line_of(start) + MAX_SNIPPET_LINES
    end = min(end, start + MAX_SNIPPET_BYTES, file.lines.line_start(last_line))
    first, last = file.lines.lines_of(start, end)
    source, text = file.source, file.masked_text(start, end)
    return Snippet(text, source.language, source.encoding, source.blob_id, size, start, end, first, last)


def read_passages(evidence: Sequence[Evidence], *, max_lines: int = PASSAGE_LINES) -> dict[int, PassageView]:
    """The code of passages by their number, read from the mirrors; those that are not there (any more) are left out."""
    found: dict[int, PassageView] = {}
    sources: dict[tuple[int, str, bytes], _File | None] = {}
    for item in evidence:
        row = item.citation
        if row is None or row.repository is None or not item.linkable:
            continue
        key = (row.repository.pk, row.commit, bytes(row.path))
        if key not in sources:
            sources[key] = _file_or_none(row.repository, row.commit, bytes(row.path))
        if (file := sources[key]) is not None and row.end_byte <= len(file.source.raw):
            last = min(row.end_line, row.start_line + max_lines - 1)
            rows, _cut = file.rows(row.start_line, last, (row.start_byte, row.end_byte), [item])
            found[item.number] = PassageView(rows, row.end_line - last)
    return found


def _file_or_none(repository: Repository, commit: str, path: bytes) -> _File | None:
    try:
        return _File(_read_source(repository, commit, path))
    except SourceNotFound:
        return None


def _read_source(repository: Repository, commit: str, path: bytes) -> SourceFile:
    """A file of a commit that people have reason to see: one that was indexed or is cited."""
    check_commit(repository, commit)
    try:
        blob_id = git.blob_at(repository.mirror.path, commit, path)
        if blob_id is None:
            raise SourceNotFound(f"There is no file at this path in {repository.name} at {commit[:12]}.")
        with git.BlobReader(repository.mirror.path) as blobs:
            raw = blobs.read(blob_id)
    except (GitError, OSError) as error:
        raise SourceNotFound(f"The file could not be read from the mirror of {repository.name}.") from error
    if len(raw) > MAX_VIEW_BYTES:
        raise SourceNotFound(f"The file has {len(raw):,} bytes; at most {MAX_VIEW_BYTES:,} are shown.")
    source = walking.source_of(path, blob_id, raw)
    if not isinstance(source, SourceFile):
        raise SourceNotFound(_HIDDEN.get(source.reason, f"This file is not shown: {source.reason.label}."))
    return source


def check_commit(repository: Repository, commit: str) -> None:
    """Raises SourceNotFound for a commit that was never indexed and is not cited."""
    if not _COMMIT.fullmatch(commit) or not _is_known(repository, commit):
        raise SourceNotFound(f"{repository.name} has no indexed commit {commit[:12]}.")


def _is_known(repository: Repository, commit: str) -> bool:
    return (
        Index.objects.filter(repository=repository, commit=commit).exists()
        or Citation.objects.filter(repository=repository, commit=commit).exists()
    )


def _checked_range(start_byte: int, end_byte: int, size: int) -> tuple[int, int]:
    """(0, 0) marks nothing: that is what a range outside of the file gets."""
    return (start_byte, end_byte) if 0 <= start_byte < end_byte <= size else (0, 0)


def _window(line_count: int, marked_line: int, first_line: int | None) -> tuple[int, int]:
    first = marked_line - LINES_BEFORE_RANGE if first_line is None else first_line
    first = max(1, min(first, line_count))
    if first_line is None:
        first = max(1, min(first, line_count - WINDOW_LINES + 1))
    return first, min(line_count, first + WINDOW_LINES - 1)


def _is_of(item: Evidence, blob_id: str, path: bytes) -> bool:
    row = item.citation
    return row is not None and row.blob == blob_id and bytes(row.path) == path


class _File:
    """One file, decoded line by line: bytes become characters only where they are shown."""

    def __init__(self, source: SourceFile) -> None:
        self.source = source
        self.lines = LineIndex(source.raw, source.encoding)

    def rows(
        self, first: int, last: int, marked: tuple[int, int], evidence: Sequence[Evidence]
    ) -> tuple[tuple[Row, ...], int]:
        """Rows `first` to `last`, and how many of them were cut."""
        texts = self._masked_lines(first, last)
        cuts = [self._shown(number, text, marked) for number, text in enumerate(texts, start=first)]
        shown = [text[start:end] for text, (start, end) in zip(texts, cuts, strict=True)]
        pieces = highlighted_pieces("\n".join(shown), self.source.language) if shown else []
        rows = [
            Row(
                number=number,
                html=_cut_html(self._marked_html(number, line, cut[0], marked), cut, len(text)),
                hit=self._is_hit(number, marked),
                flags=tuple(item.number for item in evidence if item.citation and item.citation.start_line == number),
            )
            for number, line, cut, text in zip(range(first, last + 1), pieces, cuts, texts, strict=True)
        ]
        return tuple(rows), sum(end - start < len(text) for text, (start, end) in zip(texts, cuts, strict=True))

    def masked_text(self, start_byte: int, end_byte: int) -> str:
        """The text of a range, cut out of masked lines: a key's beginning may lie outside of the range."""
        if not end_byte:
            return ""
        first, last = self.lines.lines_of(start_byte, end_byte)
        texts = self._masked_lines(first, min(last, first + 2 * WINDOW_LINES))
        begin, end = self._column(first, start_byte), self._column(last, end_byte)
        if len(texts) == last - first + 1:
            texts[-1] = texts[-1][:end]
        texts[0] = texts[0][begin:]
        return "\n".join(texts)

    def _masked_lines(self, first: int, last: int) -> list[str]:
        """Texts of the lines without their ends. Masking keeps lengths, so columns stay what they are."""
        start = max(1, first - MASKING_LINES)
        end = min(self.lines.line_count, last + MASKING_LINES)
        texts = mask_secrets("\n".join(self._line(number) for number in range(start, end + 1))).split("\n")
        return texts[first - start : last - start + 1]

    def _line(self, number: int) -> str:
        raw = self.source.raw[self.lines.line_start(number) : self.lines.line_start(number + 1)]
        guard = " " if number > 1 else ""  # only at the file's begin is U+FEFF a mark; elsewhere it hides in the text
        text = walking.decode(guard.encode(self.source.encoding) + raw, self.source.encoding)[len(guard) :]
        return text.rstrip("\r\n").replace("\n", " ")

    def _column(self, number: int, offset: int) -> int:
        """Characters of line `number` before byte `offset`; half a character does not count."""
        start = self.lines.line_start(number)
        raw = self.source.raw[start : max(start, offset)]
        text = raw.decode(self.source.encoding, "ignore")
        return len(text.removeprefix("\ufeff") if number == 1 else text)

    def _shown(self, number: int, text: str, marked: tuple[int, int]) -> tuple[int, int]:
        """The characters of a line that are shown: all, or those around the marked ones."""
        if len(text) <= MAX_LINE_CHARS:
            return 0, len(text)
        start = 0
        if self._is_hit(number, marked) and self.lines.line_of(marked[0]) == number:
            start = max(0, self._column(number, marked[0]) - MAX_LINE_CHARS // 10)
        return start, min(len(text), start + MAX_LINE_CHARS)

    def _is_hit(self, number: int, marked: tuple[int, int]) -> bool:
        if not marked[1]:
            return False
        first, last = self.lines.lines_of(*marked)
        return first <= number <= last

    def _marked_html(self, number: int, line: list[Piece], shift: int, marked: tuple[int, int]) -> str:
        """The line with carets: `from` begins at the range's first byte, `to` ends at its last."""
        if not self._is_hit(number, marked):
            return to_html(line)
        first, last = self.lines.lines_of(*marked)
        begin = self._column(number, marked[0]) - shift if number == first else None
        end = self._column(number, marked[1]) - shift if number == last else None
        return _with_carets(line, begin, end)


def _cut_html(html: str, cut: tuple[int, int], length: int) -> SafeString:
    before = '<span class="c">… </span>' if cut[0] else ""
    after = f'<span class="c"> … {length - cut[1]:,} more characters</span>' if cut[1] < length else ""
    return mark_safe(before + html + after)  # noqa: S308  # every piece is escaped


def _with_carets(line: list[Piece], begin: int | None, end: int | None) -> str:
    if begin is None and end is None:
        return to_html(line)
    rest, after = split_line(line, end) if end is not None else (line, [])
    before, inside = split_line(rest, begin) if begin is not None else ([], rest)
    classes = " ".join(name for name, at in (("from", begin), ("to", end)) if at is not None)
    return f'{to_html(before)}<span class="{classes}">{to_html(inside)}</span>{to_html(after)}'


def _outline(
    source: SourceFile, lines: LineIndex, marked: tuple[int, int], evidence: Sequence[Evidence]
) -> tuple[Symbol, ...]:
    if len(source.text) > MAX_OUTLINE_BYTES:
        return ()
    found = located(parse(source.text, source.language).parsed, source.offsets, lines).definitions[:MAX_SYMBOLS]
    current = _innermost(found, marked[0]) if marked[1] else -1
    flags: dict[int, list[int]] = {}
    for item in evidence:
        if item.citation is not None:
            flags.setdefault(_innermost(found, item.citation.start_byte), []).append(item.number)
    return tuple(
        Symbol(
            name=definition.name,
            kind=definition.kind,
            letter=_LETTERS.get(definition.kind, definition.kind[:1].upper()),
            depth=_depth(found, definition),
            start_line=definition.start_line,
            end_line=definition.end_line,
            start_byte=definition.start_byte,
            end_byte=definition.end_byte,
            flags=tuple(flags.get(i, ())),
            current=i == current,
        )
        for i, definition in enumerate(found)
    )


def _innermost(definitions: Iterable[Definition], offset: int) -> int:
    """The index of the smallest definition around a byte, -1 without one. Outer ones come before inner ones."""
    inside = -1
    for i, definition in enumerate(definitions):
        if definition.start_byte <= offset < definition.end_byte:
            inside = i
    return inside


def _depth(definitions: Sequence[Definition], definition: Definition) -> int:
    depth = 0
    while definition.parent >= 0:
        definition = definitions[definition.parent]
        depth += 1
    return depth
