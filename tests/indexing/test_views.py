"""The repositories page: who sees and may do what, and what each state looks like."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from indexing.models import AuditEvent, Index, Job, Mirror, Repository, SkippedFile
from indexing.previewing import fetch_mirror
from tests.factories import make_index, make_repo, make_repository

LIST = "/repositories/"


@pytest.fixture
def private(user: User) -> Repository:
    repository = make_repository("acme/secret", visibility=Repository.Visibility.PRIVATE, owner=user)
    make_index(repository, current=True)
    return repository


def test_it_adds_a_local_repository_of_staff_and_queues_its_build(staff_client: Client, tmp_path: Path) -> None:
    work_tree = make_repo(tmp_path, {"a.py": "x = 1\n"})
    response = staff_client.post(f"{LIST}add/", {"source": str(work_tree), "visibility": "private", "golden": "on"})
    repository = Repository.objects.get()
    assert response.url == f"{LIST}#repository-{repository.pk}"
    assert (repository.visibility, repository.golden) == ("private", True)
    assert repository.indexes.get().status == Index.Status.QUEUED


@pytest.mark.parametrize("source", ["ext::sh -c id", "--upload-pack=id", "file:///etc", "-oProxyCommand=id", ""])
def test_it_refuses_a_dangerous_source_and_keeps_what_was_typed(user_client: Client, source: str) -> None:
    response = user_client.post(f"{LIST}add/", {"source": source, "visibility": "public"})
    assert response.status_code == 422
    assert 'class="errors"' in response.content.decode()
    assert not Repository.objects.exists()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/a/b", "http://[::1]/a/b", "http://169.254.169.254/latest/meta"])
def test_it_refuses_an_internal_address_before_there_is_a_row(user_client: Client, url: str) -> None:
    response = user_client.post(f"{LIST}add/", {"source": url, "visibility": "public"})
    assert response.status_code == 422
    assert "is an internal address" in response.content.decode()
    assert not Mirror.objects.exists()


def test_it_refuses_a_local_path_from_someone_who_is_not_staff(user_client: Client, tmp_path: Path) -> None:
    response = user_client.post(f"{LIST}add/", {"source": str(make_repo(tmp_path, {})), "visibility": "public"})
    assert response.status_code == 422
    assert not Mirror.objects.exists()


def test_it_reuses_a_repository_that_is_there_already(user_client: Client) -> None:
    make_repository("pallets/flask", url="https://github.com/pallets/flask")
    user_client.post(f"{LIST}add/", {"source": "https://github.com/pallets/flask", "visibility": "public"})
    assert Repository.objects.count() == 1


def test_it_does_not_let_everyone_choose_golden_repositories(user_client: Client) -> None:
    data = {"source": "https://github.com/pallets/flask", "visibility": "public", "golden": "on"}
    user_client.post(f"{LIST}add/", data)
    assert Repository.objects.get().golden is False


def test_it_hides_a_private_repository_from_others(other_client: Client, private: Repository) -> None:
    page = other_client.get(LIST).content.decode()
    assert "acme/secret" not in page
    assert "All 0" in page
    for action in ("row", "skipped"):
        assert other_client.get(f"{LIST}{private.pk}/{action}/").status_code == 404
    for action in ("update", "stop", "golden", "delete"):
        assert other_client.post(f"{LIST}{private.pk}/{action}/").status_code == 404
    assert Repository.objects.filter(pk=private.pk).exists()


@pytest.mark.parametrize("action", ["stop", "delete", "golden"])
def test_it_lets_only_owner_and_staff_change_a_public_repository(other_client: Client, action: str) -> None:
    repository = make_repository("pallets/flask")
    assert other_client.post(f"{LIST}{repository.pk}/{action}/", {"golden": "1"}).status_code == 404
    repository.refresh_from_db()
    assert repository.golden is False


def test_it_updates_a_repository_once_however_often_it_is_asked(user_client: Client) -> None:
    repository = make_repository()
    for _ in range(2):
        user_client.post(f"{LIST}{repository.pk}/update/")
    assert repository.indexes.count() == 1


def test_it_asks_an_active_build_to_stop(user_client: Client, private: Repository) -> None:
    job = Job.objects.create(index=make_index(private, status=Index.Status.BUILDING), state=Job.State.RUNNING)
    user_client.post(f"{LIST}{private.pk}/stop/")
    job.refresh_from_db()
    assert job.cancel_requested


def test_it_removes_a_repository_with_its_files(user_client: Client, private: Repository) -> None:
    for folder in (private.index_path, private.mirror.path):
        folder.mkdir(parents=True)
    user_client.post(f"{LIST}{private.pk}/delete/")
    assert not Repository.objects.exists()
    assert not private.index_path.exists()
    assert not Mirror.objects.exists()


def test_it_polls_a_row_only_while_its_build_is_active(user_client: Client) -> None:
    index = make_index(status=Index.Status.BUILDING, files_done=90, files_known=236, chunks_done=5, chunks_known=10)
    url = f"{LIST}{index.repository_id}/row/"
    row = user_client.get(url, headers={"HX-Request": "true"}).content.decode()
    assert 'hx-trigger="every 2s"' in row
    assert "90 of 236" in row
    assert 'aria-valuenow="38"' in row
    Index.objects.update(status=Index.Status.READY)
    assert "hx-trigger" not in user_client.get(url, headers={"HX-Request": "true"}).content.decode()


def test_it_says_what_failed_and_that_the_last_good_index_still_answers(user_client: Client) -> None:
    repository = make_repository()
    make_index(repository, current=True)
    make_index(repository, status=Index.Status.FAILED, error="github.com did not answer within 30 s.")
    page = user_client.get(LIST).content.decode()
    assert "github.com did not answer within 30 s." in page
    assert "Searches still use the index from" in page
    assert ">Retry</button>" in page


def test_it_lists_skipped_files_with_reasons(user_client: Client) -> None:
    index = make_index(current=True, skipped={"binary": 6, "too_large": 1}, files_known=207)
    index.skipped_files.create(path="logo.png", reason="binary")
    assert "7 of 207 files were skipped" in user_client.get(LIST).content.decode()
    page = user_client.get(f"{LIST}{index.repository_id}/skipped/").content.decode()
    assert "logo.png" in page
    assert "Binary file" in page


def test_it_filters_by_name_and_state(user_client: Client) -> None:
    make_repository("pallets/flask", golden=True)
    make_repository("spf13/cobra")
    names = [row["status"].repository.name for row in user_client.get(f"{LIST}?show=golden").context["rows"]]
    assert names == ["pallets/flask"]
    names = [row["status"].repository.name for row in user_client.get(f"{LIST}?q=COBRA").context["rows"]]
    assert names == ["spf13/cobra"]


def test_it_escapes_what_a_repository_is_called(user_client: Client) -> None:
    make_repository("<script>alert(1)</script>")
    assert "<script>alert" not in user_client.get(LIST).content.decode()


def test_it_needs_as_many_queries_for_many_repositories_as_for_one(
    user_client: Client, django_assert_num_queries: Any
) -> None:
    for _ in range(5):
        make_index(make_repository(), current=True)
    with django_assert_num_queries(9):  # session, user, list (3), sidebar: conversations, repositories (3)
        user_client.get(LIST)


def test_it_shows_sums_of_the_server_to_staff_only(staff_client: Client, user_client: Client) -> None:
    assert "This server" in staff_client.get(LIST).content.decode()
    assert "This server" not in user_client.get(LIST).content.decode()


@pytest.fixture
def shop(tmp_path: Path, user: User) -> Repository:
    """Its mirror is fetched; it is not indexed."""
    repo = make_repo(tmp_path, {"src/app.py": "x = 1\n", "vendor/lib.py": "x = 1\n"}, name="shop")
    repository = make_repository("acme/shop", url=str(repo), owner=user)
    fetch_mirror(repository)
    return repository


def _text(response: HttpResponse) -> str:
    return " ".join(response.content.decode().split())


def test_it_shows_what_would_be_indexed_before_it_is(user_client: Client, shop: Repository) -> None:
    text = _text(user_client.get(f"{LIST}{shop.pk}/files/"))
    assert "1 file would be indexed" in text
    assert "vendor/lib.py" in text
    assert "In vendor/" not in text
    assert "in vendor/" in text
    assert not Index.objects.exists()


def test_it_previews_rules_before_it_saves_them(user_client: Client, shop: Repository) -> None:
    text = _text(user_client.post(f"{LIST}{shop.pk}/files/", {"rules": "!vendor/", "preview": "1"}))
    assert "2 files would be indexed" in text
    shop.refresh_from_db()
    assert (shop.file_rules, Index.objects.count()) == ("", 0)


def test_it_saves_rules_and_indexes(user_client: Client, shop: Repository) -> None:
    sent = {"rules": "!vendor/\r\ndocs/**\r\n", "max_megabytes": "0.5", "save": "1"}
    response = user_client.post(f"{LIST}{shop.pk}/files/", sent)
    shop.refresh_from_db()
    assert response.status_code == 302
    assert (shop.file_rules, shop.max_file_bytes) == ("!vendor/\ndocs/**", 500_000)
    assert shop.indexes.get().status == Index.Status.QUEUED
    assert AuditEvent.objects.get().detail == "file rules, largest file"


def test_it_refuses_a_size_that_would_fill_the_memory(user_client: Client, shop: Repository) -> None:
    response = user_client.post(f"{LIST}{shop.pk}/files/", {"rules": "", "max_megabytes": "900", "save": "1"})
    assert response.status_code == 422
    assert "would fill the memory" in response.content.decode()


def test_it_adds_a_repository_without_indexing_when_its_files_are_to_be_chosen(
    staff_client: Client, tmp_path: Path
) -> None:
    source = str(make_repo(tmp_path, {"a.py": "x = 1\n"}))
    response = staff_client.post(f"{LIST}add/", {"source": source, "look": "1"})
    repository = Repository.objects.get()
    assert response.url == f"{LIST}{repository.pk}/files/"
    assert "Fetch and show the files" in staff_client.get(response.url).content.decode()
    text = _text(staff_client.post(response.url, {"fetch": "1"}))
    assert "1 file would be indexed" in text
    assert not Index.objects.exists()


def test_it_lists_skipped_files_by_reason(user_client: Client, private: Repository) -> None:
    index = private.current_index
    assert index is not None
    index.skipped = {"binary": 1, "submodule": 1}
    index.save()
    SkippedFile.objects.create(index=index, path="logo.png", reason="binary", detail=".png file")
    SkippedFile.objects.create(index=index, path="lib", reason="submodule", detail="not indexed; add it")
    everything = user_client.get(f"{LIST}{private.pk}/skipped/").content.decode()
    assert "Binary file 1" in everything
    some = user_client.get(f"{LIST}{private.pk}/skipped/?reason=submodule").content.decode()
    assert "not indexed; add it" in some
    assert "logo.png" not in some
