from __future__ import annotations

import time

import pytest
from pytest_django import Settings

from tests.indexing.sources import chunk, symbols, texts, uncovered

RECIPE = "\techo some words of a recipe\n"


def _entries(prefix: str, separator: str = ": ", count: int = 14) -> str:
    return "".join(f"{prefix}option_{number}{separator}some value {number}\n" for number in range(count))


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        (
            "pyproject.toml",
            f"[tool.a]\n{_entries('', ' = 1 # ')}[tool.b]\n{_entries('', ' = 2 # ')}",
            ["tool.a", "tool.b"],
        ),
        ("setup.ini", f"[a]\n{_entries('', '=')}[b]\n{_entries('', '=')}", ["a", "b"]),
        ("compose.yaml", f"services:\n{_entries('  ')}volumes:\n{_entries('  ')}", ["services", "volumes"]),
        (
            "Dockerfile",
            f"FROM a AS build\n{'RUN make some thing' * 20}\nFROM b\n{'RUN make other' * 20}\n",
            ["build", "b"],
        ),
        (
            "Makefile",
            f"all: x\n{RECIPE * 9}\ntest: y\n{RECIPE * 9}",
            ["all", "test"],
        ),
        (
            "a.sql",
            f"CREATE TABLE a ({'column_of_a int, ' * 20} z int);\nCREATE TABLE b ({'column_of_b int, ' * 20} z int);\n",
            ["CREATE TABLE a", "CREATE TABLE b"],
        ),
    ],
)
def test_it_cuts_by_section(path: str, content: str, expected: list[str]) -> None:
    chunked = chunk(path, content)
    assert symbols(chunked) == expected
    assert uncovered(content.encode(), chunked) == b""


def test_it_opens_sections_that_are_too_large_and_names_them_by_key_path() -> None:
    content = "services:\n" + "".join(f"  s{number}:\n{_entries('    ')}" for number in range(4))
    assert symbols(chunk("compose.yaml", content)) == ["services.s0", "services.s1", "services.s2", "services.s3"]


def test_it_opens_json() -> None:
    content = '{\n  "a": {\n' + '    "key": "some value that is long",\n' * 9 + '    "z": 1\n  },\n  "b": [1, 2]\n}\n'
    chunked = chunk("config.json", content)
    assert symbols(chunked)[0] == "a"
    assert uncovered(content.encode(), chunked) == b""


def test_it_leaves_comments_with_the_section_below_them() -> None:
    content = f"[a]\n{_entries('', '=')}\n; about b\n[b]\n{_entries('', '=')}"
    assert texts(content, chunk("setup.ini", content))[1].startswith("; about b\n[b]")


def test_it_joins_small_sections() -> None:
    assert len(chunk("a.toml", "x = 1\ny = 2\n\n[b]\nz = 3\n").chunks) == 1


def test_it_survives_broken_and_minified_json() -> None:
    for content in ('{"a": [1, 2, ' + '{"b": 3}, ' * 900, "}}}} {", '{"a":' * 3000):
        assert uncovered(content.encode(), chunk("a.json", content)) == b""


def test_it_keeps_comments_with_the_statement_below(settings: Settings) -> None:
    settings.CHUNK_TARGET_CHARS = 20
    content = (
        "-- Users.\nCREATE TABLE users (id int);\n\n/* Newest\n   first. */\nCREATE VIEW newest AS SELECT * FROM t;\n"
    )
    assert [text.splitlines()[0] for text in texts(content, chunk("a.sql", content))] == ["-- Users.", "/* Newest"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.json", "[" * 10_000 + "1" + "]" * 10_000),
        ("b.json", '{"a":\n' * 10_000 + "1" + "}" * 10_000),
        ("a.yaml", "a: " + "[" * 10_000 + "]" * 10_000 + "\n"),
    ],
)
def test_it_opens_ten_thousand_levels_in_time_that_grows_with_them(path: str, content: str) -> None:
    started = time.thread_time()
    chunked = chunk(path, content)
    assert time.thread_time() - started < 3  # 10 s and 27 s when each node looked for its parent
    assert uncovered(content.encode(), chunked) == b""
    assert max(item.end_byte - item.start_byte for item in chunked.chunks) <= 1500


@pytest.mark.parametrize("content", ["".join(" " * level + "a:\n" for level in range(400)), "- " * 400 + "a\n"])
def test_it_cuts_blocks_by_lines_that_would_end_the_process(content: str) -> None:
    chunked = chunk("a.yaml", content)
    assert chunked.parsed.fallback == "YAML blocks nested deeper than its parser can bear"
    assert uncovered(content.encode(), chunked) == b""


def test_it_parses_blocks_that_are_merely_deep() -> None:
    assert chunk("a.yaml", "".join(" " * level + "a:\n" for level in range(200))).parsed.fallback == ""
