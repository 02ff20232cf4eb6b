"""tree-sitter: the UTF-8 text of a source file -> its definitions, imports and syntax tree.

`parse` reports text offsets; `located` turns them into coordinates of the original file. Neither raises for bad input:
a grammar that is missing or fails, or a parse that takes too long, gives a `Syntax` without a tree whose `fallback`
says why; such a file is chunked by lines. Trees are read with queries and cursors only, so that no nesting is too deep.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from tree_sitter import Language, Node, Parser, Query, QueryCursor, QueryError, Tree
from tree_sitter_language_pack import get_language

from indexing.offsets import LineIndex, OffsetMap
from indexing.tags import CLAUSE_LANGUAGES, KEYWORD_KINDS, KIND_WORDS, TAGS, WRAPPERS

PARSE_TIMEOUT_SECONDS = 10.0  # real files take milliseconds; pathological ones take minutes
FUNCTION_KINDS = frozenset({"function", "method", "macro", "test"})
CONTAINER_KINDS = frozenset(
    {"class", "interface", "struct", "enum", "trait", "module", "impl", "object", "extension", "type"}
)
_VALUE_KINDS = frozenset({"constant", "field"})
_buffers = threading.local()
_READ_BYTES = 4096  # the reader is called for every step back, so its copies stay small
_PREDICATE_BYTES = 64  # most names are shorter; longer ones are read in several steps
_MAX_NAME_BYTES = 200
_MAX_BYTES_BEFORE_NAME = 2000  # farther away it is a slip of error recovery that took a class for a function
_MODIFIERS = re.compile(rb"[A-Za-z_][A-Za-z_ ]*")
_PLAIN_NAME = re.compile(r"[\w$]+")
_DOTTED_NAME = re.compile(r"[\w$~@?!'*-]+(?:(?:::|->|\.|:|\\|#|/)[\w$~@?!'*-]+)*")
_NAME_SEPARATOR = re.compile(r"::|->|\.|:|\\|#|/")
_GENERICS = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
_SILENT_SCOPES = frozenset({"exports", "module", "prototype", "this", "self", "window", "global", "globalThis"})
_INNER_DOCUMENTATION = {"rust": (b"//!", b"/*!"), "zig": (b"//!",)}  # of the enclosing module, not of what follows
_ANNOTATION_LINE = re.compile(rb"[ \t]*(@[\w.:]+(?:\([^\n]*\))?)[ \t]*\r?\n")
_ANNOTATION_LANGUAGES = frozenset({"java", "kotlin", "groovy", "scala", "swift", "dart", "typescript", "tsx"})
_BRACKET_MACRO = re.compile(rb"^(?:[A-Z0-9]*_)*(?:BEGIN|END)(?:_[A-Z0-9]+)*(?=[ \t]*$)(?!\s*[},)])", re.M)
_BATS_MARK = "@test "
_BATS_MARK_BYTES = _BATS_MARK.encode()
# Above some 250 levels of blocks the scanner of the YAML grammar ends the process. A level takes a blank or a mark.
_DEEP_BLOCKS = re.compile(rb"^(?: |[-?:] ){200}", re.M)
_BATS_TEST = re.compile(rb"^(@test[ \t]+)([\"'][^\n]*)[\"'][ \t](?=[ \t]*\{[ \t]*$)", re.M)
_PREFIX_TYPES = ("attribute_item", "attribute_list", "annotation", "decorator", "marker_annotation")


@dataclass(frozen=True, slots=True)
class Definition:
    """Something a person can name. Bytes are 0-based and end-exclusive, lines 1-based and inclusive.

    `start_byte` includes documentation, decorators, annotations and modifiers; `head_byte` is where the declaration
    itself begins (after documentation and decorators), `body_byte` where its body begins (`end_byte` without one).
    """

    name: str
    qualified_name: str  # parents joined with ".", without the package
    kind: str  # function, method, class, interface, struct, enum, trait, module, constant, type, macro, test, field ...
    start_byte: int
    end_byte: int
    name_byte: int
    start_line: int
    end_line: int
    parent: int  # index into the file's definitions, -1 at the top
    head_byte: int
    body_byte: int


@dataclass(frozen=True, slots=True)
class ParsedFile:
    definitions: tuple[Definition, ...] = ()  # by start, outer before inner
    imports: tuple[str, ...] = ()  # module names as written: "flask.sessions", "./utils", "crate::de"
    import_ranges: tuple[tuple[int, int], ...] = ()  # bytes of the import statements
    package: str = ""  # what the language declares: "org.example", "cobra"; empty when it declares nothing
    fallback: str = ""  # why the file was cut by lines; empty when its tree was used


@dataclass(frozen=True, slots=True)
class Syntax:
    """A parsed text. All offsets, those of `parsed` included, are offsets of the text; lines are not set yet."""

    parsed: ParsedFile
    tree: Tree | None = None
    node_definitions: dict[int, int] = field(default_factory=dict)  # id of a node -> the definition it is
    prefixes: tuple[tuple[int, int], ...] = ()  # comments and attributes, outermost ones, by start


@dataclass(frozen=True, slots=True)
class _Grammar:
    language: Language
    query: Query


@dataclass(slots=True)
class _Found:
    """A definition on its way: nodes of one name, widest and narrowest range."""

    name: str
    scope: tuple[str, ...]
    kind: str
    rank: int  # index of the pattern that named it; lower wins
    name_byte: int
    start: int
    end: int
    head: int
    body: int
    node_ids: list[int]


def parse(text: bytes, language: str) -> Syntax:
    grammar = _grammar(language)
    if isinstance(grammar, str):
        return Syntax(ParsedFile(fallback=grammar))
    if language == "yaml" and _DEEP_BLOCKS.search(text):
        return Syntax(ParsedFile(fallback="YAML blocks nested deeper than its parser can bear"))
    tree = _parse_tree(grammar.language, _parsable(text, language))
    if tree is None:
        return Syntax(ParsedFile(fallback=f"parsing took more than {PARSE_TIMEOUT_SECONDS:g} s"))
    return _read_tree(tree, grammar.query, text, language)


def _parsable(text: bytes, language: str) -> bytes:
    """The same text, byte for byte as long, without what is no part of the language that its grammar knows.

    Tests of Bats (`@test "name" {`) become functions; macros that open or close a namespace (`QT_BEGIN_NAMESPACE`)
    become blanks, for the class below them would be an error.
    """
    if language == "bash" and b"@test" in text:
        return _BATS_TEST.sub(lambda match: b"_" * (len(match[1]) + len(match[2])) + b"()", text)
    if language in ("c", "cpp", "cuda", "objc"):
        return _BRACKET_MACRO.sub(lambda match: b" " * len(match[0]), text)
    return text


def located(parsed: ParsedFile, offsets: OffsetMap, lines: LineIndex) -> ParsedFile:
    """The same file with coordinates of the original bytes."""
    to_raw = offsets.to_raw
    return replace(
        parsed,
        definitions=tuple(_locate(definition, to_raw, lines) for definition in parsed.definitions),
        import_ranges=tuple((to_raw(start), to_raw(end)) for start, end in parsed.import_ranges),
    )


def grammar_problem(language: str) -> str:
    """Why this language cannot be parsed, for the languages page; empty when it can."""
    grammar = _grammar(language)
    return grammar if isinstance(grammar, str) else ""


def _locate(definition: Definition, to_raw: Callable[[int], int], lines: LineIndex) -> Definition:
    start, end = to_raw(definition.start_byte), to_raw(definition.end_byte)
    start_line, end_line = lines.lines_of(start, end)
    return Definition(
        name=definition.name,
        qualified_name=definition.qualified_name,
        kind=definition.kind,
        start_byte=start,
        end_byte=end,
        name_byte=to_raw(definition.name_byte),
        start_line=start_line,
        end_line=end_line,
        parent=definition.parent,
        head_byte=to_raw(definition.head_byte),
        body_byte=to_raw(definition.body_byte),
    )


@cache
def _grammar(language: str) -> _Grammar | str:
    """The grammar with its query, or the sentence that says why there is none."""
    if not language:
        return "unknown language"
    try:
        grammar = get_language(language)
        Parser(grammar)  # refuses a grammar that is newer than the binding
    except LookupError:
        return f"no grammar for {language}"
    except Exception as error:  # noqa: BLE001 - native code built for another version raises what it likes
        return f"the {language} grammar cannot be loaded: {error}"
    try:
        return _Grammar(grammar, Query(grammar, "\n".join(_patterns(grammar, language))))
    except Exception as error:  # noqa: BLE001 - as above; a QueryError when node types were renamed
        return f"the {language} grammar has changed: {error}"


def _parse_tree(language: Language, text: bytes) -> Tree | None:
    """None when it takes too long. Only a reader function can be interrupted, hence the detour for plain bytes.

    The thread's own time counts, so that a busy machine cuts files as an idle one does. The binding (0.26) never lets
    go of what the reader returned: while it parses it is handed one buffer again and again, or every text would stay
    in memory. The tree calls the same reader for predicates of queries, and then takes `bytes` only: short ones.
    """
    deadline = time.thread_time() + PARSE_TIMEOUT_SECONDS
    buffer: bytearray = _buffers.__dict__.setdefault("of_thread", bytearray())
    parsed = False

    def read(offset: int, _: object) -> bytes | bytearray:
        if parsed:
            return text[offset : offset + _PREDICATE_BYTES]
        buffer[:] = text[offset : offset + _READ_BYTES]
        return buffer

    try:
        return Parser(language).parse(read, progress_callback=lambda _, __: time.thread_time() > deadline)
    except ValueError:
        return None
    finally:
        parsed = True


def _patterns(grammar: Language, language: str) -> list[str]:
    written = TAGS.get(language)
    patterns = _written_patterns(written) if written else _generic_patterns(grammar)
    for kind in _named_kinds(grammar):
        if "comment" in kind and not kind.endswith(("_content", "_marker")) or kind in ("haddock", "marginalia"):
            patterns.append(f"({kind}) @comment")
        elif kind in _PREFIX_TYPES:
            patterns.append(f"({kind}) @prefix")
    return patterns


def _written_patterns(table: str) -> list[str]:
    patterns: list[str] = []
    for line in table.strip().splitlines():
        if line.startswith("("):
            patterns.append(line)
        elif line.startswith(" "):
            patterns[-1] += "\n" + line
        elif line:
            kind, _, types = line.partition(": ")
            patterns += [f"({node_type} name: (_) @name) @{kind}" for node_type in types.split()]
    return patterns


def _generic_patterns(grammar: Language) -> list[str]:
    """Named nodes with a field `name` whose type ends like a definition's."""
    patterns = []
    for node_type in _named_kinds(grammar):
        if not node_type.endswith(("_definition", "_declaration", "_item", "_statement", "_def", "_decl")):
            continue
        if any(word in node_type for word in ("parameter", "local", "variable", "import", "field", "call", "use_")):
            continue
        kind = next((kind for word, kind in KIND_WORDS if word in node_type), "definition")
        pattern = f"({node_type} name: (_) @name) @{kind}"
        try:
            Query(grammar, pattern)
        except QueryError:  # this node type never has a name
            continue
        patterns.append(pattern)
    return patterns


