from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from indexing.tokenizing import stem, stems, term_hash, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getUserId(request)", ["getuserid", "get", "user", "id", "request"]),
        ("get_user_id", ["getuserid", "get", "user", "id"]),
        ("HTTPServer2", ["httpserver2", "http", "server", "2"]),
        ("__init__", ["init"]),
        ("user.name", ["user", "name"]),
        ("größe", ["größe"]),
        ("会话存储", ["会话", "话存", "存储"]),
        ("用session存储", ["用", "session", "存储"]),
        ("x" * 65, []),
        ("", []),
        ("->>= :: !!", []),
    ],
)
def test_it_splits_identifiers_and_keeps_them_whole(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_it_stems_and_drops_stop_words() -> None:
    assert stems(["how", "are", "sessions", "stored", "会话"]) == ["session", "store", "会话"]


def test_it_gives_the_same_hash_for_the_same_term_in_every_process() -> None:
    assert term_hash("session") == 13089018033905596452


def test_it_meets_the_same_name_in_other_spellings() -> None:
    assert terms("getUserId")[0] == terms("get_user_id")[0] == terms("GET_USER_ID")[0]


def test_it_stems_the_same_in_several_threads_at_once() -> None:
    words = [
        f"{start}{middle}ations" for start in "bcdfglmnprstvw" for middle in ("abil", "icat", "ifi", "ous", "iv", "al")
    ]
    expected = [stem.__wrapped__(word) for word in words]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: [stem.__wrapped__(word) for word in words], range(8)))
    finally:
        sys.setswitchinterval(interval)
    assert found == [expected] * 8
