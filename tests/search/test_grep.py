"""Exact search reads what Git tracks, shows only what is indexed, and betrays no secret."""

from __future__ import annotations

import pytest

from indexing.access import Principal
from indexing.index_format import Segment
from indexing.models import Repository
from search import grep
from search.grep import Pattern, read_pattern
from search.index_cache import opened
from search.pipeline import search
from search.results import Scope
from tests.factories import make_user
from tests.search.conftest import Indexed

OPERATOR = Principal.operator()
TOKEN = "ghp_" + "a8Kq2Zr7Lw5Xc9Vb3Nm1Qe6Ty4Ui0Op2As5D"
FILES: dict[str, str | bytes] = {
    "shop/orders.py": "def cancel(n):\n    # refund: 100 %\n    x = 1\n    return 'no such order'\n",
    "tests/test_orders.py": "def test_it():\n    assert 'no such order'\n",
    "caf.py": b"# caf\xe9 no such order\nprint(1)\n",
    ".env": "PASSWORD=no such order\n",
    "deploy.py": f"token = '{TOKEN}'\nregion = 'no such order'\n",
}


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ('"no such order"', Pattern("no such order")),
        (' "x = 1" ', Pattern("x = 1")),
        (r"/def \w+\(/", Pattern(r"def \w+\(", regex=True)),
        ("/todo/i", Pattern("todo", regex=True, ignore_case=True)),
        ('"a" and "b"', None),
        ('""', None),
        ('"  "', None),
        ("/", None),
        ("//", None),
        ("how does /api/users work", None),
        ('"' + "a" * 600 + '"', None),
        ('"a\nb"', None),
    ],
)
def test_it_takes_only_a_whole_question_for_a_pattern(text: str, pattern: Pattern | None) -> None:
    assert read_pattern(text) == pattern


def places(question: str, **options: object) -> list[tuple[str, int, int]]:
    result = search(question, principal=OPERATOR, **options)  # type: ignore[arg-type]
    return [(hit.display_path, hit.start_line, hit.end_line) for hit in result.hits if "lines" in hit.legs]


def test_it_finds_lines_own_code_first(indexed: Indexed) -> None:
    indexed("acme/shop", FILES)
    assert places('"no such order"') == [
        ("caf.py", 1, 1),
        ("deploy.py", 2, 2),
        ("shop/orders.py", 4, 4),
        ("tests/test_orders.py", 2, 2),
    ]
    assert places('"no such order"', scope=Scope(path_filter="shop")) == [("shop/orders.py", 4, 4)]
    assert places('"nothing of this kind"') == []


def test_it_selects_the_bytes_of_the_lines(indexed: Indexed) -> None:
    indexed("acme/shop", FILES)
    (hit,) = search(r"/refund: \d+ %|x = [0-9]/", principal=OPERATOR).hits
    assert str(FILES["shop/orders.py"]).encode()[hit.start_byte : hit.end_byte] == b"    # refund: 100 %\n    x = 1"
    assert (hit.symbol, hit.start_line, hit.end_line, hit.legs) == ("cancel", 2, 3, {"lines": 2.0})


def test_it_ranks_by_meaning_when_no_line_has_the_phrase(indexed: Indexed) -> None:
    indexed("acme/shop", FILES)
    result = search('"cancel some order"', principal=OPERATOR)
    assert {hit.display_path for hit in result.hits} >= {"shop/orders.py"}
    assert "No line with" in result.trace.notices[0]
    assert search("/cancel some order/", principal=OPERATOR).hits == ()


def test_it_takes_any_characters_as_they_are(indexed: Indexed) -> None:
    phrases = ["->", "\\n", "  x", "{{}}", "'; --", "é💥"]
    indexed("acme/shop", {"a.py": "# first\n" + "".join(f"x = '{phrase}'\n" for phrase in phrases)})
    assert [places(f'"{phrase}"') for phrase in phrases] == [[("a.py", line, line)] for line in range(2, 8)]


