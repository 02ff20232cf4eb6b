"""Repositories in the API. `tests/assistant/test_api.py` has what holds for every operation."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import Group, User
from pytest_django import DjangoAssertNumQueries, Settings

from indexing.credentials import secret_of, token_secret
from indexing.models import AuditEvent, Index, Job, Repository, SkippedFile
from tests.assistant.api_client import ApiClient
from tests.factories import make_index, make_repo, make_repository

pytestmark = pytest.mark.django_db
SCOPES = ["read", "write"]


@pytest.fixture
def api(user: User) -> ApiClient:
    return ApiClient(user, SCOPES)


def test_it_lists_what_may_be_read_page_by_page(api: ApiClient, other_user: User) -> None:
    names = [make_repository(f"acme/web{number}").name for number in range(5)]
    make_repository("acme/secret", owner=other_user, visibility="private")
    seen, cursor = [], ""
    while True:
        page = api.get(f"/repositories?limit=2&cursor={cursor}").json()
        seen += [row["name"] for row in page["items"]]
        cursor = page["next_cursor"]
        if not cursor:
            break
    assert seen == names


def test_it_asks_the_database_the_same_number_of_questions_for_any_number_of_rows(
    api: ApiClient, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(4):
        make_index(current=True)
    api.get("/repositories")
    # Token, its use, its count in a transaction, rows, their people and groups, newest builds, builds.
    with django_assert_num_queries(10):
        api.get("/repositories")


def test_it_adds_a_repository_and_asks_for_a_build(api: ApiClient, user: User) -> None:
    made = api.post("/repositories", {"source": "https://github.com/pallets/flask", "visibility": "private"})
    assert made.status_code == 201
    repository = Repository.objects.get()
    assert (repository.owner, repository.visibility, made.json()["id"]) == (user, "private", repository.pk)
    assert made.json()["status"]["latest"]["status"] == "queued"
    again = api.post("/repositories", {"source": "https://github.com/pallets/flask"})
    assert (again.status_code, again.json()["id"]) == (200, repository.pk)
    assert Index.objects.count() == 1


@pytest.mark.parametrize(
    "body",
    [
        {"source": "ext::sh -c id"},
        {"source": "https://name:secret@github.com/a/b"},
        {"source": "/etc"},
        {"source": "https://github.com/a/b", "ref": "--upload-pack=x"},
        {"source": "https://github.com/a/b", "visibility": "everyone"},
        {},
    ],
)
def test_it_refuses_sources_as_the_form_does(api: ApiClient, body: dict[str, str]) -> None:
    refused = api.post("/repositories", body)
    assert refused.status_code == 422
    assert "secret" not in refused.content.decode()
    assert not Repository.objects.exists()


def test_it_lets_staff_add_paths_only_with_a_token_made_for_that(staff: User, tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"a.py": "x = 1\n"})
    assert ApiClient(staff, SCOPES).post("/repositories", {"source": str(repo)}).status_code == 422
    added = ApiClient(staff, [*SCOPES, "admin"]).post("/repositories", {"source": str(repo), "golden": True})
    assert (added.status_code, added.json()["golden"]) == (201, True)


def test_it_changes_and_removes_what_the_person_owns(api: ApiClient, user: User) -> None:
    mine = make_repository(owner=user)
    changed = api.patch(f"/repositories/{mine.pk}", {"visibility": "private", "golden": True})
    assert (changed.json()["visibility"], changed.json()["golden"]) == ("private", False)
    assert api.delete(f"/repositories/{mine.pk}").status_code == 204
    assert not Repository.objects.exists()


def test_it_does_not_change_what_somebody_else_owns(api: ApiClient, other_user: User) -> None:
    theirs = make_repository(owner=other_user)
    assert api.patch(f"/repositories/{theirs.pk}", {"visibility": "private"}).status_code == 404
    assert api.delete(f"/repositories/{theirs.pk}").status_code == 404
    theirs.refresh_from_db()
    assert theirs.visibility == "public"


def test_it_refuses_characters_that_not_every_database_takes(api: ApiClient, user: User) -> None:
    mine = make_repository(owner=user)
    assert api.patch(f"/repositories/{mine.pk}", {"description": "a\0b"}).status_code == 422
    assert api.post("/search", {"question": "a", "repositories": ["a\0b"]}).status_code == 422


def test_it_builds_once_however_often_it_is_asked(api: ApiClient) -> None:
    repository = make_repository()
    answers = [api.post(f"/repositories/{repository.pk}/index") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json()["id"] == answers[1].json()["id"]
    assert Job.objects.count() == 1


def test_it_tells_how_a_repository_stands_and_what_was_skipped(api: ApiClient) -> None:
    index = make_index(current=True, skipped={"binary": 1})
    SkippedFile.objects.create(index=index, path="logo.png", reason="binary")
    assert api.get(f"/repositories/{index.repository_id}/status").json()["label"] == "Up to date"
    files = api.get(f"/repositories/{index.repository_id}/skipped-files").json()["items"]
    assert files == [{"path": "logo.png", "reason": "binary", "detail": ""}]


def test_it_gives_a_repository_to_people_and_groups(api: ApiClient, user: User, other_user: User) -> None:
    mine, own, foreign = make_repository(owner=user, visibility="private"), *map(_group, ("own", "foreign"))
    user.groups.add(own)
    mine.groups.add(foreign)
    changed = api.patch(f"/repositories/{mine.pk}", {"people": ["other_user"], "groups": ["own"]}).json()
    assert changed["readers"] == {"people": ["other_user"], "groups": ["foreign", "own"]}
    assert AuditEvent.objects.get().detail == "+other_user, +own"
    assert api.patch(f"/repositories/{mine.pk}", {"groups": ["foreign"]}).status_code == 422
    assert api.patch(f"/repositories/{mine.pk}", {"people": ["nobody"]}).status_code == 422
    assert set(mine.groups.all()) == {own, foreign}
    api.patch(f"/repositories/{mine.pk}", {"people": [], "groups": []})
    assert (set(mine.members.all()), set(mine.groups.all())) == (set(), {foreign})


def _group(name: str) -> Group:
    return Group.objects.create(name=name)


def test_it_shows_readers_and_login_only_to_who_manages_a_repository(api: ApiClient, other_user: User) -> None:
    theirs = make_repository(owner=other_user)
    shown = api.get(f"/repositories/{theirs.pk}").json()
    assert (shown["may_manage"], shown["readers"], shown["login"]) == (False, None, None)


def test_it_keeps_a_login_and_gives_it_out_to_nobody(api: ApiClient, settings: Settings) -> None:
    settings.CREDENTIALS_KEYS = ["x" * 42 + "0="]
    made = api.post("/repositories", {"source": "https://github.com/a/b", "login": {"token": "only-for-tests"}})
    assert made.status_code == 201
    repository = Repository.objects.get()
    assert secret_of(repository.mirror) == token_secret("only-for-tests")
    assert made.json()["visibility"] == "private"
    assert made.json()["login"].items() >= {"kind": "token", "username": "git", "fingerprint": ""}.items()
    assert "only-for-tests" not in made.content.decode()
    wrong = api.patch(f"/repositories/{repository.pk}", {"login": {"token": "a b c only-for-tests"}})
    assert wrong.status_code == 422
    assert "only-for-tests" not in wrong.content.decode()
    assert api.patch(f"/repositories/{repository.pk}", {"login": {}}).json()["login"] is None


def test_it_previews_changes_rules_and_indexes(staff: User, tmp_path: Path) -> None:
    client = ApiClient(staff, [*SCOPES, "admin"])
    source = str(make_repo(tmp_path, {"src/app.py": "x = 1\n", "vendor/lib.py": "x = 1\n"}))
    made = client.post("/repositories", {"source": source, "index": False, "max_file_bytes": 5000}).json()
    seen = client.get(f"/repositories/{made['id']}/preview").json()
    assert (seen["files"], seen["skipped"], seen["indexed_paths"]) == (1, {"vendored": 1}, ["src/app.py"])
    assert not Index.objects.exists()
    changed = client.patch(f"/repositories/{made['id']}", {"file_rules": "!vendor/", "max_file_bytes": 0}).json()
    assert (changed["file_rules"], changed["max_file_bytes"]) == ("!vendor/", None)
    assert changed["status"]["latest"]["status"] == "queued"
    assert client.get(f"/repositories/{made['id']}/preview").json()["files"] == 2


def test_it_lists_skipped_files_after_an_update_as_well(api: ApiClient) -> None:
    repository = make_repository("acme/shop")
    whole = make_index(repository, current=True)
    SkippedFile.objects.create(index=whole, path="logo.png", reason="binary")
    make_index(repository, current=True, skips_of=whole)
    assert [row["path"] for row in api.get(f"/repositories/{repository.pk}/skipped-files").json()["items"]] == [
        "logo.png"
    ]