def _named_kinds(grammar: Language) -> list[str]:
    kinds = {
        grammar.node_kind_for_id(number) or ""
        for number in range(grammar.node_kind_count)
        if grammar.node_kind_is_named(number) and grammar.node_kind_is_visible(number)
    }
    return sorted(kind for kind in kinds if re.fullmatch(r"[A-Za-z]\w*", kind))


def _read_tree(tree: Tree, query: Query, text: bytes, language: str) -> Syntax:
    found: dict[int, _Found] = {}
    keywords = KEYWORD_KINDS.get(language, {})
    prefixes: list[tuple[int, int]] = []
    import_ranges: set[tuple[int, int]] = set()
    modules: list[tuple[int, str]] = []
    packages: list[tuple[int, str]] = []
    for rank, captures in QueryCursor(query).matches(tree.root_node):
        if comment := captures.get("comment"):  # a pattern of its own, and the most frequent one
            prefixes.append((comment[0].start_byte, comment[0].end_byte))
            continue
        nodes = {name: group[0] for name, group in captures.items()}
        if node := nodes.get("prefix"):
            prefixes.append((node.start_byte, node.end_byte))
        if node := nodes.get("import"):
            import_ranges.add((node.start_byte, node.end_byte))
        if "package" in captures:
            packages += [(node.start_byte, _node_text(node, text)) for node in captures["package"]]
        if "name" in nodes:
            _note_definition(found, nodes, rank, text, keywords)
        elif "module" in captures:
            modules += [(node.start_byte, _node_text(node, text)) for node in captures["module"]]
    imports = sorted(import_ranges)
    ordered = [item for item in found.values() if item.kind not in _VALUE_KINDS or not _is_import(item, imports)]
    annotation = _ANNOTATION_LINE if language in _ANNOTATION_LANGUAGES else None
    inner_marks = _INNER_DOCUMENTATION.get(language, ()) + (b"#!/",)
    outer = [pair for pair in _outermost_ranges(prefixes) if not text.startswith(inner_marks, pair[0])]
    ordered = _with_prefixes(ordered, outer, text, annotation)
    if language in CLAUSE_LANGUAGES:
        ordered = _join_clauses(ordered, text)
    definitions, kept = _nest(ordered)
    parsed = ParsedFile(
        definitions=definitions,
        imports=_module_names(modules),
        import_ranges=tuple(imports),
        package=".".join(_dotted(name) for _, name in sorted(packages) if name),
    )
    ids = {node_id: position for position, item in enumerate(kept) for node_id in item.node_ids}
    return Syntax(parsed, tree, ids, tuple(outer))


