"""Lists of hosting sites: all pages, limits, errors, and where the token goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings

from indexing import hosting_api
from indexing.errors import HostingError, RateLimited
from tests.hosting_stand_in import AUTHORIZATION, TOKEN, StandIn, standing_in

SITES = ("github", "gitlab", "gitea")


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, settings: Settings) -> Iterator[StandIn]:
    with standing_in(request.param) as site:
        settings.HOSTING_APIS = {request.param: (site.url, TOKEN)}
        for number in range(1, 6):
            site.add(number, f"acme/web{number}", private=number == 2, archived=number == 3)
        yield site


@pytest.fixture
def github(settings: Settings) -> Iterator[StandIn]:
    with standing_in("github") as site:
        settings.HOSTING_APIS = {"github": (site.url, TOKEN)}
        site.add(1, "acme/web1")
        yield site


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(time, "sleep", waits.append)
    return waits


def test_it_lists_all_pages(site: StandIn) -> None:
    listed = hosting_api.repositories_of(site.site, "acme")
    assert [row.name for row in listed] == [f"acme/web{number}" for number in range(1, 6)]
    assert [row.hosted_id for row in listed] == ["1", "2", "3", "4", "5"]
    assert [row.name for row in listed if row.private] == ["acme/web2"]
    assert [row.name for row in listed if row.archived] == ["acme/web3"]
    assert listed[0].url == f"http://127.0.0.1:{site.port}/acme/web1.git"
    assert len(site.asked) == 3
    assert {authorization for _, authorization in site.asked} == {AUTHORIZATION[site.site]}


def test_it_lists_the_repositories_of_a_person(site: StandIn) -> None:
    site.person = True
    assert len(hosting_api.repositories_of(site.site, "acme")) == 5


def test_it_says_that_there_is_no_such_organisation(site: StandIn) -> None:
    with pytest.raises(HostingError, match=f"Check the name and {site.site.upper()}_TOKEN"):
        hosting_api.repositories_of(site.site, "nobody")


def test_it_knows_what_is_gone(site: StandIn) -> None:
    assert [hosting_api.is_gone(site.site, number) for number in ("1", "99")] == [False, True]


def test_it_asks_gitlab_for_subgroups_by_an_encoded_path(settings: Settings) -> None:
    with standing_in("gitlab", organisation="acme/backend") as site:
        settings.HOSTING_APIS = {"gitlab": (site.url, TOKEN)}
        site.add(1, "acme/backend/shop/cart")
        (listed,) = hosting_api.repositories_of("gitlab", "acme/backend")
        assert listed.name == "acme/backend/shop/cart"
        assert site.asked[0][0].startswith("/api/v4/groups/acme%2Fbackend/projects?include_subgroups=true")


def in_seconds(seconds: int) -> str:
    return str(int((datetime.now(UTC) + timedelta(seconds=seconds)).timestamp()))


@pytest.mark.parametrize(
    ("status", "headers", "body", "seconds"),
    [
        (429, {"Retry-After": "7"}, "", 7),
        (403, {"Retry-After": "7"}, "", 7),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "in 30 s"}, "", 30),
        (429, {"RateLimit-Remaining": "0", "RateLimit-Reset": "in 30 s"}, "", 30),
        (403, {}, '{"message": "You have exceeded a secondary rate limit."}', 60),
        (429, {}, "", 60),
    ],
)
def test_it_waits_as_long_as_the_site_asks(
    github: StandIn, waits: list[float], status: int, headers: dict[str, str], body: str, seconds: int
) -> None:
    headers = {name: in_seconds(30) if value == "in 30 s" else value for name, value in headers.items()}
    github.answers = [(status, headers, body)]
    assert len(hosting_api.repositories_of("github", "acme")) == 1
    assert [round(wait / 10) for wait in waits] == [round(seconds / 10)]


def test_it_gives_up_when_it_would_wait_long_and_says_until_when(github: StandIn, waits: list[float]) -> None:
    github.answers = [(403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": in_seconds(1800)}, "")]
    with pytest.raises(RateLimited, match="GitHub allows no more requests until") as limited:
        hosting_api.repositories_of("github", "acme")
    assert timedelta(minutes=29) < limited.value.reset_at - datetime.now(UTC) < timedelta(minutes=31)
    assert waits == []


def test_it_gives_up_when_waiting_does_not_help(github: StandIn, waits: list[float]) -> None:
    github.answers = [(429, {"Retry-After": "1"}, "")] * 10
    with pytest.raises(RateLimited):
        hosting_api.repositories_of("github", "acme")
    assert waits == [1.0] * hosting_api.WAITS


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((401, {}, "{}"), "refused its token \\(401\\). Check GITHUB_TOKEN"),
        ((403, {}, '{"message": "Resource protected by organization SAML"}'), "refused its token \\(403\\)"),
        ((301, {"Location": "http://evil.example/"}, ""), "redirects are not followed"),
        ((500, {}, ""), "answered with 500. Retry later"),
        ((200, {}, "<html>"), "did not answer with JSON"),
        ((200, {}, "{}"), "did not answer with a list"),
        ((200, {"Link": '<http://evil.example/?page=2>; rel="next"'}, "[]"), "on another host"),
        ((200, {"Link": '<http://127.0.0.1:1/?page=2>; rel="next"'}, "[]"), "on another host"),
    ],
)
def test_it_says_what_went_wrong_and_never_the_token(
    github: StandIn, answer: tuple[int, dict[str, str], str], sentence: str
) -> None:
    github.answers = [answer]
    with pytest.raises(HostingError, match=sentence) as error:
        hosting_api.repositories_of("github", "acme")
    assert TOKEN not in str(error.value)


def test_it_says_that_nobody_answers(settings: Settings) -> None:
    settings.HOSTING_APIS = {"gitea": ("http://127.0.0.1:9/api/v1", TOKEN)}
    with pytest.raises(HostingError, match="could not be asked: ConnectError"):
        hosting_api.repositories_of("gitea", "acme")
    settings.HOSTING_APIS = {"gitea": ("ftp://127.0.0.1", TOKEN)}
    with pytest.raises(HostingError, match="GITEA_API_URL is"):
        hosting_api.repositories_of("gitea", "acme")


def test_it_knows_where_a_site_serves_git(settings: Settings) -> None:
    settings.HOSTING_APIS = {
        "github": ("https://api.github.com", ""),
        "gitlab": ("https://git.example:8443/api/v4", ""),
        "gitea": ("https://gitea.example/api/v1", ""),
    }
    origins = [hosting_api.git_origin(site) for site in SITES]
    assert origins == ["https://github.com", "https://git.example:8443", "https://gitea.example"]
