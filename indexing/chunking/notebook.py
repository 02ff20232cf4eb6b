"""Jupyter notebooks by cell: a chunk is a cell with what the file holds about it, or at least its whole source.

Coordinates are those of the JSON, so a citation points at the cell in the file; `source_of_cell` gives what a person
wrote in it. A cell whose outputs make it too large is cut in front of its source. Symbols are the heading above and
the cell's number: "Training > cell 4".
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator

from tree_sitter import Node

from indexing.chunking.code import bounded
from indexing.chunking.spans import Sizes, Span, Text, tile
from indexing.parsing import Syntax

KIND = "cell"
OUTPUT_KIND = "output"
_MAX_SYMBOL = 80
_STRING = r'"(?:[^"\\]|\\.)*"'
_SOURCE = re.compile(rf'"source"\s*:\s*(\[(?:\s*{_STRING}\s*,?)*|{_STRING})', re.S)
_REST = re.compile(rf"\A(?:\s*{_STRING}\s*,?)+", re.S)
_STRINGS = re.compile(_STRING, re.S)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.M)


def chunk(text: Text, syntax: Syntax, sizes: Sizes) -> list[Span]:
    """Empty when the JSON is no notebook."""
    assert syntax.tree is not None
    starts = _starts(text, syntax.tree.root_node, sizes)
    if not starts:
        return []
    cuts = sorted(starts)
    spans: list[Span] = []
    for start, end in bounded(text, tile(text, [0, *cuts], len(text.data)), sizes):
        position = bisect_right(cuts, start)
        kind, symbol = starts[cuts[position - 1]] if position else ("section", "")
        spans.append(Span(start, end, kind, symbol))
    return spans


def _starts(text: Text, root: Node, sizes: Sizes) -> dict[int, tuple[str, str]]:
    """Where cells begin, and where the sources of too large ones do -> kind and symbol."""
    starts: dict[int, tuple[str, str]] = {}
    heading = ""
    for number, cell in enumerate(_cells(root, text.data), 1):
        written = source_of_cell(text.data[cell.start_byte : cell.end_byte].decode("utf-8", "replace"))
        if _value(cell, "cell_type", text.data) == b'"markdown"' and (found := _HEADING.search(written)):
            heading = found[1][: _MAX_SYMBOL - 20]
        symbol = f"{heading} > cell {number}" if heading else f"cell {number}"
        starts[cell.start_byte] = (KIND, symbol)
        source = _pair(cell, "source", text.data)
        if source is not None and text.chars(cell.start_byte, cell.end_byte) > sizes.max_chars:
            starts[cell.start_byte] = (OUTPUT_KIND, symbol)
            starts[source.start_byte] = (KIND, symbol)
    return starts


def _cells(root: Node, data: bytes) -> Iterator[Node]:
    document = next((child for child in root.children if child.type == "object"), None)
    cells = _pair(document, "cells", data) if document else None
    value = cells.child_by_field_name("value") if cells else None
    for child in value.children if value is not None and value.type == "array" else ():
        if child.type == "object":
            yield child


def _pair(node: Node, key: str, data: bytes) -> Node | None:
    for child in node.children:
        name = child.child_by_field_name("key")
        if name is not None and data[name.start_byte : name.end_byte] == f'"{key}"'.encode():
            return child
    return None


def _value(node: Node, key: str, data: bytes) -> bytes:
    pair = _pair(node, key, data)
    value = pair.child_by_field_name("value") if pair else None
    return data[value.start_byte : value.end_byte] if value else b""


def source_of_cell(text: str) -> str:
    """What a person wrote, from the JSON of a cell or a later part of its source; empty when there is none of it."""
    match = _SOURCE.search(text)
    part = match[1] if match else rest[0] if (rest := _REST.search(text)) else ""
    return "".join(_decoded(literal) for literal in _STRINGS.findall(part))


def _decoded(literal: str) -> str:
    try:
        return str(json.loads(literal))
    except ValueError:
        return literal