def _note_definition(
    found: dict[int, _Found], nodes: dict[str, Node], rank: int, text: bytes, keywords: Mapping[str, str]
) -> None:
    kind = next(filter(_is_kind, nodes))
    inner, name_node = nodes[kind], nodes["name"]
    name, scope, name_byte = _read_name(name_node, text)
    if not name or name_byte - inner.start_byte > _MAX_BYTES_BEFORE_NAME:
        return
    if scope_node := nodes.get("scope"):
        scope = (*_scope_of(_node_text(scope_node, text)), *scope)
    outer = _outermost(inner)
    end = max(outer.end_byte, nodes["tail"].end_byte if "tail" in nodes else 0)
    item = _Found(
        name=name,
        scope=scope,
        kind=keywords.get(_node_text(nodes["_f"], text), kind) if keywords and "_f" in nodes else kind,
        rank=rank,
        name_byte=name_byte,
        start=outer.start_byte,
        end=end,
        head=inner.start_byte,
        body=_body_start(inner, nodes, end),
        node_ids=[inner.id] if outer is inner else [inner.id, outer.id],
    )
    if text.startswith(_BATS_MARK_BYTES, name_byte):
        item.kind = "test"
    known = found.get(name_byte)
    found[name_byte] = _merged(known, item) if known else item


