from __future__ import annotations

from dataclasses import replace

import pytest

from indexing import chunk_checks
from indexing.chunk_checks import CHECKS, Problem, check_file, check_rows
from indexing.chunking import Chunk, ChunkedFile, chunk_file
from indexing.context import EmbeddedTexts
from indexing.walking import SourceFile
from tests.indexing.sources import make_source

BODY = "    total = total + step(total, 'words that fill a line')\n"
FUNCTION = f"import os\n\n\n# Adds up.\ndef add(total):\n{BODY * 3}    return total\n"


def _cut(source: SourceFile, *offsets: int) -> ChunkedFile:
    """Chunks between these offsets, as a chunker without sense would make them."""
    raw = source.raw
    chunks = []
    for start, end in zip((0, *offsets), (*offsets, len(raw)), strict=True):
        stop = start + len(raw[start:end].rstrip())
        lines = (raw.count(b"\n", 0, start) + 1, raw.count(b"\n", 0, stop) + 1)
        chunks.append(Chunk("primary", "block", "", start, stop, *lines))
    return ChunkedFile(tuple(chunks), chunk_file(source).parsed)


def _problems(path: str, content: str, *before: str) -> list[Problem]:
    """Cut in front of each of these texts."""
    source = make_source(path, content)
    return check_file(source, _cut(source, *(content.index(text) for text in before)), max_chars=1500)


def _checks(path: str, content: str, *before: str) -> list[str]:
    return [problem.check for problem in _problems(path, content, *before)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "shift-jis"])
def test_it_finds_nothing_wrong_with_our_own_chunks(encoding: str) -> None:
    content = (FUNCTION + "\n\n# 日本語\nTEXT = 'テスト'\n\n\n" + f"class A:\n    '''Doc.'''\n\n{BODY * 30}") * 3
    source = make_source("a.py", content.encode(encoding))
    assert check_file(source, chunk_file(source), max_chars=1500) == []


def test_it_accepts_a_sensible_cut() -> None:
    assert _checks("a.py", FUNCTION, "# Adds") == []


def test_it_sees_documentation_in_another_chunk() -> None:
    [problem] = _problems("a.py", FUNCTION, "def add")
    assert (problem.check, problem.line, problem.detail) == ("orphaned_doc", 4, "function add")


def test_it_sees_a_parted_attribute() -> None:
    assert "orphaned_doc" in _checks("a.rs", "#[inline]\npub fn run() -> u8 {\n    1\n}\n", "pub fn")


def test_it_lets_a_comment_stand_that_a_blank_line_parts_from_the_code() -> None:
    assert _checks("a.py", "# About this file.\n\n" + FUNCTION, "import os") == []


def test_it_sees_a_closer_without_what_it_closes() -> None:
    content = "function a() {\n  return 1;\n}\n"
    assert _checks("a.js", content, "}\n") == ["detached_closer", "cut_through"]


def test_it_does_not_take_text_in_a_literal_for_a_closer() -> None:
    content = "TEXT = '''\n{\n  a\n}\n'''\n"
    assert "detached_closer" not in _checks("a.py", content, "}\n")


def test_it_sees_a_construct_that_was_cut_although_it_fits() -> None:
    content = f"def f(total):\n    if total:\n    {BODY}    else:\n    {BODY}"
    [problem] = _problems("a.py", content, "else")
    assert (problem.check, problem.line) == ("cut_through", 4)


def test_it_sees_what_is_missing_twice_too_large_or_badly_placed() -> None:
    source = make_source("a.py", FUNCTION)
    first, second = _cut(source, FUNCTION.index("# Adds")).chunks
    bad = (
        replace(first, end_byte=first.end_byte - 2, end_line=9),
        replace(second, start_byte=first.end_byte - 1),
        replace(second, start_byte=second.end_byte - 3),
    )
    found = check_file(source, ChunkedFile(bad, chunk_file(source).parsed), max_chars=150)
    assert {problem.check for problem in found} >= {"uncovered", "lines", "overlap", "ceiling"}
    assert {problem.check for problem in found} <= CHECKS.keys()


def test_it_exempts_outlines_and_endpoints_from_the_ceiling() -> None:
    source = make_source("a.py", FUNCTION)
    [chunk] = _cut(source).chunks
    whole = replace(chunk, kind="endpoint")
    chunked = ChunkedFile((whole, replace(chunk, role="outline")), chunk_file(source).parsed)
    assert check_file(source, chunked, max_chars=50) == []


def test_it_sees_a_docstring_in_another_chunk() -> None:
    content = f'def add(total):\n    """Adds up."""\n{BODY}'
    assert "orphaned_doc" in _checks("a.py", content, '"""Adds')


def test_it_sees_long_documentation_that_would_fit() -> None:
    lines = "// Words about what it does, and then some more.\n" * 20  # nearly a thousand characters
    assert "orphaned_doc" in _checks("a.go", f"package a\n\n{lines}func Add() int {{\n\treturn 1\n}}\n", "func Add")


def test_it_sees_documentation_that_the_grammar_takes_for_something_else() -> None:
    content = "namespace N\n{\n    [Marked]\n    class A { int P; }\n}\n"
    assert "orphaned_doc" in _checks("a.cs", content, "class A")


def test_it_sees_what_opens_the_next_chunk() -> None:
    content = f"def f(total):\n{BODY * 4}    for one in total:\n        first()\n{f'    {BODY}' * 20}"
    found = _problems("a.py", content, "first()")
    assert ("dangling_opener", 6) in [(problem.check, problem.line) for problem in found]


def _count(text: str) -> int:
    return len(text.split()) + 2


def test_it_finds_nothing_wrong_with_our_own_rows() -> None:
    source = make_source("A.java", f"class A {{\n  @Override\n  void f() {{\n{BODY * 20}  }}\n}}\n")
    assert list(check_rows(source, chunk_file(source), count_tokens=_count, max_tokens=40)) == []


def test_it_takes_no_comment_for_a_closer() -> None:
    assert _checks("a.ini", "[one]\na = 1\n\n; About two\n[two]\nb = 2\n", "; About") == []


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "shift-jis"])
def test_it_does_not_miss_words_that_are_masked_where_they_stand(encoding: str) -> None:
    functions = "\n\n".join(f"# パスワード {i}\ndef f{i}():\n{BODY * 20}" for i in range(3))
    content = f"{functions}\n\ndef g():\n    password = 'lètmein'\n\n\n# lètmein is no password here\n{functions}"
    if encoding == "shift-jis":
        content = content.replace("è", "テ")
    source = make_source("a.py", content.encode(encoding))
    assert list(check_rows(source, chunk_file(source), count_tokens=_count, max_tokens=40)) == []


def test_it_sees_rows_above_the_window_and_words_that_no_row_has(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_source("a.py", FUNCTION)
    chunked = chunk_file(source)
    monkeypatch.setattr(
        chunk_checks, "embedded_texts", lambda *_, **__: [EmbeddedTexts(("import os " * 20,), "")] * len(chunked.chunks)
    )
    found = list(check_rows(source, chunked, count_tokens=_count, max_tokens=20))
    assert [(problem.check, problem.line) for problem in found] == [("window", 1), ("window", 4), ("lost_words", 4)]
