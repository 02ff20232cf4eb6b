from __future__ import annotations

from dataclasses import replace

import pytest

from search.results import Hit
from search.spans import Answer, documented, judge, place_of, summary, without_documentation
from tests.indexing.sources import make_source

PYTHON = '''class Shop:
    def open(self, at):
        """Whether the shop serves customers at this time of day."""
        return at.hour > 8

    def _hidden(self):
        """Nobody outside of this class may ask for this one."""
        return 1


def empty():
    """Documentation that is all there is of this function."""
'''
GO = """package shop

// Open tells whether the shop serves customers now.
// It knows holidays.
func Open() bool {
\treturn true
}
"""
HIT = Hit(1, "a/b", "c" * 40, b"a.py", "0" * 40, "utf-8", "python", "method", "x", 10, 50, 1, 5, 1.0)


def test_it_asks_with_the_documentation_of_public_functions_that_have_a_body() -> None:
    [function] = documented(make_source("a.py", PYTHON))
    assert (function.name, function.question) == (
        "Shop.open",
        "Whether the shop serves customers at this time of day.",
    )


@pytest.mark.parametrize(("path", "content"), [("a.py", PYTHON), ("a.go", GO)])
def test_it_takes_the_documentation_out_and_finds_the_function_again(path: str, content: str) -> None:
    source = make_source(path, content)
    [function] = documented(source)
    copy = make_source(path, without_documentation(source, [function]))
    assert b"serves customers" in source.raw
    assert b"serves customers" not in copy.raw
    place = place_of(copy, function)
    assert place is not None
    assert copy.raw[slice(*place)].decode().split("\n")[0] in ("def open(self, at):", "func Open() bool {")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_it_takes_documentation_out_of_files_in_any_encoding(encoding: str) -> None:
    source = make_source("a.go", GO.encode(encoding))
    [function] = documented(source)
    copy = make_source("a.go", without_documentation(source, [function]))
    assert "serves customers" not in copy.raw.decode(encoding)
    place = place_of(copy, function)
    assert place is not None
    assert copy.raw[slice(*place)].decode(copy.encoding).startswith("func Open() bool {")


def test_it_leaves_tests_and_other_files_out() -> None:
    assert list(documented(make_source("tests/test_a.py", PYTHON))) == []
    assert list(documented(make_source("a.md", "# A\n"))) == []


def test_it_measures_rank_and_span() -> None:
    elsewhere = replace(HIT, path=b"b.py")
    assert judge([elsewhere, HIT], b"a.py", (20, 40)) == Answer(2, 2.0)
    assert judge([elsewhere], b"a.py", (20, 40)) == Answer(0, 0.0)
    assert judge([HIT], b"a.py", (50, 60)) == Answer(0, 0.0)
    figures = summary([Answer(1, 1.0), Answer(2, 3.0), Answer(0, 0.0), Answer(1, 1.2)])
    assert figures == {"functions": 4, "in_top_10": 0.75, "first": 0.5, "median_span_ratio": 1.2}