@cache
def _is_kind(capture: str) -> bool:
    return capture not in ("name", "scope", "body", "tail") and not capture.startswith("_")


def _merged(known: _Found, item: _Found) -> _Found:
    """Two patterns matched one name: the earlier pattern knows better what it is, the wider node where it is."""
    best, other = (known, item) if known.rank <= item.rank else (item, known)
    best.head = min(best.head, other.head) if best.head != best.start else best.head
    best.start, best.end = min(best.start, other.start), max(best.end, other.end)
    best.body = min(best.body, other.body)
    best.node_ids += other.node_ids
    return best


def _outermost(node: Node) -> Node:
    parent = node.parent
    while parent is not None and parent.type in WRAPPERS:
        node, parent = parent, parent.parent
    return node


def _body_start(inner: Node, nodes: dict[str, Node], end: int) -> int:
    body = nodes.get("body") or nodes.get("tail") or inner.child_by_field_name("body")
    if body is not None:
        return body.start_byte
    for child in reversed(inner.children):
        if child.type.endswith(("type_spec", "variable_declarator", "struct_type", "interface_type")):
            return _body_start(child, {}, end)
        if child.type == "{" or child.type.endswith(("body", "block", "_list", "Block")):
            return child.start_byte
    return end


def _node_text(node: Node, text: bytes) -> str:
    return text[node.start_byte : min(node.end_byte, node.start_byte + _MAX_NAME_BYTES)].decode("utf-8", "replace")


