from __future__ import annotations

from pathlib import Path

import pytest

from assistant.citations import Evidence, Place, mentions, place_label, place_title, verify, withheld, without_markers
from tests.factories import commit_files, git, head, make_repo


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("It signs [1] and sends [2].", (1, 2)),
        ("Both [1, 2] and [1][3].", (1, 2, 3)),
        ("源码在这里【2】，签名【1†来源】。", (2, 1)),
        ("A range [1-3].", (1, 2, 3)),
        ("- a list [3]\n- of two [1]", (3, 1)),
        ("| a |\n|---|\n| [2] |", (2,)),
        ("**bold [1]** and [2](https://example.test)", (1, 2)),
    ],
)
def test_it_finds_markers_where_markdown_shows_them(text: str, cited: tuple[int, ...]) -> None:
    assert mentions(text, {1, 2, 3}).cited == cited


@pytest.mark.parametrize(
    "text", ["`items[1]`", "```python\nx = a[1]\n```", "    x = a[1]", "\\[1\\]", "[0]", "[2024]", "[a]"]
)
def test_it_leaves_code_and_other_brackets_alone(text: str) -> None:
    found = mentions(text, {1, 2, 3})
    assert (found.cited, found.unknown) == ((), ())


def test_it_reports_numbers_that_are_not_in_the_evidence() -> None:
    found = mentions("True [1], invented [9] and [2, 7].", {1, 2})
    assert (found.cited, found.unknown) == ((1, 2), (9, 7))


def test_it_does_not_expand_huge_ranges() -> None:
    assert len(mentions("[1-999]", range(1, 1000)).cited) == 20


def test_it_removes_markers_for_another_prompt() -> None:
    assert without_markers("Signed [1] and sent【2】.") == "Signed  and sent."


def test_it_names_a_place() -> None:
    assert place_label("sessions.py", 303, 321) == "sessions.py:303–321"
    assert place_label("sessions.py", 7, 7) == "sessions.py:7"
    assert place_title("pallets/flask", "src/s.py", (3, 4), (12077, 12736)) == (
        "pallets/flask src/s.py, lines 3–4, bytes 12,077–12,736"
    )


def test_it_withholds_what_draws_on_a_hidden_passage() -> None:
    seen, hidden = Evidence(1, None, "ok", "a.py:1", ""), Evidence(2, None, "hidden", "[2]", "")
    assert not withheld([seen])
    assert withheld([seen, hidden])


def _place(repo: Path, name: str, content: bytes, passage: bytes, lines: tuple[int, int], **changes: object) -> Place:
    start = content.index(passage)
    values: dict[str, object] = {
        "mirror_path": repo / ".git",
        "commit": head(repo),
        "blob_id": git(repo, "rev-parse", f"HEAD:{name}"),
        "path": name.encode(),
        "encoding": "utf-8",
        "start_byte": start,
        "end_byte": start + len(passage),
        "start_line": lines[0],
        "end_line": lines[1],
    }
    return Place(**(values | changes))  # type: ignore[arg-type]


CONTENT = "# 日本語 🙂 é\r\ndef total():\r\n    return 1\r\n".encode()
PASSAGE = b"def total():\r\n    return 1"


def test_it_verifies_bytes_and_lines_of_multibyte_text_with_crlf(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"sums.py": CONTENT})
    assert verify([_place(repo, "sums.py", CONTENT, PASSAGE, (2, 3))]) == [True]


@pytest.mark.parametrize(
    "changes",
    [
        {"path": b"other.py"},
        {"blob_id": "0" * 40},
        {"commit": "0" * 40},
        {"commit": "main"},
        {"end_byte": len(CONTENT) + 1},
        {"start_byte": 50, "end_byte": 50},
        {"start_line": 1},
        {"mirror_path": Path("/nowhere.git")},
    ],
)
def test_it_does_not_verify_what_the_mirror_does_not_have(tmp_path: Path, changes: dict[str, object]) -> None:
    repo = make_repo(tmp_path, {"sums.py": CONTENT})
    good = _place(repo, "sums.py", CONTENT, PASSAGE, (2, 3))
    assert verify([_place(repo, "sums.py", CONTENT, PASSAGE, (2, 3), **changes), good]) == [False, True]


def test_it_verifies_against_the_cited_commit_not_the_newest(tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"sums.py": CONTENT})
    place = _place(repo, "sums.py", CONTENT, PASSAGE, (2, 3))
    commit_files(repo, {"sums.py": None, "new.py": "x = 1\n"})
    assert verify([place]) == [True]
