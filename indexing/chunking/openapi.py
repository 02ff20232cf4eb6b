"""OpenAPI and Swagger (2.0, 3.x; JSON and YAML) by endpoint: every path and method is one whole chunk.

Everything else in the document (info, schemas) is cut like configuration. `referred_texts` gives what an endpoint's
embedded text needs besides its own lines: the parameters shared by its path, the schemas, parameters and responses it
refers to (followed through local `$ref`s, each once, so cycles end) and its security schemes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from tree_sitter import Node

from indexing.chunking import config
from indexing.chunking.spans import Sizes, Span, Text
from indexing.parsing import Syntax, parse

KIND = "endpoint"
_METHODS = frozenset("get put post delete options head patch trace query".split())
_PAIRS = frozenset({"pair", "block_mapping_pair", "flow_pair"})
_MAPPINGS = frozenset({"object", "block_mapping", "flow_mapping"})
_WRAPPERS = frozenset({"document", "stream", "block_node", "flow_node"})
_REFERENCE = re.compile(rb"[\"']?\$ref[\"']?\s*:\s*[\"']?#/([^\"'\s,}\]]+)")
_CLOSERS = re.compile(rb"(?:\s*[,}\]])*")
_MAX_REFERRED = 40  # definitions per endpoint
_MAX_REFERRED_BYTES = 12_000


@dataclass(frozen=True, slots=True)
class _Endpoint:
    method: str
    path: str
    start: int  # of the path's key for its first method, else of the method's key
    operation: Node
    path_item: Node


def chunk(text: Text, syntax: Syntax, language: str, sizes: Sizes) -> list[Span]:
    """Empty when the document has no endpoints; then it is configuration."""
    assert syntax.tree is not None
    document = _Document(syntax.tree.root_node, text.data)
    endpoints = list(_endpoints(document))
    if not endpoints:
        return []
    ends = {endpoint.start: _end(endpoint, endpoints, text.data) for endpoint in endpoints}
    spans = [
        Span(*text.trim(endpoint.start, ends[endpoint.start]), KIND, f"{endpoint.method.upper()} {endpoint.path}")
        for endpoint in endpoints
    ]
    starts = config.section_starts(text, syntax.tree.root_node, language, sizes)
    return spans + _others(text, starts, sorted(ends.items()), language, sizes)


def referred_texts(data: bytes, language: str) -> dict[int, list[str]]:
    """Start of each endpoint -> the source of everything it refers to, in the order in which it is met."""
    syntax = parse(data, language)
    if syntax.tree is None:
        return {}
    document = _Document(syntax.tree.root_node, data)
    return {endpoint.start: _referred(document, endpoint) for endpoint in _endpoints(document)}


class _Document:
    """A JSON or YAML tree as nested mappings."""

    def __init__(self, root: Node, data: bytes) -> None:
        self.root, self.data = root, data
        self._entries: dict[int, dict[str, Node]] = {}

    def entries(self, node: Node | None) -> dict[str, Node]:
        """Key -> pair of the mapping at or right under `node`; nothing when it is no mapping."""
        while node is not None and node.type in _WRAPPERS:
            node = next((child for child in node.named_children if child.type in _WRAPPERS | _MAPPINGS), None)
        if node is None or node.type not in _MAPPINGS:
            return {}
        if node.id not in self._entries:
            self._entries[node.id] = {self._key(pair): pair for pair in node.named_children if pair.type in _PAIRS}
        return self._entries[node.id]

    def at(self, *keys: str) -> Node | None:
        """The pair that a path of keys leads to."""
        node, pair = self.root, None
        for key in keys:
            pair = self.entries(node).get(key)
            if pair is None:
                return None
            value = pair.child_by_field_name("value")
            if value is None:
                return None
            node = value
        return pair

    def text(self, node: Node) -> bytes:
        return self.data[node.start_byte : node.end_byte]

    def _key(self, pair: Node) -> str:
        key = pair.child_by_field_name("key")
        return self.text(key).decode("utf-8", "replace").strip().strip("\"'") if key is not None else ""


def _value(pair: Node | None) -> Node | None:
    return pair.child_by_field_name("value") if pair is not None else None


def _endpoints(document: _Document) -> Iterator[_Endpoint]:
    for section in ("paths", "webhooks"):
        for path, item in document.entries(_value(document.at(section))).items():
            start = config.with_comments(document.data, item.start_byte)
            for method, operation in document.entries(_value(item)).items():
                if method.lower() not in _METHODS:
                    continue
                begin = start if start >= 0 else config.with_comments(document.data, operation.start_byte)
                yield _Endpoint(method, path, begin, operation, item)
                start = -1


def _end(endpoint: _Endpoint, endpoints: list[_Endpoint], data: bytes) -> int:
    """Up to the next method of the path; the last method takes what is left of the path and closes with it."""
    later = [
        other.start for other in endpoints if other.path_item == endpoint.path_item and other.start > endpoint.start
    ]
    if later:
        return min(later)
    closers = _CLOSERS.match(data, endpoint.path_item.end_byte)
    return closers.end() if closers else endpoint.path_item.end_byte


def _others(
    text: Text, starts: dict[int, str], taken: list[tuple[int, int]], language: str, sizes: Sizes
) -> list[Span]:
    """Configuration sections of what lies between the endpoints."""
    spans: list[Span] = []
    begin = 0
    for first, last in [*taken, (len(text.data), len(text.data))]:
        gap = {start: symbol for start, symbol in starts.items() if begin <= start < first}
        gap.setdefault(begin, "")
        spans += config.pack(text, gap, language, sizes, end=first)
        begin = last
    return spans


def _referred(document: _Document, endpoint: _Endpoint) -> list[str]:
    shared = [
        pair
        for key, pair in document.entries(_value(endpoint.path_item)).items()
        if key == "parameters" and not endpoint.start <= pair.start_byte < endpoint.operation.start_byte
    ]
    waiting = [*shared, *_security(document, endpoint)]
    pointers = [pointer for node in (endpoint.operation, *shared) for pointer in _pointers(document, node)]
    found: list[Node] = []
    seen: set[int] = {endpoint.operation.id}
    size = 0
    while (waiting or pointers) and len(found) < _MAX_REFERRED and size < _MAX_REFERRED_BYTES:
        pair = waiting.pop(0) if waiting else document.at(*pointers.pop(0))
        if pair is None or pair.id in seen:
            continue
        seen.add(pair.id)
        found.append(pair)
        size += pair.end_byte - pair.start_byte
        pointers += _pointers(document, pair)
    return [_with_indentation(document.data, pair) for pair in found]


def _pointers(document: _Document, node: Node) -> list[tuple[str, ...]]:
    """Local references below a node, as key paths."""
    written = (match[1].decode("utf-8", "replace") for match in _REFERENCE.finditer(document.text(node)))
    return [
        tuple(unquote(key).replace("~1", "/").replace("~0", "~") for key in pointer.split("/")) for pointer in written
    ]


def _security(document: _Document, endpoint: _Endpoint) -> list[Node]:
    """The schemes that the operation names, else those that the document requires everywhere."""
    required = document.entries(_value(endpoint.operation)).get("security") or document.at("security")
    if required is None:
        return []
    schemes = document.entries(_value(document.at("components", "securitySchemes")))
    schemes = schemes or document.entries(_value(document.at("securityDefinitions")))
    named = set(re.findall(r"[\w.-]+", document.text(required).decode("utf-8", "replace")))
    return [pair for name, pair in schemes.items() if name in named]


def _with_indentation(data: bytes, pair: Node) -> str:
    line_start = data.rfind(b"\n", 0, pair.start_byte) + 1
    start = pair.start_byte if data[line_start : pair.start_byte].strip() else line_start
    return data[start : pair.end_byte].decode("utf-8", "replace")