def _read_name(node: Node, text: bytes) -> tuple[str, tuple[str, ...], int]:
    """Name, the scope written before it, and the byte where the name itself begins."""
    written = _node_text(node, text)
    if _PLAIN_NAME.fullmatch(written):
        return written, (), node.start_byte
    written = written.removeprefix(_BATS_MARK).lstrip() if written.startswith(_BATS_MARK) else written
    if written[:1] in "\"'`":
        return " ".join(written.strip("\"'`").split()), (), node.start_byte
    plain = written
    while (shorter := _GENERICS.sub("", plain)) != plain:
        plain = shorter
    plain = re.split(r"[\s({<]", plain.strip().lstrip("*&:$"), maxsplit=1)[0] or written
    if not _DOTTED_NAME.fullmatch(plain):
        return "".join(written.split()), (), node.start_byte
    *scope, name = [part for part in _NAME_SEPARATOR.split(plain) if part] or [plain]
    position = max(0, written.rfind(name))
    return (
        name,
        tuple(part for part in scope if part not in _SILENT_SCOPES),
        node.start_byte + len(written[:position].encode()),
    )


def _scope_of(written: str) -> tuple[str, ...]:
    """`*Gen[T]` -> Gen; `String` -> String."""
    match = re.search(r"[A-Za-z_]\w*", written)
    return (match.group(),) if match else ()


def _is_import(item: _Found, imports: list[tuple[int, int]]) -> bool:
    """`const x = require("x")` names something that is defined elsewhere."""
    position = bisect_right(imports, (item.name_byte,)) - 1
    return position >= 0 and item.name_byte < imports[position][1]


def _with_prefixes(
    found: Iterable[_Found], prefixes: list[tuple[int, int]], text: bytes, annotation: re.Pattern[bytes] | None
) -> list[_Found]:
    """Start each definition at its modifiers, attributes and documentation; end it at its closing punctuation."""
    ends = [end for _, end in prefixes]
    for item in found:
        item.start = _extended_start(item.start, prefixes, ends, text)
        while annotation and (above := _annotated_from(item.start, text, annotation)) < item.start:
            item.start = _extended_start(above, prefixes, ends, text)
        while text[item.end - 1 : item.end].isspace():
            item.end -= 1
        while text[item.end : item.end + 1] in (b";", b","):
            item.end += 1
    return sorted(found, key=lambda item: (item.start, -item.end, item.name_byte))


