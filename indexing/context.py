"""What is embedded for a chunk: shortened path, canonical name, context and normalised code; and what describes it.

A row is the title (path, then symbol), then for a function the imports it uses, its class header and its constructor
or fields, a comment that stands for what is left out, and the chunk's own code. Title and context take at most a
third of the model's window; own code that does not fit goes on in further rows, each with the title. Derived text is
built, embedded and thrown away; nothing here is stored. Secrets are masked in the whole file before it is sliced.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from django.conf import settings

from indexing import wording
from indexing.chunking import code, notebook, openapi
from indexing.masking import mask_secrets
from indexing.parsing import CONTAINER_KINDS, FUNCTION_KINDS, Definition
from indexing.walking import decode

if TYPE_CHECKING:
    from indexing.chunking import Chunk, ChunkedFile
    from indexing.walking import SourceFile

ELLIPSIS = "…"
MAX_DESCRIPTION_CHARS = 300
MAX_FILE_TEXT_CHARS = 900  # about one window of a small model
_MAX_SYMBOL_CHARS = 100
_MAX_IMPORT_CHARS = 120
_MAX_HEADER_CHARS = 300
_MAX_FIELDS = 6
_MAX_MEMBERS = 60
_CONTEXT_SHARE = 3  # title and context get one third of the window
_MARKS = 4  # tokens that a model may put around a text
_MAX_CHARS_PER_TOKEN = 6  # code has about 3
_ROW_SAFETY = 0.97
_CONSTRUCTORS = frozenset({"__init__", "constructor", "__construct", "initialize", "init", "new"})
_HASH_COMMENTS = frozenset(
    "python ruby bash fish perl r julia elixir nim yaml toml make dockerfile powershell starlark gdscript tcl".split()
)
_OTHER_COMMENTS = {
    "lua": "--", "haskell": "--", "sql": "--", "elm": "--", "ada": "--", "vhdl": "--", "purescript": "--",
    "clojure": ";;", "scheme": ";;", "racket": ";;", "commonlisp": ";;", "elisp": ";;",
    "erlang": "%", "matlab": "%", "latex": "%", "vim": '"',
}  # fmt: skip
_ARGUMENTS = r"(?:\([^()\n]*\))?"
_JVM_NOISE = re.compile(
    r"(?<![\w\"'`{])@(?:\w+\.)*(?:Override|NotNull|NonNull|Nonnull|Nullable|CheckForNull|SuppressWarnings|Suppress|"
    rf"JvmStatic|JvmOverloads|JvmField|SafeVarargs|Contract){_ARGUMENTS}(?!\w)[ \t]*"
)
_NOISE = {
    "java": _JVM_NOISE,
    "kotlin": _JVM_NOISE,
    "groovy": _JVM_NOISE,
    "scala": _JVM_NOISE,
    "csharp": re.compile(
        r"\[(?:NotNull|CanBeNull|MethodImpl|DebuggerStepThrough|ExcludeFromCodeCoverage|GeneratedCode)"
        rf"{_ARGUMENTS}\][ \t]*"
    ),
    "php": re.compile(r"#\[\\?(?:Override|ReturnTypeWillChange|SensitiveParameter)\][ \t]*"),
    "dart": re.compile(r"(?<![\w\"'])@(?:override|nonVirtual|protected)(?!\w)[ \t]*"),
}
_SUMMARY = re.compile(r"\b(?:summary|description)[\"']?\s*:\s*[\"']?([^\"'\n]+)")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_IMPORT_SOURCE = re.compile(
    r"^\s*from\s+\S+\s+import\b|\bfrom\s+(?=[\"'])|([\"'])[^\"'\n]*\1|\w+(?=\s*(?:\.|::|\\|/)\s*[\w{*])"
)
_IMPORT_KEYWORDS = frozenset(
    "import from use using require include static const let var local as func function type public pub package "
    "alias typeof default library open qualified hiding".split()
)


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    rows: tuple[str, ...]  # one or more texts, none above the model's window
    description: str  # deterministic, natural language


def shorten_path(path: str, limit: int) -> str:
    """Both ends survive: the last two segments, the longest prefix that still fits, "…" between; else the name.

    >>> shorten_path("src/org/jetbrains/kotlin/idea/k2/Main.kt", 24)
    'src/org/…/k2/Main.kt'
    """
    if len(path) <= limit:
        return path
    *parts, parent, name = ["", *path.split("/")] if "/" not in path else path.split("/")
    tail = f"{parent}/{name}"
    if not parent or len(tail) > limit:
        return name
    for count in range(len(parts) - 1, 0, -1):
        shortened = "/".join([*parts[:count], ELLIPSIS, tail])
        if len(shortened) <= limit:
            return shortened
    return f"{ELLIPSIS}/{tail}" if len(tail) + 2 <= limit else tail


def embedded_texts(
    source: SourceFile, chunked: ChunkedFile, *, count_tokens: Callable[[str], int], max_tokens: int
) -> list[EmbeddedTexts]:
    """What the model sees for each chunk, aligned with `chunked.chunks`."""
    file = _File(source, chunked)
    window = _Window(count_tokens, max_tokens)
    return [
        EmbeddedTexts(
            rows=_rows(file, position, window),
            description=extractive_description(source, chunked, position),
        )
        for position in range(len(chunked.chunks))
    ]


def file_text(source: SourceFile, chunked: ChunkedFile) -> str:
    """What the file's own vector and terms are made of: path words, definition names, first doc sentences."""
    definitions = [d for d in chunked.parsed.definitions if d.kind not in ("field", "test")]
    definitions.sort(key=lambda definition: (definition.qualified_name.count("."), definition.start_byte))
    names = dict.fromkeys(d.qualified_name for d in definitions) or dict.fromkeys(
        chunk.symbol for chunk in chunked.chunks if chunk.symbol
    )
    parts = [_path(source), wording.file_sentence(source), ", ".join(_until(names, MAX_FILE_TEXT_CHARS // 2))]
    sentences = (wording.doc_sentence(source, definition) for definition in definitions[:20])
    parts.append(" ".join(_until(dict.fromkeys(filter(None, sentences)), MAX_FILE_TEXT_CHARS // 3)))
    if not definitions and chunked.chunks:
        first = chunked.chunks[0]
        parts.append(wording.first_sentence(decode(source.raw[first.start_byte : first.end_byte], source.encoding)))
    return mask_secrets("\n".join(part for part in parts if part)[:MAX_FILE_TEXT_CHARS].rstrip())


def extractive_description(source: SourceFile, chunked: ChunkedFile, position: int) -> str:
    """A deterministic description of chunk `position`, at most about 300 characters.

    "should set cookie: method of session interface in flask sessions. Whether a Set-Cookie header ... app, session"
    """
    chunk = chunked.chunks[position]
    definition = _main_definition(chunk, chunked)
    name = chunk.symbol.rsplit(".", 1)[-1] if definition else chunk.symbol
    owner = wording.split_words(chunk.symbol.rsplit(".", 2)[-2]) if definition and "." in chunk.symbol else ""
    kind = definition.kind if definition and chunk.role == "outline" else chunk.kind
    what = f"{kind} of {owner}" if owner else kind
    place = wording.split_words(_without_extension(source))
    if definition is not None:
        sentence = wording.doc_sentence(source, definition)
        extra = wording.split_words(_parameters(source, definition))
    else:
        sentence = _own_sentence(source, chunk)
        extra = ", ".join(dict.fromkeys(wording.split_words(d.name) for d in _defined(chunk, chunked)))
    label = wording.split_words(name) or name
    text = f"{label}: {what} in {place}. {sentence} {extra}".removeprefix(": ")
    return mask_secrets(" ".join(text.split())[:MAX_DESCRIPTION_CHARS].rstrip())


def normalise(text: str, language: str) -> str:
    """Trim, drop blank lines, remove common indentation and annotations that mean nothing to a reader."""
    noise = _NOISE.get(language)
    return _dedent((noise.sub("", text) if noise else text).splitlines())


def _dedent(lines: Sequence[str]) -> str:
    kept = [line.rstrip() for line in lines if line and not line.isspace()]
    indentation = min((len(line) - len(line.lstrip()) for line in kept), default=0)
    return "\n".join(line[indentation:] for line in kept)


def _path(source: SourceFile) -> str:
    return shorten_path(source.path.decode("utf-8", "replace"), settings.EMBEDDED_PATH_CHARS)


def _without_extension(source: SourceFile) -> str:
    """The last segments of the path, for sentences."""
    *folders, name = source.path.decode("utf-8", "replace").split("/")[-4:]
    return " ".join([*folders, name.rpartition(".")[0] or name])


def _until(texts: Iterable[str], limit: int) -> Iterator[str]:
    """As many texts as fit."""
    used = 0
    for text in texts:
        used += len(text) + 2
        if used > limit:
            return
        yield text


class _File:
    """The text of one file by raw offsets, secrets masked, and what its chunks share."""

    def __init__(self, source: SourceFile, chunked: ChunkedFile) -> None:
        self.source, self.chunked = source, chunked
        self.language = source.language
        self.path = _path(source)
        self.definitions = chunked.parsed.definitions
        text = decode(source.raw, source.encoding)
        masked = mask_secrets(text)
        self._masked = masked if masked != text else None
        self._characters: dict[int, int] = {}

    def text(self, start: int, end: int) -> str:
        if self._masked is None:
            return decode(self.source.raw[start:end], self.source.encoding)
        return self._masked[self._character(start) : self._character(end)]

    def lines(self, start: int, end: int) -> list[str]:
        """The lines of a range without noise and blank lines, the first one with its indentation."""
        before = decode(self.source.raw[max(0, start - 400) : start], self.source.encoding)
        lead = before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]
        text = ("" if lead.strip() else lead) + self.text(start, end)
        noise = _NOISE.get(self.language)
        cleaned = noise.sub("", text) if noise else text
        return [line.rstrip() for line in cleaned.splitlines() if line.strip()]

    @property
    def elision(self) -> str:
        mark = "#" if self.language in _HASH_COMMENTS else _OTHER_COMMENTS.get(self.language, "//")
        return f"{mark} {ELLIPSIS}"

    @cached_property
    def imports(self) -> list[tuple[str, frozenset[str]]]:
        """Each line of an import statement with the names it brings in."""
        found = []
        for start, end in self.chunked.parsed.import_ranges:
            for line in self.text(start, end).splitlines():
                statement = line.strip()[:_MAX_IMPORT_CHARS]
                if names := _imported_names(statement):
                    found.append((statement, names))
        return found

    @cached_property
    def containers(self) -> dict[str, Definition]:
        """Types by qualified name; where one is declared several times, the declaration with fields."""
        found: dict[str, Definition] = {}
        for definition in self.definitions:
            if definition.kind in CONTAINER_KINDS and definition.kind != "module":
                known = found.get(definition.qualified_name)
                if known is None or known.kind in ("impl", "extension"):
                    found[definition.qualified_name] = definition
        return found

    @cached_property
    def constructors(self) -> dict[int, Definition]:
        """Position of a container -> its constructor."""
        found: dict[int, Definition] = {}
        for definition in self.definitions:
            if definition.parent >= 0 and definition.kind in FUNCTION_KINDS:
                owner = self.definitions[definition.parent]
                if definition.name in _CONSTRUCTORS or definition.name == owner.name:
                    found.setdefault(definition.parent, definition)
        return found

    @cached_property
    def referred(self) -> dict[int, list[str]]:
        """Raw start of an endpoint -> the source of what it refers to."""
        to_raw = self.source.offsets.to_raw
        texts = openapi.referred_texts(self.source.text, self.language)
        return {to_raw(start): found for start, found in texts.items()}

    def _character(self, offset: int) -> int:
        if offset not in self._characters:
            self._characters[offset] = len(decode(self.source.raw[:offset], self.source.encoding))
        return self._characters[offset]


@dataclass(frozen=True, slots=True)
class _Window:
    count_tokens: Callable[[str], int]
    max_tokens: int

    @property
    def context_tokens(self) -> int:
        return self.max_tokens // _CONTEXT_SHARE

    def title(self, path: str, symbol: str) -> str:
        """Path and symbol, less of them when they are longer than the context may be."""
        symbol = symbol if len(symbol) <= _MAX_SYMBOL_CHARS else ELLIPSIS + symbol[1 - _MAX_SYMBOL_CHARS :]
        short = re.split(r"[.>]", symbol)[-1].strip()
        name = path.rpartition("/")[2]
        for lines in ((path, symbol), (path, short), (name, short), (name[-20:],)):
            title = "\n".join(line for line in lines if line)
            if self.has_room_for(title):
                return title
        return ""

    def has_room_for(self, context: str) -> bool:
        """Whether title and context stay within their share. Counting is for lengths that do not tell by themselves."""
        if len(context.encode()) + _MARKS <= self.context_tokens:
            return True
        is_hopeless = len(context) > _MAX_CHARS_PER_TOKEN * self.context_tokens
        return not is_hopeless and self.count_tokens(context) <= self.context_tokens


def _rows(file: _File, position: int, window: _Window) -> tuple[str, ...]:
    chunk = file.chunked.chunks[position]
    title = window.title(file.path, chunk.symbol)
    own = _own_lines(file, position)
    definition = _main_definition(chunk, file.chunked) if chunk.role == "primary" else None
    chosen: tuple[list[str], list[str]] | None = None
    own_tokens = 0
    for context, code_lines in _with_contexts(file, chunk, definition, own):
        if context and not window.has_room_for("\n".join([title, *context])):
            continue
        chosen = chosen or (context, code_lines)
        row = "\n".join(part for part in (title, *context, *code_lines) if part)
        if window.count_tokens(row) <= window.max_tokens:
            return (row,)
        own_tokens = own_tokens or window.count_tokens("\n".join([title, *code_lines]))
        if own_tokens > window.max_tokens:
            break  # no poorer context makes room enough
    context, code_lines = chosen or ([], _dedent(own).splitlines())
    return tuple(_split(window, title, context, code_lines, own_tokens))


def _own_lines(file: _File, position: int) -> list[str]:
    """What the chunk itself contributes, with the indentation it has in the file."""
    chunk = file.chunked.chunks[position]
    lines = file.lines(chunk.start_byte, chunk.end_byte)
    if chunk.role == "outline":
        return _outline_lines(file, chunk) or lines
    if chunk.kind == openapi.KIND:
        referred = (normalise(text, file.language) for text in file.referred.get(chunk.start_byte, ()))
        return [*_dedent(lines).splitlines(), *(line for text in referred for line in mask_secrets(text).splitlines())]
    if chunk.kind == notebook.KIND and (written := notebook.source_of_cell("\n".join(lines))):
        return [line for line in mask_secrets(written).splitlines() if line.strip()] or lines
    if chunk.kind == "lines" and position:
        return [*_overlap(file, position), *lines]
    return lines or file.text(chunk.start_byte, chunk.end_byte).splitlines()


def _overlap(file: _File, position: int) -> list[str]:
    """The last lines before a range of lines, as long as both together stay within a chunk's size."""
    chunk, before = file.chunked.chunks[position], file.chunked.chunks[position - 1]
    room = settings.CHUNK_MAX_CHARS - len(file.text(chunk.start_byte, chunk.end_byte))
    kept: list[str] = []
    for line in reversed(file.text(before.start_byte, before.end_byte).splitlines()[-settings.LINE_CHUNK_OVERLAP :]):
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return [line for line in reversed(kept) if line.strip()]


def _outline_lines(file: _File, chunk: Chunk) -> list[str]:
    """First sentence of the documentation, header, signatures of the members. The rest is in the class's own chunks."""
    position = next((i for i in chunk.defines if file.definitions[i].start_byte == chunk.start_byte), -1)
    if position < 0:
        return []
    owner = file.definitions[position]
    members = [d for d in file.definitions if d.parent == position and d.kind != "test"][:_MAX_MEMBERS]
    _, header = _signature_of(file, owner)
    signatures = (mask_secrets(wording.signature(file.source, member)) for member in members)
    inner = [f"    {line}" for line in dict.fromkeys(signatures) if line]
    sentence = mask_secrets(wording.doc_sentence(file.source, owner))
    return [line for line in (sentence, header[0].strip(), *inner) if line]


def _with_contexts(
    file: _File, chunk: Chunk, definition: Definition | None, own: list[str]
) -> Iterator[tuple[list[str], list[str]]]:
    """(context, own lines) from the richest context to none, both without common indentation."""
    if definition is not None and definition.kind in FUNCTION_KINDS:
        imports = _used_imports(file, own)
        last: list[tuple[int, list[str]]] | None = None
        for with_imports, pieces in _context_pieces(file, chunk, definition, own):
            if pieces != last or with_imports:
                yield _assembled(file, chunk, imports if with_imports else [], pieces, own)
            last = pieces
    yield [], _dedent(own).splitlines()


def _assembled(
    file: _File, chunk: Chunk, imports: list[str], pieces: list[tuple[int, list[str]]], own: list[str]
) -> tuple[list[str], list[str]]:
    """`pieces` are (raw end, lines). A comment stands for what lies between them and the chunk."""
    context = [line for _, lines in pieces for line in lines]
    end = max((end for end, _ in pieces if end <= chunk.start_byte), default=-1)
    if context and (end < 0 or file.text(end, chunk.start_byte).strip(" \t\r\n{:")):
        first = own[0] if own else ""
        context.append(first[: len(first) - len(first.lstrip())] + file.elision)
    joined = _dedent([*context, *own]).splitlines()
    return [*imports, *joined[: len(context)]], joined[len(context) :]


def _context_pieces(
    file: _File, chunk: Chunk, definition: Definition, own: list[str]
) -> Iterator[tuple[bool, list[tuple[int, list[str]]]]]:
    """(whether imports come with it, pieces), each poorer than the one before."""
    owner_position, owner = _owner(file, definition)
    signature = _signature_piece(file, chunk, definition)
    header: list[tuple[int, list[str]]] = []
    constructor: list[tuple[int, list[str]]] = []
    constructor_head: list[tuple[int, list[str]]] = []
    fields: list[tuple[int, list[str]]] = []
    if owner is not None:
        if not chunk.start_byte <= owner.head_byte < chunk.end_byte:
            header = [_header_piece(file, owner, definition)]
        maker = file.constructors.get(owner_position)
        if maker is not None and maker is not definition and not chunk.start_byte <= maker.start_byte < chunk.end_byte:
            constructor = [(maker.end_byte, file.lines(maker.head_byte, maker.end_byte))]
            constructor_head = [_signature_of(file, maker)]
        fields = _used_fields(file, chunk, owner_position, own)
    yield True, header + fields + constructor + signature
    yield True, header + constructor + signature
    yield True, header + constructor_head + signature
    yield False, header + constructor_head + signature
    yield False, header + signature
    yield False, signature


def _owner(file: _File, definition: Definition) -> tuple[int, Definition | None]:
    """The type that a method belongs to: around it, or named by it (Go receivers, `Foo::bar`)."""
    if definition.parent >= 0:
        parent = file.definitions[definition.parent]
        if parent.kind in CONTAINER_KINDS and parent.kind != "module":
            return definition.parent, parent
    owner = file.containers.get(definition.qualified_name.rpartition(".")[0])
    return (file.definitions.index(owner), owner) if owner is not None else (-1, None)


def _header_piece(file: _File, owner: Definition, method: Definition) -> tuple[int, list[str]]:
    """The class header; the whole type when it is short and its methods are elsewhere."""
    is_around = owner.start_byte <= method.start_byte < owner.end_byte
    end = min(owner.body_byte + _brace_width(file, owner.body_byte), owner.end_byte) if is_around else owner.end_byte
    if end - owner.head_byte <= 4 * _MAX_HEADER_CHARS:
        lines = file.lines(owner.head_byte, end)
        if sum(map(len, lines)) <= _MAX_HEADER_CHARS:
            return end, lines
    return _signature_of(file, owner)


def _brace_width(file: _File, offset: int) -> int:
    """Bytes of the brace that opens a body, when one does."""
    width = len("{".encode(file.source.encoding.removesuffix("-sig")))
    return width if file.text(offset, offset + width) == "{" else 0


def _signature_of(file: _File, definition: Definition) -> tuple[int, list[str]]:
    indentation = file.lines(definition.head_byte, definition.body_byte)[:1]
    first = indentation[0] if indentation else ""
    line = first[: len(first) - len(first.lstrip())] + mask_secrets(wording.signature(file.source, definition))
    return definition.body_byte, [line]


def _signature_piece(file: _File, chunk: Chunk, definition: Definition) -> list[tuple[int, list[str]]]:
    """For a later part of a function: the line that says which function it is."""
    return [_signature_of(file, definition)] if definition.head_byte < chunk.start_byte else []


def _used_fields(file: _File, chunk: Chunk, owner: int, own: list[str]) -> list[tuple[int, list[str]]]:
    names = set(_IDENTIFIER.findall("\n".join(own)))
    fields: list[tuple[int, list[str]]] = []
    for definition in file.definitions[owner + 1 :]:
        if definition.start_byte >= file.definitions[owner].end_byte or len(fields) >= _MAX_FIELDS:
            break
        is_field = definition.parent == owner and definition.kind in ("field", "constant")
        if is_field and definition.name in names and not chunk.start_byte <= definition.start_byte < chunk.end_byte:
            lines = file.lines(definition.head_byte, definition.end_byte)[:1]
            fields.append((definition.end_byte, [line[:_MAX_IMPORT_CHARS] for line in lines]))
    return fields


def _used_imports(file: _File, own: list[str]) -> list[str]:
    names = set(_IDENTIFIER.findall("\n".join(own)))
    return [statement for statement, imported in file.imports if imported & names][:_MAX_FIELDS]


def _imported_names(statement: str) -> frozenset[str]:
    """What an import statement brings in, not the path it takes it from; the last part of the path when it says so."""
    names = set(_IDENTIFIER.findall(_IMPORT_SOURCE.sub(" ", statement))) - _IMPORT_KEYWORDS
    if not names:
        names = set(_IDENTIFIER.findall(re.split(r"[/.\\]", statement.rstrip("\"';>) "))[-1])) - _IMPORT_KEYWORDS
    return frozenset(names)


def _main_definition(chunk: Chunk, chunked: ChunkedFile) -> Definition | None:
    """The definition that the chunk is called after."""
    definitions, package = chunked.parsed.definitions, chunked.parsed.package
    for position in chunk.defines:
        if code.symbol_of(definitions[position], package) == chunk.symbol:
            return definitions[position]
    position = bisect_right(definitions, chunk.start_byte, key=lambda definition: definition.start_byte) - 1
    while position >= 0:
        if code.symbol_of(definitions[position], package) == chunk.symbol:
            return definitions[position]
        position = definitions[position].parent
    return None


def _defined(chunk: Chunk, chunked: ChunkedFile) -> list[Definition]:
    return [chunked.parsed.definitions[position] for position in chunk.defines[:12]]


def _parameters(source: SourceFile, definition: Definition) -> str:
    _, _, after = wording.signature(source, definition).partition(definition.name)
    return " ".join(list(dict.fromkeys(_IDENTIFIER.findall(after)))[:12])


def _own_sentence(source: SourceFile, chunk: Chunk) -> str:
    """Of a section, the first sentence under its heading; of an endpoint, its summary; else the first comment."""
    text = decode(source.raw[chunk.start_byte : min(chunk.end_byte, chunk.start_byte + 800)], source.encoding)
    if chunk.kind in ("section", "lines"):
        lines = text.splitlines()
        return wording.first_sentence("\n".join(lines[1:] if chunk.symbol else lines))
    if chunk.kind == openapi.KIND and (summary := _SUMMARY.search(text)):
        return wording.first_sentence(summary[1])
    return wording.comment_sentence(text)


def _split(window: _Window, title: str, context: list[str], own: list[str], own_tokens: int) -> Iterator[str]:
    """Rows that each fit: the first with the context, all with the title. Cut between lines, else between words."""
    text = "\n".join(own)
    characters_per_token = max(1.0, len(text) / max(1, own_tokens))
    prefix = "\n".join(part for part in (title, *context) if part)
    start = 0
    while start < len(text):
        room = window.max_tokens - window.count_tokens(prefix)
        size = max(1, int(room * characters_per_token * _ROW_SAFETY))
        while True:
            end = _cut_before(text, start, start + size)
            row = "\n".join(part for part in (prefix, _dedent(text[start:end].splitlines())) if part)
            if window.count_tokens(row) <= window.max_tokens or end - start <= 1:
                break
            size = max(1, int((end - start) * 0.8))
        yield row
        start, prefix = end, title


def _cut_before(text: str, start: int, end: int) -> int:
    """The last line end before `end`, else the last space, else `end` itself."""
    if end >= len(text):
        return len(text)
    for mark in ("\n", " "):
        position = text.rfind(mark, start + 1, end)
        if position > start:
            return position + 1
    return end
