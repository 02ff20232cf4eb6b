"""What people type: normalised, or refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexing.errors import InvalidSource
from indexing.sources import Source, check_ref, parse_source


@pytest.mark.parametrize(
    ("text", "url", "name"),
    [
        (" https://GitHub.com:443/pallets/flask.git/ ", "https://github.com/pallets/flask", "pallets/flask"),
        ("http://git.example:8080/a/b", "http://git.example:8080/a/b", "a/b"),
        ("git@github.com:pallets/flask.git", "ssh://git@github.com/pallets/flask.git", "pallets/flask"),
        ("ssh://git@git.example:2222/a/b.git", "ssh://git@git.example:2222/a/b.git", "a/b"),
        ("alex@git.example:repos/shop", "ssh://alex@git.example/~/repos/shop", "repos/shop"),
        ("https://gitlab.com/group/team/shop", "https://gitlab.com/group/team/shop", "team/shop"),
    ],
)
def test_it_normalises_urls(text: str, url: str, name: str) -> None:
    assert parse_source(text, from_staff=False) == Source(url, "remote", name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "No repository"),
        ("ext::sh -c touch% /tmp/x", "not allowed"),
        ("fd::17/foo", "not allowed"),
        ("--upload-pack=touch /tmp/x", "looks like an option"),
        ("-oProxyCommand=touch /tmp/x", "looks like an option"),
        ("ssh://-oProxyCommand=x/y", "host name"),
        ("git@-oProxyCommand=x:y", "host name"),
        ("ssh://git@git.example/--upload-pack=x", "path"),
        ("file:///etc", "not allowed"),
        ("git://git.example/a", "not allowed"),
        ("/etc", "staff only"),
        ("https://alex:hunter2@git.example/a", "do not belong into URLs"),
        ("https://ghp_token@github.com/a/b", "do not belong into URLs"),
        ("https://git.example/a?token=x", "first \\? or #"),
        ("https://git.example/../../etc", "path"),
        ("https://git.example", "path"),
        ("http://2130706433/a", "IP address"),
        ("http://0x7f.0.0.1/a", "IP address"),
        ("http://0177.0.0.1/a", "IP address"),
        ("http://127.1/a", "IP address"),
        ("https://git.example/a%0ab", "path"),
        ("x" * 1999, "whole URL"),
        ("indexing", "whole URL"),
        ("https://git.example/a\nb", "control characters"),
        ("https://git.example:port/a", "not valid"),
        ("https://github.com/pallets/flask/tree/main", "https://github.com/pallets/flask "),
        ("pallets/flask", "whole URL"),
    ],
)
def test_it_refuses(text: str, reason: str) -> None:
    with pytest.raises(InvalidSource, match=reason) as refused:
        parse_source(text, from_staff=False)
    assert "hunter2" not in str(refused.value)


def test_it_takes_local_paths_from_staff_below_a_root(tmp_path: Path) -> None:
    (tmp_path / "shop.git").mkdir()
    assert parse_source(str(tmp_path / "shop.git"), from_staff=True) == Source(
        str(tmp_path / "shop.git"), "local", "shop"
    )


def test_it_does_not_follow_links_out_of_a_root(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    with pytest.raises(InvalidSource, match="LOCAL_REPOSITORY_ROOTS"):
        parse_source(str(tmp_path / "link"), from_staff=True)
    with pytest.raises(InvalidSource, match="LOCAL_REPOSITORY_ROOTS"):
        parse_source(f"{tmp_path}/../..", from_staff=True)


def test_it_takes_other_roots_from_the_operator(tmp_path: Path) -> None:
    assert parse_source("/usr", from_staff=True, local_roots=[Path("/")]).url == "/usr"


def test_it_says_when_a_path_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InvalidSource, match="does not exist"):
        parse_source(str(tmp_path / "nowhere"), from_staff=True)


@pytest.mark.parametrize("ref", ["", "main", "feature/a-b", "v1.0", "refs/heads/x", "4f2a" * 10])
def test_it_accepts_names_of_refs(ref: str) -> None:
    assert check_ref(f" {ref} ") == ref


@pytest.mark.parametrize(
    "ref",
    [
        "--output=x",
        "-oProxyCommand",
        "a b",
        "main~1",
        "main^{tree}",
        "a..b",
        "@{u}",
        "a:b",
        "/a",
        "a.lock",
        "a\x00",
        "@",
    ],
)
def test_it_refuses_what_cannot_be_a_ref(ref: str) -> None:
    with pytest.raises(InvalidSource):
        check_ref(ref)