@pytest.mark.parametrize(
    ("expression", "lines"),
    [
        (r"/[\d.]+\.3/", [1]),
        (r"/v[\w]+ \d/", [1]),
        (r"/[^\s]+Error\(/", [2]),
        (r"/(?:Value|Key)Error/", [2]),
        (r"/\treturn/", [3]),
        (r"/\/static\//", [4]),
        (r"/x[\]\[]/", [5]),
        (r"/[\^\-]y/", [6]),
        (r"/a[^\n]*z$/", [7]),
        (r"/b\\d/", [8]),
        ("/ЗАКАЗ/i", [9]),
        ("/^# na.ve$/", [10]),
    ],
)
def test_expressions_are_read_as_people_write_them(indexed: Indexed, expression: str, lines: list[int]) -> None:
    texts = ["version 1.2.3", "raise ValueError(1)", "\treturn 1", "'a/static/b'", "x[0]", "2^y", "a to z", "b\\d"]
    indexed("acme/shop", {"a.txt": "".join(f"{text}\n" for text in [*texts, "# заказ", "# naïve"])})
    assert [(first, last) for _, first, last in places(expression)] == [(line, line) for line in lines]


def test_it_is_quick_in_a_long_file(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = indexed("acme/shop", {"a.py": "".join(f"def f{n}():\n    return {n}\n\n" for n in range(500))})
    read: list[int] = []
    chunk = Segment.chunk
    monkeypatch.setattr(Segment, "chunk", lambda segment, row: read.append(row) or chunk(segment, row))
    found = search('"return"', principal=OPERATOR, limit=1000).hits
    assert sum(hit.legs["lines"] for hit in found) == 500
    assert len(read) <= 3 * sum(segment.info.chunks for segment in opened(shop.index_path).segments)


@pytest.mark.parametrize("question", ['"no such order"', "/no such order/"])
@pytest.mark.parametrize("folder", ["\0", "a\0b", "../..", ":!shop", "*", "sho", "--output=x", "/etc"])
def test_a_folder_that_is_not_there_gives_nothing(indexed: Indexed, question: str, folder: str) -> None:
    indexed("acme/shop", FILES)
    result = search(question, principal=OPERATOR, scope=Scope(path_filter=folder))
    assert result.hits == ()
    assert not any("could not search" in notice or "so these" in notice for notice in result.trace.notices)


def test_files_of_other_languages_use_up_no_places(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed("acme/shop", {**{f"m{number}.py": "x = 'refund'\n" for number in range(5)}, "z.md": "# A refund\n"})
    monkeypatch.setattr(grep, "MAX_FILES", 2)
    assert places('"refund"', scope=Scope(languages=("markdown",))) == [("z.md", 1, 1)]


def test_it_takes_no_quoted_phrase_for_an_option_or_an_expression(indexed: Indexed) -> None:
    indexed("acme/shop", {"a.py": "run('--open-files-in-pager=x')\n"})
    assert places('"--open-files-in-pager=x"') == [("a.py", 1, 1)]
    assert places('"r.n"') == []


@pytest.mark.parametrize("pattern", ["/ghp_a8/", "/token = 'g/", f'"{TOKEN}"', "/PASSWORD=/"])
def test_it_cannot_be_used_to_guess_secrets(indexed: Indexed, pattern: str) -> None:
    indexed("acme/shop", FILES)
    assert places(pattern) == []


def test_it_says_what_is_wrong_with_an_expression(indexed: Indexed) -> None:
    indexed("acme/shop", FILES)
    result = search("/a(b/", principal=OPERATOR)
    assert result.hits == ()
    assert any("could not search for /a(b/" in notice for notice in result.trace.notices)


def test_it_says_when_there_is_more(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed("acme/shop", {f"m{number}.py": f"value = {number}\n" for number in range(5)})
    monkeypatch.setattr(grep, "MAX_FILES", 2)
    result = search('"value = "', principal=OPERATOR)
    assert len(result.hits) == 2
    assert any("first 2 files" in notice for notice in result.trace.notices)
    monkeypatch.setattr(grep, "MAX_SECONDS", -1.0)
    assert any("Time was up" in notice for notice in search('"value = "', principal=OPERATOR).trace.notices)


def test_it_reads_nothing_that_the_person_may_not_read(indexed: Indexed) -> None:
    indexed("acme/secret", FILES, visibility=Repository.Visibility.PRIVATE, owner=make_user())
    result = search('"no such order"', principal=Principal.of_user(make_user()))
    assert (result.hits, result.trace.repositories, result.trace.readable_repositories) == ((), (), 0)
