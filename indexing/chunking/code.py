"""Structure-aware chunks of code, in the manner of cAST (Zhang et al. 2025): keep the largest syntax units that fit.

Only units that are too large are opened; their children offer places to cut, and small neighbours are merged again.
A cut is the start of a named node that begins a line, so closing punctuation stays with what it closes and the blanks
between cuts are all that no chunk holds. Documentation, decorators and modifiers lie inside the range of their
definition, where nothing is cut before its body. A function is a chunk of its own.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tree_sitter import Node

from indexing.chunking.lines import PARAGRAPH_END, split_lines
from indexing.chunking.spans import Sizes, Span, Text, tile
from indexing.parsing import CONTAINER_KINDS, FUNCTION_KINDS, Definition, ParsedFile, Syntax, line_lead, starts_line

_TINY_CHARS = 60  # a definition with a body is its own chunk from here on ...
_SMALL_CHARS = 200  # ... one without a body (a prototype, an equation) from here on; so long may a glued header be
_LEFTOVER_CHARS = 100  # less than this joins its neighbour even above the target
_STAYS_WITH_PREVIOUS = frozenset({"getter", "setter", "function_body", "pragma", "where", "heredoc_body"})
_ALTERNATIVES = frozenset(
    "else else_clause else_if_clause elseif_clause elsif catch catch_clause catch_block finally finally_clause "
    "finally_block".split()
)
_BRACKETED_VALUES = frozenset("tuple map list array dictionary set parenthesized_expression text content".split())
_PARTING_PREFIXES = frozenset({"attribute_item", "decorator", "annotation"})
_OPENING_TOKENS = frozenset({"{", "(", "["})
_CLOSED_BLOCKS = frozenset({b"}", b")", b"end"})
_CLOSED_ITEMS = frozenset({b"},", b"),", b"],", b"end,"})
_CLOSERS = (b"}", b")", b"]", b"end", b";", b",", b"</")
_DOCSTRING = re.compile(rb"\s*[rRuU]{0,2}(\"\"\"|''').*?\1", re.S)
_OPERATOR = re.compile(rb"[%+\-*/|&?:<>=^.~!]|(?:and|or)\b")
_OPENS = re.compile(rb"(?:[{(\[:]|[-=]>|\b(?:do|then|begin|in|of)|\bdo[ \t]*\|[^|\n]*\|)\Z")
_OPENER_ENDS = frozenset(b"{([:>|onf")  # last bytes of what `_OPENS` finds: most segments need no search
_MAX_OPENER_BYTES = 200  # looked at, at the end of a segment


@dataclass(frozen=True, slots=True)
class _Segment:
    """Text between two cuts. `owner` is the innermost opened definition around it, -1 for the file."""

    start: int
    end: int
    owner: int
    is_header: bool  # begins its owner
    is_real: bool  # holds a definition that deserves its own chunk


def chunk(text: Text, syntax: Syntax, sizes: Sizes) -> list[Span]:
    """Primary spans that tile the text, and an outline for every container that was opened."""
    assert syntax.tree is not None
    parsed = syntax.parsed
    cuts = _definition_cuts(text, syntax, _candidate_cuts(text, syntax, sizes), sizes)
    ranges = bounded(text, _refined(text, syntax, tile(text, [0, *cuts], len(text.data)), sizes), sizes)
    segments = _merge(text, parsed.definitions, _segments(text, parsed.definitions, ranges), sizes)
    spans = [_name(segment, parsed) for segment in segments]
    return [*spans, *_outlines(text, parsed, [span.start for span in spans])]


def _candidate_cuts(text: Text, syntax: Syntax, sizes: Sizes) -> set[int]:
    """Where the children of opened nodes begin a line."""
    opener = _Opener(text, syntax, sizes)
    cuts: set[int] = set()
    stack = [(syntax.tree.root_node, -1)] if syntax.tree else []
    while stack:
        node, body_byte = stack.pop()
        cuts.update(_child_cuts(node, text.data))
        for child in node.children:
            if child.start_byte <= body_byte < child.end_byte:  # opened for the documentation above it
                stack.append((child, body_byte if child.start_byte < body_byte else -1))
            elif opener.is_too_large(child):
                stack.append((child, opener.body_byte(child)))
    return cuts


def _child_cuts(node: Node, data: bytes) -> Iterator[int]:
    """A comment begins the unit below it, unless a blank line parts them."""
    if node.type == "token_tree":
        yield from _token_cuts(node, data)
        return
    previous: Node | None = None
    comment_end = -1
    for child in node.children:
        start, node_type = child.start_byte, child.type
        if node_type in _ALTERNATIVES and previous is not None:
            if _follows_closer(data, start, _CLOSED_BLOCKS) or starts_line(data, start):
                yield start
        elif child.is_named:
            lead = line_lead(data, start)
            begins_line = starts_line(data, lead)
            if not begins_line and previous is not None and _follows_closer(data, start, _CLOSED_ITEMS):
                yield start
            is_glued = comment_end >= 0 and data.count(b"\n", comment_end, start) <= 1
            if begins_line and not is_glued and _may_begin(child, previous, data):
                yield lead
            comment_end = _content_end(child, data) if begins_line and _is_prefix(node_type) else -1
        previous = child


def _token_cuts(node: Node, data: bytes) -> Iterator[int]:
    """Macros of Rust are mere tokens: a part begins behind a closed brace or a semicolon."""
    is_closed = True
    for child in node.children:
        if is_closed and child.type not in _OPENING_TOKENS and starts_line(data, child.start_byte):
            if not data.startswith(_CLOSERS, child.start_byte):
                yield child.start_byte
            is_closed = False
        if data[child.start_byte : child.start_byte + 1] == b"{" or child.type == ";":
            is_closed = child.type in ("token_tree", ";")
        elif child.type != ",":
            is_closed = child.type in _OPENING_TOKENS


def _follows_closer(data: bytes, offset: int, closers: frozenset[bytes]) -> bool:
    """`} else {` may be cut after its brace, `}, {` after its comma."""
    line = data[max(0, offset - 200) : offset]
    return line[line.rfind(b"\n") + 1 :].strip() in closers


def _is_prefix(node_type: str) -> bool:
    return "comment" in node_type or node_type in _PARTING_PREFIXES or node_type == "haddock"


def _content_end(node: Node, data: bytes) -> int:
    """Some grammars count the line end as part of a comment."""
    end = node.end_byte
    while end > node.start_byte and data[end - 1] in b"\r\n":
        end -= 1
    return end


def _may_begin(child: Node, previous: Node | None, data: bytes) -> bool:
    """Not a closer, not a body that opens on its own line, nothing that completes what is before it."""
    if child.type in _STAYS_WITH_PREVIOUS or data.startswith(_CLOSERS, child.start_byte):
        return False
    if data[child.start_byte : child.start_byte + 1] in (b"{", b"(", b"[") and child.type not in _BRACKETED_VALUES:
        return previous is None or not previous.is_named or previous.type == child.type
    return True


class _Opener:
    """Decides which nodes are opened."""

    def __init__(self, text: Text, syntax: Syntax, sizes: Sizes) -> None:
        self._text, self._sizes = text, sizes
        self._definitions = syntax.parsed.definitions
        self._node_definitions = syntax.node_definitions
        self._functions = sorted(d.name_byte for d in self._definitions if d.kind in FUNCTION_KINDS)

    def body_byte(self, node: Node) -> int:
        """Where the body of the definition that `node` is begins; it is opened whatever its own size."""
        position = self._node_definitions.get(node.id, -1)
        return self._definitions[position].body_byte if position >= 0 else -1

    def is_too_large(self, node: Node) -> bool:
        start, end = node.start_byte, node.end_byte
        position = self._node_definitions.get(node.id, -1)
        definition = self._definitions[position] if position >= 0 else None
        if definition is not None and start <= definition.name_byte < end:  # not a later clause of the same name
            start = min(start, definition.start_byte)
        if end - start <= self._sizes.target_chars:
            return False
        size = self._text.chars(start, end)
        if size > self._sizes.max_chars:
            return True
        if size <= self._sizes.target_chars or (definition is not None and definition.kind in FUNCTION_KINDS):
            return False
        functions = bisect_left(self._functions, end) - bisect_left(self._functions, start)
        is_value = definition is not None and definition.kind not in CONTAINER_KINDS
        return functions >= (2 if is_value else 1) and not self._is_inside_function(start)

    def _is_inside_function(self, offset: int) -> bool:
        position = bisect_right(self._definitions, offset, key=lambda definition: definition.start_byte) - 1
        while position >= 0:
            definition = self._definitions[position]
            if definition.start_byte < offset < definition.end_byte:
                return definition.kind in FUNCTION_KINDS
            position = definition.parent
        return False


def _definition_cuts(text: Text, syntax: Syntax, candidates: set[int], sizes: Sizes) -> list[int]:
    """Candidates in front of a body move to where their definition begins, documentation included."""
    cuts = sorted(candidates)
    kept = set(cuts)
    for definition in syntax.parsed.definitions:
        first = bisect_left(cuts, definition.start_byte)
        if first == len(cuts) or cuts[first] > definition.head_byte:
            continue
        kept.add(definition.start_byte)
        guard_start, guard_end = _guard(text, definition, syntax.prefixes, sizes)
        for cut in cuts[bisect_right(cuts, guard_start) : bisect_left(cuts, guard_end)]:
            kept.discard(cut)
    return sorted(kept)


def _guard(text: Text, definition: Definition, prefixes: tuple[tuple[int, int], ...], sizes: Sizes) -> tuple[int, int]:
    """Between these offsets a definition is not cut: its documentation, decorators, header and docstring.

    Where they are too large together, its name stays with the last decorator or comment, or with the end of that.
    """
    start, head = definition.start_byte, definition.head_byte
    docstring = _DOCSTRING.match(text.data, definition.body_byte, definition.end_byte)
    if docstring and text.chars(start, docstring.end()) <= sizes.max_chars:
        return start, docstring.end()
    if text.chars(start, definition.body_byte) <= sizes.max_chars:
        return start, definition.body_byte
    last = bisect_left(prefixes, (head, -1)) - 1
    last_start, last_end = prefixes[last] if last >= 0 else (start, start)
    fits = last_end <= start or text.chars(last_start, definition.name_byte) <= sizes.max_chars
    return max(start, last_start if fits else last_end - 1), definition.name_byte + 1


def _refined(text: Text, syntax: Syntax, ranges: list[tuple[int, int]], sizes: Sizes) -> list[tuple[int, int]]:
    """What is still too large is opened further, whatever it is: lines know nothing of what they part.

    Its parts are opened from where it was: `a + b + c` with a thousand terms is a thousand nodes in each other.
    """
    definitions = syntax.parsed.definitions
    fitting: list[tuple[int, int]] = []
    stack: list[tuple[int, int, list[Node]]] = [(start, end, []) for start, end in reversed(ranges)]
    while stack:
        start, end, level = stack.pop()
        parts = [(start, end)]
        if end - start > sizes.max_chars and text.chars(start, end) > sizes.max_chars:
            guards = [_guard(text, d, syntax.prefixes, sizes) for d in _definitions_in(definitions, start, end)]
            level = level or _around(syntax, start, end)
            cuts, opened = _inner_cuts(text.data, level, (start, end), guards, sizes, _part_cuts)
            if not cuts:
                cuts, opened = _inner_cuts(text.data, level, (start, end), guards, sizes, _commented_cuts)
            level = opened
            parts = tile(text, [start, *cuts], end)
        if len(parts) == 1:
            fitting.append((start, end))
        else:
            stack += ((*part, level) for part in reversed(parts))
    return fitting


def _around(syntax: Syntax, start: int, end: int) -> list[Node]:
    node = syntax.tree.root_node.descendant_for_byte_range(start, end - 1) if syntax.tree else None
    return [] if node is None else [node]


def _definitions_in(definitions: tuple[Definition, ...], start: int, end: int) -> Sequence[Definition]:
    first = bisect_left(definitions, start, key=lambda definition: definition.start_byte)
    return definitions[first : bisect_left(definitions, end, key=lambda definition: definition.start_byte)]


def _inner_cuts(
    data: bytes,
    level: list[Node],
    inside: tuple[int, int],
    guards: Sequence[tuple[int, int]],
    sizes: Sizes,
    cuts_of: Callable[[Node, bytes], Iterator[int]],
) -> tuple[list[int], list[Node]]:
    """Cuts of the outermost nodes, from `level` down, that offer any, and these nodes; no cut inside `guards`."""
    start, end = inside
    while level:
        level = [node for node in level if node.start_byte < end and node.end_byte > start]
        cuts = {cut for node in level for cut in cuts_of(node, data) if start < cut < end}
        if free := sorted(cut for cut in cuts if not any(first < cut < last for first, last in guards)):
            return free, level
        level = [
            child
            for node in level
            for child in node.children
            if min(child.end_byte, end) - max(child.start_byte, start) > sizes.target_chars
        ]
    return [], []


def _part_cuts(node: Node, data: bytes) -> Iterator[int]:
    """Where a node that is too large may be cut: at operators and decorators that begin a line as well."""
    yield from _child_cuts(node, data)
    if node.type == "token_tree":
        return
    for child in node.children[1:]:
        is_operator = not child.is_named and _OPERATOR.match(data, child.start_byte)
        if (is_operator or child.type in _PARTING_PREFIXES) and starts_line(data, child.start_byte):
            yield child.start_byte


def _commented_cuts(node: Node, data: bytes) -> Iterator[int]:
    """Between a comment and what it is about: better than through the comment."""
    for previous, child in pairwise(node.children):
        is_last = "comment" in previous.type and "comment" not in child.type
        if is_last and child.is_named and starts_line(data, child.start_byte):
            yield child.start_byte


def bounded(text: Text, ranges: list[tuple[int, int]], sizes: Sizes) -> list[tuple[int, int]]:
    """Cut by lines what is too large and has no children to cut at."""
    parts: list[tuple[int, int]] = []
    for start, end in ranges:
        if end - start > sizes.max_chars and text.chars(start, end) > sizes.max_chars:
            parts += split_lines(
                text, start, end, max_chars=sizes.max_chars, max_lines=sizes.lines, break_after=PARAGRAPH_END
            )
        else:
            parts.append((start, end))
    return parts


def _segments(text: Text, definitions: tuple[Definition, ...], ranges: Iterable[tuple[int, int]]) -> list[_Segment]:
    segments: list[_Segment] = []
    open_ones: list[int] = []
    position = 0
    for start, end in ranges:
        while position < len(definitions) and definitions[position].start_byte < start:
            open_ones.append(position)
            position += 1
        open_ones = [index for index in open_ones if definitions[index].end_byte > start]
        owner = open_ones[-1] if open_ones else -1
        is_header = is_real = False
        while position < len(definitions) and definitions[position].start_byte < end:
            definition = definitions[position]
            if definition.end_byte > end:
                if definition.start_byte == start:
                    owner, is_header = position, True
                open_ones.append(position)
            else:
                is_real = is_real or _is_real(text, definition)
            position += 1
        segments.append(_Segment(start, end, owner, is_header, is_real))
    return segments


def _is_real(text: Text, definition: Definition) -> bool:
    if definition.kind not in FUNCTION_KINDS and definition.kind not in CONTAINER_KINDS:
        return False
    has_body = definition.body_byte < definition.end_byte
    size = text.chars(definition.start_byte, definition.end_byte)
    return size > (_TINY_CHARS if has_body else _SMALL_CHARS)


def _merge(text: Text, definitions: tuple[Definition, ...], segments: list[_Segment], sizes: Sizes) -> list[_Segment]:
    """Small neighbours first up to the size that their surroundings ask for, then what is left over alone."""
    groups: list[list[_Segment]] = []
    last: _Segment | None = None  # the last group, joined
    for segment in segments:
        if last is not None and _may_merge(text, definitions, last, segment, sizes):
            groups[-1].append(segment)
            last = _joined([last, segment])
        else:
            groups.append([*_opening(text, groups, segment, sizes), segment])
            last = _joined(groups[-1])
    merged = [_joined(group) for group in groups]
    kept: list[_Segment] = []
    for segment in merged:
        if kept and _is_left_over(text, kept[-1], segment, sizes):
            kept[-1] = _joined([kept[-1], segment])
        else:
            kept.append(segment)
    return kept


def _opening(text: Text, groups: list[list[_Segment]], segment: _Segment, sizes: Sizes) -> list[_Segment]:
    """Takes from the last group what opens the unit that `segment` goes on with: `} finally {`, `switch (x) {`."""
    taken: list[_Segment] = []
    while groups and _opens(text, last := groups[-1][-1]) and not (last.is_header or segment.is_header):
        if last.owner != segment.owner or text.chars(last.start, segment.end) > sizes.max_chars:
            break
        taken.insert(0, groups[-1].pop())
        if not groups[-1]:
            groups.pop()
            break
    return taken


def _opens(text: Text, segment: _Segment) -> bool:
    if text.data[segment.end - 1] not in _OPENER_ENDS:
        return False
    return _OPENS.search(text.data[max(segment.start, segment.end - _MAX_OPENER_BYTES) : segment.end]) is not None


def _joined(group: Sequence[_Segment]) -> _Segment:
    first, last = group[0], group[-1]
    if first is last:
        return first
    return _Segment(first.start, last.end, first.owner, first.is_header, any(segment.is_real for segment in group))


def _may_merge(
    text: Text, definitions: tuple[Definition, ...], last: _Segment, segment: _Segment, sizes: Sizes
) -> bool:
    if segment.owner != last.owner or segment.is_header or last.is_real:
        return False
    size = text.chars(last.start, segment.end)
    is_short_header = last.is_header and text.chars(last.start, last.end) <= _SMALL_CHARS
    if segment.is_real or is_short_header:
        return is_short_header and size <= sizes.max_chars
    if last.owner >= 0 and definitions[last.owner].kind in FUNCTION_KINDS:
        return size <= sizes.target_chars
    return size <= sizes.max_chars and text.lines(last.start, segment.end) <= sizes.lines


def _is_left_over(text: Text, last: _Segment, segment: _Segment, sizes: Sizes) -> bool:
    if segment.owner != last.owner or segment.is_header or last.is_real or segment.is_real:
        return False
    smaller = min(text.chars(last.start, last.end), text.chars(segment.start, segment.end))
    return smaller < _LEFTOVER_CHARS and text.chars(last.start, segment.end) <= sizes.max_chars


def _name(segment: _Segment, parsed: ParsedFile) -> Span:
    """A chunk is called after the definition that fills half of it, else after the one around it."""
    start, end, definitions = segment.start, segment.end, parsed.definitions
    if segment.owner < 0 and not segment.is_real and _is_imports(start, end, parsed.import_ranges):
        return Span(start, end, "imports")
    largest = max(_outer_definitions(start, end, definitions), key=lambda d: d.end_byte - d.start_byte, default=None)
    owner = definitions[segment.owner] if segment.owner >= 0 else None
    if largest is not None and (owner is None or 2 * (largest.end_byte - largest.start_byte) >= end - start):
        return Span(start, end, largest.kind, symbol_of(largest, parsed.package))
    if owner is not None:
        is_part = segment.is_header or owner.kind in FUNCTION_KINDS
        return Span(start, end, owner.kind if is_part else "block", symbol_of(owner, parsed.package))
    return Span(start, end, "block")


def symbol_of(definition: Definition, package: str) -> str:
    return f"{package}.{definition.qualified_name}" if package else definition.qualified_name


def _outer_definitions(start: int, end: int, definitions: tuple[Definition, ...]) -> list[Definition]:
    """Definitions inside the range that are not inside another one there."""
    outer: list[Definition] = []
    position = bisect_left(definitions, start, key=lambda definition: definition.start_byte)
    reached = start
    while position < len(definitions) and definitions[position].start_byte < end:
        definition = definitions[position]
        if definition.start_byte >= reached and definition.end_byte <= end:
            outer.append(definition)
            reached = definition.end_byte
        position += 1
    return outer


def _is_imports(start: int, end: int, import_ranges: tuple[tuple[int, int], ...]) -> bool:
    inside = [(first, last) for first, last in import_ranges if start <= first and first < end]
    return 4 * sum(min(last, end) - first for first, last in inside) >= end - start


def _outlines(text: Text, parsed: ParsedFile, starts: list[int]) -> list[Span]:
    """One for each class, interface or module that is spread over several chunks; it cites the header."""
    outlines: list[Span] = []
    with_members = {definition.parent for definition in parsed.definitions}
    for position, definition in enumerate(parsed.definitions):
        if definition.kind not in CONTAINER_KINDS or position not in with_members:
            continue
        chunks = bisect_left(starts, definition.end_byte) - bisect_right(starts, definition.start_byte)
        if chunks < 1:
            continue
        start, end = text.trim(definition.start_byte, _header_end(position, parsed.definitions))
        outlines.append(Span(start, end, "outline", symbol_of(definition, parsed.package), role="outline"))
    return outlines


def _header_end(position: int, definitions: tuple[Definition, ...]) -> int:
    definition = definitions[position]
    if definition.body_byte < definition.end_byte:
        return max(definition.body_byte, definition.head_byte + 1)
    first_member = definitions[position + 1]  # the caller saw that there is one
    return max(first_member.start_byte, definition.head_byte + 1)
