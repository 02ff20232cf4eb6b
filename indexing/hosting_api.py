"""Organisation of a hosting site -> its repositories and who may read them, by the API of GitHub, GitLab or Gitea.

Goes through all pages, waits where the site asks for a short wait and gives up where it asks for a long one. The token
of the settings is sent to the API's own origin only: redirects are refused, and so are pages elsewhere.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.conf import settings

from indexing.credentials import origin_of
from indexing.errors import HostingError, RateLimited
from indexing.models import Organisation

if TYPE_CHECKING:
    import httpx

Json = dict[str, Any]  # Any: JSON
Site = Organisation.Site
TIMEOUT_SECONDS = 20
PAGE_SIZE = {Site.GITHUB: 100, Site.GITLAB: 100, Site.GITEA: 50}  # what each gives at most
MAX_PAGES = 500
MAX_WAIT_SECONDS = 60.0
WAITS = 3
UNSAID_WAIT_SECONDS = 60  # what GitHub asks for when it says that a limit was met and not for how long
REPORTER = 20  # GitLab: the lowest role that reads the code of a private project


@dataclass(frozen=True, slots=True)
class HostedRepository:
    """As the site lists it. `private` is everything that not the whole world may read."""

    hosted_id: str
    name: str
    url: str
    private: bool
    archived: bool
    description: str


def repositories_of(
    site: str, organisation: str, *, patience_seconds: float = MAX_WAIT_SECONDS
) -> list[HostedRepository]:
    """All that the token sees, forks included; waits so long for a limit to pass. Raises HostingError, RateLimited."""
    with _Api(site, patience_seconds) as api:
        return [_hosted(site, row) for row in api.first_found(_listings(site, organisation))]


def is_gone(site: str, hosted_id: str) -> bool:
    """Whether the site says that there is no such repository (any more, or for this token)."""
    path = {Site.GITHUB: "/repositories/", Site.GITLAB: "/projects/", Site.GITEA: "/repositories/"}[Site(site)]
    with _Api(site) as api:
        return api.get(path + quote(hosted_id, safe="")) is None


def readers_of(site: str, repository: HostedRepository) -> set[str]:
    """User names at the site of everyone who may read the code. Raises HostingError, RateLimited."""
    with _Api(site) as api:
        if site == Site.GITLAB:
            rows = api.pages(f"/projects/{repository.hosted_id}/members/all", needed=True)
            able = (row for row in rows if row["access_level"] >= REPORTER and row.get("state", "active") == "active")
            return {row["username"] for row in able}
        home = f"/repos/{quote(repository.name, safe='/')}"
        readers = {row["login"] for row in api.pages(f"{home}/collaborators", needed=True)}
        if site == Site.GITEA:
            for team in api.pages(f"{home}/teams"):
                readers |= {row["login"] for row in api.pages(f"/teams/{team['id']}/members")}
        return readers


def git_origin(site: str) -> str:
    """Where the site serves Git, the only place that its token goes to besides the API."""
    api = origin_of(settings.HOSTING_APIS[site][0])
    return "https://github.com" if api == "https://api.github.com" else api


def _listings(site: str, organisation: str) -> tuple[str, ...]:
    """Paths to try in this order: an organisation or group, else a person."""
    if site == Site.GITLAB:
        name = quote(organisation, safe="")
        return (f"/groups/{name}/projects?include_subgroups=true&with_shared=false", f"/users/{name}/projects")
    name = quote(organisation, safe="")
    return (f"/orgs/{name}/repos", f"/users/{name}/repos")


def _hosted(site: str, row: Json) -> HostedRepository:
    if site == Site.GITLAB:
        name, url, private = row["path_with_namespace"], row["http_url_to_repo"], row["visibility"] != "public"
    else:
        name, url = row["full_name"], row["clone_url"]
        private = row["private"] or row.get("internal", False)
    return HostedRepository(
        hosted_id=str(row["id"]),
        name=name,
        url=url,
        private=private,
        archived=bool(row.get("archived")),
        description=(row.get("description") or "")[:1000],
    )


class _Api:
    """One connection to the API of a site."""

    def __init__(self, site: str, patience_seconds: float = MAX_WAIT_SECONDS) -> None:
        self.site = Site(site)
        self.patience_seconds = patience_seconds
        self.url, self.token = settings.HOSTING_APIS[site]
        self.url = self.url.rstrip("/")
        if not self.url.startswith(("https://", "http://")):
            raise HostingError(f"{site.upper()}_API_URL is {self.url!r}; it has to be an https address.")

    def __enter__(self) -> _Api:
        import httpx

        self.client = httpx.Client(
            headers=self._headers(),
            timeout=TIMEOUT_SECONDS,
            follow_redirects=False,
            trust_env=False,
            proxy=settings.GIT_HTTP_PROXY or None,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "codebase-assistant"}
        if self.site == Site.GITHUB:
            headers |= {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}
        if self.token:
            headers |= {"Authorization": f"{'token' if self.site == Site.GITEA else 'Bearer'} {self.token}"}
        return headers

    def first_found(self, paths: tuple[str, ...]) -> Iterator[Json]:
        for path in paths:
            if (response := self._response(self._first_page(path))) is not None:
                return self._rows(response)
        raise HostingError(
            f"{self.site.label} knows no {paths[0].split('/')[2]!r} at {self.url}, or its token may not see it. Check "
            f"the name and {self.site.upper()}_TOKEN."
        )

    def pages(self, path: str, *, needed: bool = False) -> Iterator[Json]:
        """The rows of all pages. Nothing when the path does not exist, or HostingError when it is needed."""
        response = self._response(self._first_page(path))
        if response is not None:
            yield from self._rows(response)
        elif needed:
            raise HostingError(f"{self.site.label} does not show {path}. Check {self.site.upper()}_TOKEN.")

    def _first_page(self, path: str) -> str:
        limit = "limit" if self.site == Site.GITEA else "per_page"
        return f"{self.url}{path}{'&' if '?' in path else '?'}{limit}={PAGE_SIZE[self.site]}"

    def _rows(self, response: httpx.Response) -> Iterator[Json]:
        for _ in range(MAX_PAGES):
            rows = _json(response)
            if not isinstance(rows, list):
                raise HostingError(f"{self.url} did not answer with a list. Check {self.site.upper()}_API_URL.")
            yield from rows
            following = response.links.get("next", {}).get("url", "")
            if not following:
                return
            url = str(response.url.join(following))
            if origin_of(url) != origin_of(self.url):
                raise HostingError(f"{self.url} names a next page on another host, which is not followed.")
            page = self._response(url)
            if page is None:
                raise HostingError(f"{self.url} lists a page that it does not have. Retry later.")
            response = page
        raise HostingError(f"{self.url} lists more than {MAX_PAGES} pages. Import parts of the organisation.")

    def get(self, path: str) -> Any:  # Any: JSON
        response = self._response(f"{self.url}{path}")
        return None if response is None else _json(response)

    def _response(self, url: str) -> httpx.Response | None:
        """None: not found. Waits for a limit to pass if that is not long. Raises HostingError, RateLimited."""
        import httpx

        for attempt in range(WAITS + 1):
            try:
                response = self.client.get(url)
            except httpx.HTTPError as error:
                raise HostingError(f"{self.url} could not be asked: {type(error).__name__}. Retry later.") from error
            wait = _wait_seconds(response)
            if wait is None:
                return self._checked(response)
            if wait > self.patience_seconds or attempt == WAITS:
                reset_at = datetime.now(UTC) + timedelta(seconds=wait)
                raise RateLimited(
                    f"{self.site.label} allows no more requests until {reset_at:%H:%M} UTC. It is asked again then.",
                    reset_at,
                )
            time.sleep(wait)
        raise AssertionError("the loop above returns or raises")

    def _checked(self, response: httpx.Response) -> httpx.Response | None:
        status = response.status_code
        if status in (404, 410):
            return None
        if status in (401, 403):
            raise HostingError(f"{self.url} refused its token ({status}). Check {self.site.upper()}_TOKEN.")
        if 300 <= status < 400:
            raise HostingError(f"{self.url} has moved ({status}), and redirects are not followed. Check the address.")
        if status != 200:
            raise HostingError(f"{self.url} answered with {status}. Retry later.")
        return response


def _json(response: httpx.Response) -> Any:  # Any: JSON
    try:
        return response.json()
    except ValueError as error:
        raise HostingError(f"{response.url.host} did not answer with JSON. Check the address of its API.") from error


def _wait_seconds(response: httpx.Response) -> float | None:
    """How long to leave the site alone: None when this is no limit. A 403 is one only when it says so."""
    if response.status_code not in (403, 429):
        return None
    headers = response.headers
    if re.fullmatch(r"\d{1,6}", headers.get("retry-after", "")):
        return float(headers["retry-after"])
    used_up = headers.get("x-ratelimit-remaining", headers.get("ratelimit-remaining")) == "0"
    reset = headers.get("x-ratelimit-reset", headers.get("ratelimit-reset", ""))
    if used_up and re.fullmatch(r"\d{9,11}", reset):
        return max(1.0, float(reset) - time.time())
    if response.status_code == 429 or "rate limit" in response.text[:2000].lower():
        return UNSAID_WAIT_SECONDS
    return None
