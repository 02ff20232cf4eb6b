"""Ignore patterns and attributes mean what Git says they mean."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from indexing.path_rules import MAX_RULES, PathRules, chosen_rules
from tests.factories import git, make_repo

PATHS = [
    "a.py",
    "a.gen.py",
    "keep.gen.py",
    "docs/a.md",
    "docs/api.md",
    "docs/deep/api.md",
    "pkg/a.gen.py",
    "pkg/keep.gen.py",
    "pkg/build/a.py",
    "pkg/sub/build/x/a.py",
    "build",
    "log[1].txt",
    "log1.txt",
    "a b.txt",
    "#x",
    "!y",
    "deep/one/two/three.c",
    "deep/three.c",
    "Deep/three.c",
    "x.min.js",
]
RULES = [
    {"": "*.gen.py\n", "pkg": "!keep.gen.py\n"},
    {"": "docs/**\n!docs/api.md\n"},
    {"": "docs/\n!docs/api.md\n"},
    {"": "build/\n"},
    {"": "build\n!pkg/sub/build\n"},
    {"": "/a.py\n/deep/**/three.c\n"},
    {"": "**/two\n*.txt\n!log?.txt\n"},
    {"": "log[[]1].txt\nlog[!a-z].*\n"},
    {"": "\\#x\n\\!y\n# comment\n\na\\ b.txt   \n"},
    {"": "*\n!*/\n!*.md\n", "docs": "api.md\n"},
    {"": "deep/*/\n", "deep": "!one\nthree.c\n"},
    {"": "*.[[:alpha:]]*.js\n[\n", "pkg": "/*\n!/build/\n"},
    {"": "**/\n!**/api.md\n"},
    {"": "d*/t*e.?\n**/deep/**\n"},
]


@pytest.mark.parametrize("files", RULES)
def test_it_ignores_what_git_ignores(files: dict[str, str], tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {})
    rules = PathRules()
    for folder, content in files.items():
        (repo / folder).mkdir(exist_ok=True)
        (repo / folder / ".gitignore").write_text(content)
        rules.add_file(f"{folder}/.assistantignore".lstrip("/").encode(), content.encode())
    listed = git(
        repo, "-c", "core.quotePath=false", "check-ignore", "--no-index", "-z", "--stdin", stdin=_joined(PATHS)
    )
    assert [path for path in PATHS if rules.is_ignored(path.encode())] == listed.split("\0")[:-1]


def _joined(paths: list[str]) -> bytes:
    return "".join(f"{path}\0" for path in paths).encode()


def test_it_tells_brought_back_from_not_mentioned() -> None:
    rules = PathRules()
    rules.add_file(b".assistantignore", b"!vendor/ours/\n")
    assert rules.is_ignored(b"vendor/ours/a.py") is False
    assert rules.is_ignored(b"vendor/theirs/a.py") is None


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("*.js linguist-vendored", b"src/a.js", True),
        ("*.js linguist-vendored=false", b"src/a.js", False),
        ("*.js text -linguist-vendored", b"src/a.js", False),
        ("*.js !linguist-vendored", b"src/a.js", None),
        ("lib/** linguist-vendored=true", b"lib/x/a.js", True),
        ("lib linguist-vendored", b"lib/a.js", None),
        ("*.js linguist-generated", b"src/a.js", None),
        ('"a b.js" linguist-vendored', b"a b.js", True),
    ],
)
def test_it_reads_linguist_attributes(line: str, path: bytes, value: bool | None) -> None:
    rules = PathRules()
    rules.add_file(b".gitattributes", line.encode())
    assert rules.attribute(path, "linguist-vendored") is value


def test_it_lets_later_and_deeper_attributes_win() -> None:
    rules = PathRules()
    rules.add_file(b".gitattributes", b"*.js linguist-vendored\nb.js -linguist-vendored\n")
    rules.add_file(b"src/.gitattributes", b"c.js linguist-vendored=false\n")
    values = [rules.attribute(path, "linguist-vendored") for path in (b"src/a.js", b"src/b.js", b"src/c.js")]
    assert values == [True, False, False]


def test_it_is_quick_on_hostile_patterns() -> None:
    rules = PathRules()
    rules.add_file(
        b".assistantignore", b"*a" * 200 + b"*b\n" + b"**/a/" * 90 + b"b\n" + b"[a-\n" + b"*?" * 200 + b"b\n"
    )
    started = time.process_time()
    assert rules.is_ignored(b"a" * 4000) is None
    assert rules.is_ignored(b"a/" * 500 + b"a") is None
    assert time.process_time() - started < 1


def test_it_counts_the_rules_it_does_not_use() -> None:
    rules = PathRules()
    rules.add_file(b".assistantignore", b"*.log\n" * (MAX_RULES + 5))
    assert rules.dropped == 5


def test_it_prefers_the_settings_of_the_repository() -> None:
    rules = PathRules(chosen=chosen_rules("docs/**\n!a.gen.py\n"))
    rules.add_file(b".assistantignore", b"*.gen.py\n!docs/api.md\nother.py\n")
    verdicts = [rules.is_ignored(path) for path in (b"a.gen.py", b"docs/api.md", b"b.gen.py", b"other.py", b"x.py")]
    assert verdicts == [False, True, True, True, None]


def test_it_knows_where_submodules_come_from_without_their_login() -> None:
    rules = PathRules()
    rules.add_file(
        b".gitmodules",
        b'[submodule "lib"]\n\tpath = vendor/lib\n\turl = https://me:q8Zt3LmX@example.org/lib.git\n'
        b'[submodule "odd"]\n\tpath = odd\n',
    )
    assert rules.submodules == {b"vendor/lib": "https://example.org/lib.git"}
