"""Configuration and data by section: top-level keys, tables, stages, targets, statements.

The syntax tree says where sections begin; what is too large is opened like code. A section's symbol is its key path
("services.web", "tool.ruff", "CREATE TABLE users"). Small neighbours join.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from tree_sitter import Node

from indexing.chunking.code import bounded
from indexing.chunking.spans import Sizes, Span, Text, tile
from indexing.parsing import Syntax

SMALL_CHARS = 200  # a section below this joins its neighbours
_ENTRIES = frozenset(
    "pair block_mapping_pair flow_pair table table_array_element section property statement rule variable_assignment "
    "define_directive conditional".split()
)
_TRANSPARENT = frozenset(
    "document stream block_node flow_node block_mapping flow_mapping object array block_sequence program makefile "
    "source_file block_sequence_item".split()
)
_KINDS = {"sql": "statement", "make": "target", "dockerfile": "stage"}
_STAGE = re.compile(r"FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", re.I)
_COMMENT_MARKS = (b"#", b";", b"//", b"--")
_MAX_SYMBOL = 80


def chunk(text: Text, syntax: Syntax, language: str, sizes: Sizes) -> list[Span]:
    assert syntax.tree is not None
    return pack(text, section_starts(text, syntax.tree.root_node, language, sizes), language, sizes)


def pack(text: Text, starts: dict[int, str], language: str, sizes: Sizes, *, end: int | None = None) -> list[Span]:
    """Spans from section starts (offset -> symbol) to `end`, the end of the text by default."""
    cuts = sorted(starts)
    kind = _KINDS.get(language, "section")
    spans: list[Span] = []
    begin = 0 if end is None else cuts[0]
    for start, stop in bounded(text, tile(text, [begin, *cuts], len(text.data) if end is None else end), sizes):
        position = bisect_right(cuts, start)
        symbol = starts[cuts[position - 1]] if position else ""
        if spans and _may_merge(text, spans[-1], start, stop, symbol, sizes):
            spans[-1] = _joined(text, spans[-1], start, stop, symbol)
        else:
            spans.append(Span(start, stop, kind, symbol))
    return spans


def section_starts(text: Text, root: Node, language: str, sizes: Sizes) -> dict[int, str]:
    """Start of each section, comments above it included -> its symbol."""
    starts: dict[int, str] = {}
    stack: list[tuple[Node, str]] = [(root, "")]
    root_is_top = root.parent is None
    while stack:
        node, path = stack.pop()
        is_top = root_is_top and node is root
        comment: Node | None = None
        for child in node.children:
            if not child.is_named or _is_comment(child):
                comment = child if child.is_named else comment
                continue
            is_item = child.type == "block_sequence_item" or node.type == "array"
            is_section = _begins_section(child, language, is_item=is_item, is_top=is_top)
            symbol = _symbol(child, path, text, is_item=is_item) if is_section else path
            if is_section and _begins_line(text.data, child.start_byte):
                starts.setdefault(_with_block_comment(text.data, child.start_byte, comment), symbol)
            if child.type in _TRANSPARENT or text.chars(child.start_byte, child.end_byte) > sizes.max_chars:
                stack.append((child, symbol))
    return starts


def _is_comment(node: Node) -> bool:
    return "comment" in node.type or node.type == "marginalia"


def _with_block_comment(data: bytes, start: int, comment: Node | None) -> int:
    """Where a comment of several lines directly above begins, else where comment lines do."""
    start = with_comments(data, start)
    if comment is None or comment.end_byte > start or not _begins_line(data, comment.start_byte):
        return start
    between = data[comment.end_byte : start]
    return start if between.strip() or between.count(b"\n") > 1 else with_comments(data, comment.start_byte)


def with_comments(data: bytes, start: int) -> int:
    """Where the comment lines directly above begin; trees often count them to the section before."""
    line_start = data.rfind(b"\n", 0, start) + 1
    if data[line_start:start].strip(b" \t-"):
        return start
    while line_start > 0:
        above = data.rfind(b"\n", 0, line_start - 1) + 1
        line = data[above:line_start].strip()
        if not line.startswith(_COMMENT_MARKS):
            break
        start = above + data[above:line_start].index(line[:1])
        line_start = above
    return start


def _begins_section(node: Node, language: str, *, is_item: bool, is_top: bool) -> bool:
    """Told what is above the node, because a node finds its parent by a walk from the root: 10,000 levels took 27 s."""
    if language == "dockerfile" and is_top:
        return node.type == "from_instruction"
    return node.type in _ENTRIES or is_item or (is_top and node.type not in _TRANSPARENT)


def _begins_line(data: bytes, start: int) -> bool:
    lead = data[max(0, start - 200) : start]
    return not lead[lead.rfind(b"\n") + 1 :].strip(b" \t-")


def _symbol(node: Node, path: str, text: Text, *, is_item: bool) -> str:
    """The key path, or the first line of a statement."""
    key = node.child_by_field_name("key") or node.child_by_field_name("name")
    if key is None and node.type in ("pair", "table", "table_array_element", "section", "rule", "property"):
        key = next((child for child in node.children if child.is_named), None)
    written = node if key is None else key
    line = text.data[written.start_byte : min(written.end_byte, written.start_byte + 400)].split(b"\n", 1)[0]
    label = " ".join(line.decode("utf-8", "replace").split())
    if stage := _STAGE.match(label):
        label = stage[2] or stage[1]
    if key is None and is_item:
        return path
    label = label.strip("\"'[]: ") if key is not None else label.partition("(")[0].rstrip(" {;")
    return f"{path}.{label}"[:_MAX_SYMBOL] if path else label[:_MAX_SYMBOL]


def _may_merge(text: Text, last: Span, start: int, end: int, symbol: str, sizes: Sizes) -> bool:
    size = text.chars(last.start, end)
    if size > min(2 * sizes.target_chars, sizes.max_chars) or text.lines(last.start, end) > sizes.lines:
        return False
    return symbol == last.symbol or min(text.chars(last.start, last.end), text.chars(start, end)) < SMALL_CHARS


def _joined(text: Text, last: Span, start: int, end: int, symbol: str) -> Span:
    """Called after its largest section."""
    is_larger = text.chars(start, end) > text.chars(last.start, last.end)
    return Span(last.start, end, last.kind, symbol if is_larger else last.symbol)
