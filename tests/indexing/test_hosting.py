"""Links to the lines on the hosting site."""

from __future__ import annotations

import pytest

from indexing.hosting import hosting_url

COMMIT = "4f2a" * 10


@pytest.mark.parametrize(
    ("mirror_url", "expected"),
    [
        ("https://github.com/a/b", f"https://github.com/a/b/blob/{COMMIT}/src/x.py#L3-L5"),
        ("ssh://git@github.com/a/b.git", f"https://github.com/a/b/blob/{COMMIT}/src/x.py#L3-L5"),
        ("https://gitlab.com/a/b/c", f"https://gitlab.com/a/b/c/-/blob/{COMMIT}/src/x.py#L3-5"),
        ("http://gitlab.corp.example:8080/a/b", f"http://gitlab.corp.example:8080/a/b/-/blob/{COMMIT}/src/x.py#L3-5"),
        ("https://codeberg.org/a/b", f"https://codeberg.org/a/b/src/commit/{COMMIT}/src/x.py#L3-L5"),
        ("https://bitbucket.org/a/b", f"https://bitbucket.org/a/b/src/{COMMIT}/src/x.py#lines-3:5"),
        ("https://git.example/a/b", ""),
        ("https://notgithub.com.example/a/b", ""),
        ("/srv/git/shop", ""),
    ],
)
def test_it_links_to_the_lines(mirror_url: str, expected: str) -> None:
    assert hosting_url(mirror_url, COMMIT, b"src/x.py", 3, 5) == expected


def test_it_escapes_paths() -> None:
    url = hosting_url("https://github.com/a/b", COMMIT, b'a b/#1 "<x>" \xe9?.py', 1, 1)
    assert url.endswith("/a%20b/%231%20%22%3Cx%3E%22%20%E9%3F.py#L1-L1")


def test_it_asks_for_the_source_of_rendered_documents() -> None:
    assert "README.md?plain=1#L1" in hosting_url("https://github.com/a/b", COMMIT, b"README.md", 1, 2)
