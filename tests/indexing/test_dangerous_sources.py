"""Addresses and refs that would run a program or read the server's files, at every door where one can be typed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from pytest_django import Settings

from indexing.models import Mirror, Organisation, Repository
from indexing.organisations import synchronise
from tests.assistant.api_client import ApiClient
from tests.hosting_stand_in import TOKEN, StandIn, standing_in

pytestmark = pytest.mark.django_db
GOOD = "https://github.com/pallets/flask"
SOURCES = (
    "ext::sh -c touch% /tmp/x",
    "ext::sh",
    "fd::17",
    "transport-helper::x",
    "--upload-pack=touch /tmp/x",
    "-oProxyCommand=touch /tmp/x",
    "ssh://-oProxyCommand=touch/x",
    "-oProxyCommand=x@github.com:a/b",
    "git@github.com:--upload-pack=x/b",
    "file:///etc",
    "FILE:///etc/passwd",
    "git://github.com/a/b",
    "ftp://github.com/a/b",
    "https://github.com/../../etc",
    "https://github.com/a/b?x=--upload-pack",
    "https://user:token@github.com/a/b",
    "https://github.com/a/b\nmore",
    "http://169.254.169.254/latest/meta-data",
    "http://[::ffff:127.0.0.1]/a/b",
    "http://2130706433/a/b",
    "http://0x7f.1/a/b",
    "http://127.1/a/b",
)
REFS = ("--output=x", "-x", "main..dev", "main~1", "a b", "a\nb", "refs/../x", "x.lock", "@{-1}", "a:b")


@pytest.fixture(autouse=True)
def no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started for any of them."""

    def start(*arguments: object, **options: object) -> None:
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(subprocess, "Popen", start)


@pytest.mark.parametrize("source", SOURCES)
def test_it_refuses_a_dangerous_source_at_every_door(source: str, user: User, staff_client: Client) -> None:
    page = Client()
    page.force_login(user)
    assert page.post("/repositories/add/", {"source": source}).status_code == 422
    probed = page.post("/repositories/probe/", {"source": source, "access_token": "x"}).content.decode()
    assert "errors" in probed
    api = ApiClient(user, ["read", "write"])
    assert api.post("/repositories", {"source": source}).status_code == 422
    assert api.post("/repositories", {"source": source, "login": {"token": "x"}}).status_code == 422
    admin = staff_client.post("/admin/indexing/repository/add/", {"source": source, "visibility": ""})
    assert admin.status_code == 200
    assert not Mirror.objects.exists()


@pytest.mark.parametrize("source", SOURCES[:12])
def test_it_refuses_a_dangerous_source_at_the_shell(source: str) -> None:
    with pytest.raises(CommandError):
        call_command("index_repository", "--", source)
    assert not Mirror.objects.exists()


def test_it_gives_nobody_a_private_repository_by_the_path_of_its_mirror(
    tmp_path: Path, settings: Settings, staff_client: Client
) -> None:
    """The data folder may lie below a root that staff may add repositories from."""
    mirror = Path(settings.DATA_DIR) / "mirrors" / "1.git"
    mirror.mkdir(parents=True)
    (tmp_path / "link").symlink_to(mirror)
    for path in (mirror, tmp_path / "link", mirror / ".." / "1.git"):
        refused = staff_client.post("/repositories/add/", {"source": str(path)})
        assert refused.status_code == 422
        assert "own data" in refused.content.decode()
    assert not Mirror.objects.exists()


@pytest.mark.parametrize("ref", REFS)
def test_it_refuses_a_dangerous_ref_at_every_door(ref: str, user: User, staff_client: Client) -> None:
    page = Client()
    page.force_login(user)
    assert page.post("/repositories/add/", {"source": GOOD, "ref": ref}).status_code == 422
    assert ApiClient(user, ["read", "write"]).post("/repositories", {"source": GOOD, "ref": ref}).status_code == 422
    admin = staff_client.post("/admin/indexing/repository/add/", {"source": GOOD, "ref": ref, "visibility": ""})
    assert admin.status_code == 200
    assert not Repository.objects.exists()


@pytest.fixture
def gitea(settings: Settings) -> Iterator[StandIn]:
    with standing_in("gitea") as site:
        settings.HOSTING_APIS, settings.GIT_ALLOWED_HOSTS = {"gitea": (site.url, TOKEN)}, ["127.0.0.1"]
        site.add(1, "acme/web")
        yield site


@pytest.mark.parametrize(
    "source", [*SOURCES, "http://127.0.0.1:{port}/-x", "http://127.0.0.1:{port}/a?--upload-pack=x"]
)
def test_it_refuses_a_dangerous_source_in_the_list_of_a_hosting_site(source: str, gitea: StandIn) -> None:
    organisation = Organisation.objects.create(site="gitea", name="acme")
    gitea.repositories[0]["clone_url"] = source.format(port=gitea.port)
    assert len(synchronise(organisation).skipped) == 1
    assert not Mirror.objects.exists()
    gitea.repositories[0]["clone_url"] = f"http://127.0.0.1:{gitea.port}/acme/web.git"
    synchronise(organisation)
    gitea.repositories[0]["clone_url"] = source.format(port=gitea.port)
    synchronise(organisation)  # as a new address of a repository that is here
    assert Mirror.objects.get().url == f"http://127.0.0.1:{gitea.port}/acme/web"