def _outermost_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Sorted, without those inside another one."""
    outer: list[tuple[int, int]] = []
    for start, end in sorted(ranges, key=lambda pair: (pair[0], -pair[1])):
        if not outer or end > outer[-1][1]:
            outer.append((start, end))
    return outer


def _extended_start(start: int, prefixes: list[tuple[int, int]], ends: list[int], text: bytes) -> int:
    start = line_lead(text, start)
    position = bisect_right(ends, start)
    while position:
        position -= 1
        begin, end = prefixes[position]
        lead = line_lead(text, begin)
        newlines = text[begin:end].endswith(b"\n") + text.count(b"\n", end, start)
        blank_lines = 2 if text.startswith((b"/**", b"///", b"(**", b"@"), begin) else 1
        if text[end:start].strip() or newlines > blank_lines or not starts_line(text, lead):
            break
        start = lead
    return start


def _annotated_from(start: int, text: bytes, annotation: re.Pattern[bytes]) -> int:
    """Some grammars take an annotation with arguments for an expression of its own; the line above tells better."""
    line_start = text.rfind(b"\n", 0, start) + 1
    if line_start < 2 or text[line_start:start].strip():
        return start
    above = text.rfind(b"\n", 0, line_start - 1) + 1
    match = annotation.fullmatch(text, above, line_start)
    return match.start(1) if match else start


def starts_line(text: bytes, offset: int) -> bool:
    """Whether only blanks are before it on its line. Lines are looked at 400 bytes back at most."""
    line_feed = text.rfind(b"\n", max(0, offset - 400), offset)
    if line_feed >= 0 and not text[line_feed + 1 : offset].strip():
        return True
    lead = text[max(0, offset - 400) : offset]
    return not lead[max(lead.rfind(b"\n"), lead.rfind(b"\r")) + 1 :].strip() and (
        len(lead) < 400 or lead.count(b"\n") + lead.count(b"\r") > 0
    )


def line_lead(text: bytes, offset: int) -> int:
    """Where the modifiers before `offset` on its line begin (`pub fn`, `private def`), else `offset` itself."""
    line_feed = text.rfind(b"\n", max(0, offset - 80), offset)
    if line_feed >= 0 and not text[line_feed + 1 : offset].strip():
        return offset
    lead = text[max(0, offset - 80) : offset]
    lead = lead[max(lead.rfind(b"\n"), lead.rfind(b"\r")) + 1 :].lstrip()
    return offset - len(lead) if lead and _MODIFIERS.fullmatch(lead) else offset


def _join_clauses(ordered: list[_Found], text: bytes) -> list[_Found]:
    """Equations of one function that follow each other are one definition."""
    joined: list[_Found] = []
    for item in ordered:
        last = joined[-1] if joined else None
        if (
            last is not None
            and (last.name, last.kind) == (item.name, item.kind)
            and item.start >= last.end
            and text.count(b"\n", last.end, item.start) <= 2
            and not text[last.end : item.start].strip()
        ):
            last.end = item.end
            last.node_ids += item.node_ids
        else:
            joined.append(item)
    return joined


def _nest(ordered: list[_Found]) -> tuple[tuple[Definition, ...], list[_Found]]:
    """Parents by containment. Values inside functions and initialisers are local variables, not definitions."""
    definitions: list[Definition] = []
    kept: list[_Found] = []
    open_ones: list[int] = []
    for item in ordered:
        while open_ones and not _contains(definitions[open_ones[-1]], item):
            open_ones.pop()
        parent = definitions[open_ones[-1]] if open_ones else None
        if item.kind in _VALUE_KINDS and parent is not None and parent.kind in FUNCTION_KINDS | _VALUE_KINDS:
            continue
        names = (*((parent.qualified_name,) if parent else ()), *item.scope, item.name)
        definitions.append(_definition(item, names, open_ones[-1] if open_ones else -1, _kind_inside(item, parent)))
        kept.append(item)
        open_ones.append(len(definitions) - 1)
    return tuple(definitions), kept


def _contains(outer: Definition, item: _Found) -> bool:
    if (outer.start_byte, outer.end_byte) == (item.start, item.end):
        return outer.kind in CONTAINER_KINDS and outer.name_byte < item.name_byte and item.kind in FUNCTION_KINDS
    return outer.start_byte <= item.start and item.end <= outer.end_byte


def _kind_inside(item: _Found, parent: Definition | None) -> str:
    inside = parent is not None and parent.kind in CONTAINER_KINDS and parent.kind != "module"
    if item.kind == "function" and (inside or item.scope):
        return "method"
    if item.kind == "field" and parent is None:
        return "constant"
    return item.kind


def _definition(item: _Found, names: tuple[str, ...], parent: int, kind: str) -> Definition:
    head = max(item.start, item.head)
    return Definition(
        name=item.name,
        qualified_name=".".join(names),
        kind=kind,
        start_byte=item.start,
        end_byte=item.end,
        name_byte=item.name_byte,
        start_line=0,
        end_line=0,
        parent=parent,
        head_byte=head,
        body_byte=max(head, min(item.body, item.end)),
    )


def _module_names(modules: list[tuple[int, str]]) -> tuple[str, ...]:
    names = (" ".join(name.split()).removeprefix("import ").strip("\"'`<>;()") for _, name in sorted(modules))
    return tuple(dict.fromkeys(name for name in names if name))


def _dotted(package: str) -> str:
    return ".".join(part for part in _NAME_SEPARATOR.split("".join(package.split())) if part)
