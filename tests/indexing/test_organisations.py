"""Imported organisations: what is chosen, and what follows when the list at the site changes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from assistant import tokens
from indexing import organisations, refreshing
from indexing.credentials import secret_of
from indexing.errors import HostingError, InvalidLogin, RateLimited
from indexing.models import AuditEvent, Credential, Index, Mirror, Organisation, Repository
from indexing.organisations import chosen, keep_in_step, synchronise
from tests.factories import make_index, make_repository, make_user
from tests.hosting_stand_in import TOKEN, StandIn, standing_in

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["github", "gitlab", "gitea"])
def site(request: pytest.FixtureRequest, settings: Settings) -> Iterator[StandIn]:
    with standing_in(request.param) as site:
        settings.HOSTING_APIS = {request.param: (site.url, TOKEN)}
        settings.GIT_ALLOWED_HOSTS = ["127.0.0.1"]
        yield site


@pytest.fixture
def gitea(settings: Settings) -> Iterator[StandIn]:
    with standing_in("gitea") as site:
        settings.HOSTING_APIS = {"gitea": (site.url, TOKEN)}
        settings.GIT_ALLOWED_HOSTS = ["127.0.0.1"]
        site.add(1, "acme/web")
        site.add(2, "acme/secret", private=True)
        yield site


@pytest.fixture
def acme(gitea: StandIn) -> Organisation:
    organisation = Organisation.objects.create(site="gitea", name="acme")
    synchronise(organisation)
    return organisation


def names() -> list[str]:
    return sorted(Repository.objects.values_list("name", flat=True))


def test_it_adds_what_matches_with_the_rights_of_the_site(site: StandIn) -> None:
    site.add(1, "acme/web-shop")
    site.add(2, "acme/web-admin", private=True)
    site.add(3, "acme/web-old", archived=True)
    site.add(4, "acme/web-test")
    site.add(5, "acme/docs")
    call_command("import_organisation", site.site, "acme", "--include", "web-*", "--exclude", "*-test")
    assert names() == ["acme/web-admin", "acme/web-shop"]
    shop, admin = (Repository.objects.get(name=f"acme/web-{name}") for name in ("shop", "admin"))
    assert (shop.visibility, shop.mirror.credential, shop.owner) == ("public", None, None)
    assert admin.visibility == "private"
    secret = secret_of(admin.mirror)
    assert secret is not None
    assert secret.text == TOKEN
    assert Credential.objects.get().sealed == ""
    assert AuditEvent.objects.get(action="organisation imported").detail == "2 added"


@pytest.mark.parametrize(
    ("include", "exclude", "with_archived", "expected"),
    [
        ("*", "", False, ["a/one", "a/b/two"]),
        ("*", "", True, ["a/one", "a/b/two", "a/old"]),
        ("ONE, tw*", "", False, ["a/one", "a/b/two"]),
        ("a/b/*", "", False, ["a/b/two"]),
        ("*", "two", False, ["a/one"]),
        ("", "", False, []),
    ],
)
def test_it_chooses_by_patterns(include: str, exclude: str, with_archived: bool, expected: list[str]) -> None:
    with standing_in("gitea") as site:
        for number, name in enumerate(("a/one", "a/b/two", "a/old")):
            site.add(number, name, archived=name == "a/old")
        listed = [organisations.hosting_api._hosted("gitea", row) for row in site.repositories]
    organisation = Organisation(include=include, exclude=exclude, with_archived=with_archived)
    assert [hosted.name for hosted in chosen(organisation, listed)] == expected


def test_it_lists_before_it_adds(gitea: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("import_organisation", "gitea", "acme", "--dry-run")
    assert capsys.readouterr().out == "acme/web\nacme/secret (private)\n2 of 2 repositories match.\n"
    assert not Repository.objects.exists()


def test_it_changes_nothing_the_second_time(acme: Organisation) -> None:
    assert str(synchronise(acme)) == "nothing to change"
    assert len(names()) == 2


def test_it_follows_a_rename_and_keeps_index_and_mirror(acme: Organisation, gitea: StandIn) -> None:
    before = Repository.objects.get(name="acme/web")
    gitea.repositories[0] |= {"full_name": "acme/shop", "clone_url": f"http://127.0.0.1:{gitea.port}/acme/shop.git"}
    assert synchronise(acme).renamed == ["acme/web -> acme/shop"]
    after = Repository.objects.get(pk=before.pk)
    assert (after.name, after.mirror.pk) == ("acme/shop", before.mirror.pk)
    assert after.mirror.url == f"http://127.0.0.1:{gitea.port}/acme/shop"


def test_it_keeps_a_name_that_a_person_gave(acme: Organisation, gitea: StandIn) -> None:
    Repository.objects.filter(name="acme/web").update(name="the shop")
    gitea.repositories[0] |= {"full_name": "acme/shop", "clone_url": f"http://127.0.0.1:{gitea.port}/acme/shop.git"}
    synchronise(acme)
    assert names() == ["acme/secret", "the shop"]


def test_it_hides_what_became_private_and_shows_nothing_more_by_itself(acme: Organisation, gitea: StandIn) -> None:
    gitea.repositories[0]["private"], gitea.repositories[1]["private"] = True, False
    assert synchronise(acme).made_private == ["acme/web"]
    assert set(Repository.objects.values_list("visibility", flat=True)) == {"private"}
    assert not Mirror.objects.filter(credential=None).exists()


def test_it_does_not_ask_archived_repositories_for_commits(acme: Organisation, gitea: StandIn) -> None:
    gitea.repositories[0]["archived"] = True
    assert synchronise(acme).archived == ["acme/web"]
    for repository in Repository.objects.all():
        make_index(repository, current=True)
    assert [repository.name for repository in refreshing.due()] == ["acme/secret"]
    gitea.repositories[0]["archived"] = False
    synchronise(acme)
    assert not Repository.objects.filter(archived=True).exists()


def test_it_removes_what_is_gone_and_keeps_what_moved_elsewhere(acme: Organisation, gitea: StandIn) -> None:
    moved = gitea.repositories[0]
    del gitea.repositories[:]
    gitea.readers["/repositories/1"] = [moved]  # still there, in another organisation
    assert synchronise(acme).removed == ["acme/secret"]
    assert names() == ["acme/web"]
    assert AuditEvent.objects.filter(action="repository removed").get().detail == "gone from acme on Gitea"


def test_it_does_not_remove_much_at_once_unless_told_to(gitea: StandIn) -> None:
    for number in range(3, 20):
        gitea.add(number, f"acme/web{number}")
    organisation = Organisation.objects.create(site="gitea", name="acme")
    synchronise(organisation)
    del gitea.repositories[10:]
    with pytest.raises(HostingError, match="lists 9 of 19 repositories no more, so nothing was removed"):
        synchronise(organisation)
    organisation.refresh_from_db()
    assert "--force" in organisation.check_error
    call_command("import_organisation", "gitea", "acme", "--force")
    assert len(names()) == 10


def test_it_decides_nothing_from_a_list_that_broke_off(acme: Organisation, gitea: StandIn) -> None:
    del gitea.repositories[:]
    gitea.answers = [(200, {"Link": f'<{gitea.url}/orgs/acme/repos?page=2>; rel="next"'}, "[]"), (500, {}, "")]
    with pytest.raises(HostingError):
        synchronise(acme)
    assert len(names()) == 2


def test_it_takes_over_what_is_there_but_nothing_that_a_person_keeps_to_themselves(gitea: StandIn) -> None:
    url = f"http://127.0.0.1:{gitea.port}/acme/web"
    mine = make_repository("my web", url=url, owner=make_user(), visibility="private")
    synchronise(Organisation.objects.create(site="gitea", name="acme"))
    assert names() == ["acme/secret", "acme/web", "my web"]
    mine.refresh_from_db()
    assert mine.organisation is None
    Organisation.objects.all().delete()
    synchronise(Organisation.objects.create(site="gitea", name="acme"))
    assert len(names()) == 3


def test_it_sends_its_token_to_no_other_host(gitea: StandIn) -> None:
    gitea.repositories[1]["clone_url"] = "http://127.0.0.1:1/acme/secret.git"
    outcome = synchronise(Organisation.objects.create(site="gitea", name="acme"))
    assert outcome.skipped == ["acme/secret: it is on another host than its API"]


def test_it_uses_the_token_that_the_settings_have_now(acme: Organisation, settings: Settings) -> None:
    mirror = Mirror.objects.get(credential__isnull=False)
    settings.HOSTING_APIS = {"gitea": (settings.HOSTING_APIS["gitea"][0], "a newer one")}
    secret = secret_of(mirror)
    assert secret is not None
    assert secret.text == "a newer one"
    settings.HOSTING_APIS = {"gitea": (settings.HOSTING_APIS["gitea"][0], "")}
    with pytest.raises(InvalidLogin, match="GITEA_TOKEN is empty"):
        secret_of(mirror)


def test_it_builds_a_few_at_a_time_and_lists_again_after_an_hour(gitea: StandIn) -> None:
    for number in range(3, 8):
        gitea.add(number, f"acme/web{number}")
    Organisation.objects.create(site="gitea", name="acme")
    keep_in_step()
    assert (len(names()), Index.objects.count()) == (7, 0)
    for _ in range(3):
        keep_in_step()
    assert Index.objects.count() == organisations.WAITING_AT_ONCE
    assert len(gitea.asked) == 4
    Organisation.objects.update(next_check_at=timezone.now() - timedelta(seconds=1))
    keep_in_step()
    assert len(gitea.asked) == 8


def test_it_waits_until_a_limit_has_passed(gitea: StandIn) -> None:
    organisation = Organisation.objects.create(site="gitea", name="acme")
    reset_at = int((timezone.now() + timedelta(minutes=30)).timestamp())
    gitea.answers = [(429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(reset_at)}, "")]
    with pytest.raises(RateLimited):
        synchronise(organisation)
    organisation.refresh_from_db()
    assert "allows no more requests until" in organisation.check_error
    assert organisation.next_check_at is not None
    assert abs(organisation.next_check_at.timestamp() - reset_at) < 5
    keep_in_step()
    assert len(gitea.asked) == 1


@pytest.mark.parametrize("name", ["github", "gitlab", "gitea"])
def test_it_maps_who_reads_at_the_site(name: str, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    with standing_in(name) as site:
        settings.HOSTING_APIS, settings.GIT_ALLOWED_HOSTS = {name: (site.url, TOKEN)}, ["127.0.0.1"]
        site.add(1, "acme/secret", private=True)
        login = "username" if name == "gitlab" else "login"
        rows = [{login: "reader", "access_level": 20}, {login: "leaver", "access_level": 30, "state": "blocked"}]
        rows += [{login: "guest", "access_level": 10}]
        wanted = rows if name == "gitlab" else rows[:1]
        site.readers["/projects/1/members/all" if name == "gitlab" else "/repos/acme/secret/collaborators"] = wanted
        site.readers["/repos/acme/secret/teams"] = [{"id": 7}]
        site.readers["/teams/7/members"] = [{"login": "team mate"}]
        people = {who: make_user(who) for who in ("reader", "leaver", "guest", "team mate", "former")}
        synchronise(Organisation.objects.create(site=name, name="acme"))
        repository = Repository.objects.get()
        bot = tokens.create_service(people["reader"], "bot", scopes=["read"], repositories=[repository])[0].user
        repository.members.add(people["former"])
        call_command("map_readers", name, "acme", "--dry-run")
        assert repository.members.contains(people["former"])
        call_command("map_readers", name, "acme")
    expected = {people["reader"], bot} | ({people["team mate"]} if name == "gitea" else set())
    assert set(repository.members.all()) == expected
    assert "acme/secret: +reader" in capsys.readouterr().out


def test_it_says_that_an_organisation_was_not_imported() -> None:
    with pytest.raises(CommandError, match="Run manage.py import_organisation first"):
        call_command("map_readers", "gitea", "acme")


def test_it_gives_private_repositories_to_the_groups_that_were_chosen(gitea: StandIn, user: User) -> None:
    organisation = Organisation.objects.create(site="gitea", name="acme")
    organisation.groups.add(Group.objects.create(name="backend"))
    synchronise(organisation)
    assert [group.name for group in Repository.objects.get(name="acme/secret").groups.all()] == ["backend"]


FORM = {"site": "gitea", "name": "acme", "include": "*", "exclude": ""}
PAGE = "/repositories/organisations/"


def test_it_shows_staff_what_matches_before_it_is_added(staff_client: Client, gitea: StandIn) -> None:
    page = staff_client.post(PAGE, FORM | {"include": "web*", "do": "look"}).content.decode()
    assert "1 of 2 repositories match" in page
    assert "<li>acme/web</li>" in page
    assert not Organisation.objects.exists()


def test_it_imports_and_lets_go_on_the_page(staff_client: Client, gitea: StandIn) -> None:
    group = Group.objects.create(name="backend")
    page = staff_client.post(PAGE, FORM | {"do": "import", "groups": [group.pk]}, follow=True).content.decode()
    assert "acme on Gitea: 2 added." in page
    assert Repository.objects.get(name="acme/secret").groups.get() == group
    assert Index.objects.count() == 2
    staff_client.post(PAGE, FORM | {"do": "import", "exclude": "secret"})
    organisation = Organisation.objects.get()
    assert (organisation.exclude, organisation.groups.count()) == ("secret", 0)
    gitea.answers = [(500, {}, "")]
    page = staff_client.post(f"{PAGE}{organisation.pk}/synchronise/", follow=True).content.decode()
    assert page.count("answered with 500") == 2
    staff_client.post(f"{PAGE}{organisation.pk}/forget/")
    assert names() == ["acme/secret", "acme/web"]
    assert AuditEvent.objects.filter(action="organisation forgotten", actor="staff").exists()


def test_it_does_not_let_a_page_wait_for_a_limit(staff_client: Client, gitea: StandIn) -> None:
    gitea.answers = [(429, {"Retry-After": "30"}, "")]
    refused = staff_client.post(PAGE, FORM | {"do": "look"})
    assert refused.status_code == 422
    assert "allows no more requests until" in refused.content.decode()


def test_it_is_for_staff_alone(user_client: Client) -> None:
    assert user_client.post(PAGE, FORM | {"do": "import"}).status_code == 404
    assert not Organisation.objects.exists()
