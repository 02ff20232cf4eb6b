"""Source files for tests of parsing, chunking and context, made of text without a repository."""

from __future__ import annotations

from indexing.chunking import Chunk, ChunkedFile, chunk_file
from indexing.languages import is_openapi, language_of, route_of
from indexing.offsets import IDENTITY
from indexing.walking import SourceFile, source_of

BLOB_ID = "0" * 40


def make_source(path: str, content: str | bytes) -> SourceFile:
    """As the walker would hand it on."""
    raw = content.encode() if isinstance(content, str) else content
    source = source_of(path.encode(), BLOB_ID, raw)
    assert isinstance(source, SourceFile), source
    return source


def make_any_source(path: str, raw: bytes) -> SourceFile:
    """Also what the walker would not let through: whatever UTF-8 it is given."""
    language = language_of(path.encode(), raw)
    route = "openapi" if is_openapi(language, raw) else route_of(language, path.encode())
    return SourceFile(path.encode(), BLOB_ID, language, route, "utf-8", raw, raw, IDENTITY)


def chunk(path: str, content: str | bytes) -> ChunkedFile:
    return chunk_file(make_source(path, content))


def primary(chunked: ChunkedFile) -> list[Chunk]:
    return [chunk for chunk in chunked.chunks if chunk.role == "primary"]


def texts(content: str, chunked: ChunkedFile) -> list[str]:
    raw = content.encode()
    return [raw[chunk.start_byte : chunk.end_byte].decode() for chunk in primary(chunked)]


def symbols(chunked: ChunkedFile) -> list[str]:
    return [chunk.symbol for chunk in primary(chunked)]


def uncovered(raw: bytes, chunked: ChunkedFile) -> bytes:
    """The non-blank bytes that no primary chunk holds; asserts that primary chunks do not overlap."""
    left, end = b"", 0
    for item in primary(chunked):
        assert item.start_byte >= end, item
        left += raw[end : item.start_byte].strip()
        end = item.end_byte
    return left + raw[end:].strip()
