from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from indexing.models import Index, LLMCall, Repository
from tests.factories import make_index, make_repo, make_repository, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def lead(client: Client) -> User:
    """Staff with every permission of this app, but no superuser; signed in as `client`."""
    lead = make_user("lead", is_staff=True)
    lead.user_permissions.set(Permission.objects.filter(content_type__app_label="indexing"))
    client.force_login(lead)
    return lead


def page(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_it_shows_state_commit_counts_and_the_last_error(staff_client: Client) -> None:
    repository = make_repository("example/web")
    make_index(repository, current=True, commit="a" * 40, files_done=12, chunks_done=345, skipped={"binary": 6})
    make_index(repository, status=Index.Status.FAILED, error="git.example did not answer within 30 s")
    html = page(staff_client, "/admin/indexing/repository/")
    for shown in ("example/web", "aaaaaaaaaa", "12", "345", "6", "Update failed", "git.example did not answer"):
        assert shown in html


def test_it_needs_as_many_queries_for_many_repositories_as_for_one(
    staff_client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(8):
        make_index(make_repository(), current=True)
    staff_client.get("/admin/indexing/repository/")
    with django_assert_num_queries(6):
        staff_client.get("/admin/indexing/repository/")


def test_it_hides_what_a_team_lead_may_not_read(client: Client, lead: User, other_user: User) -> None:
    secret = make_repository("secret/plans", visibility=Repository.Visibility.PRIVATE, owner=other_user)
    index = make_index(secret, current=True)
    index.skipped_files.create(path="secret.bin", reason="binary")
    for model in ("repository", "index", "skippedfile", "job", "llmcall", "mirror"):
        html = page(client, f"/admin/indexing/{model}/")
        assert "secret" not in html
        assert secret.mirror.url not in html
    assert client.get(f"/admin/indexing/repository/{secret.pk}/change/").status_code == 302


def test_it_changes_the_golden_flag_in_the_list_and_by_action(client: Client, lead: User) -> None:
    first, second = make_repository("example/a"), make_repository("example/b")
    client.post(
        "/admin/indexing/repository/",
        {"action": "make_golden", "_selected_action": [first.pk, second.pk]},
    )
    assert Repository.objects.filter(golden=True).count() == 2
    rows = {f"form-{n}-id": repository.pk for n, repository in enumerate([first, second])}
    counts = {"form-TOTAL_FORMS": 2, "form-INITIAL_FORMS": 2, "_save": "Save"}
    client.post("/admin/indexing/repository/", {**counts, **rows, "form-1-golden": "on"})
    assert list(Repository.objects.filter(golden=True)) == [second]


def test_it_indexes_again_on_request(client: Client, lead: User) -> None:
    repository = make_repository()
    client.post("/admin/indexing/repository/", {"action": "reindex", "_selected_action": [repository.pk]})
    assert repository.indexes.get().status == Index.Status.QUEUED


def test_it_adds_a_repository_by_path_and_requests_its_index(client: Client, lead: User, tmp_path: Path) -> None:
    repo = make_repo(tmp_path, {"a.py": "x = 1\n"}, name="shop")
    values = {"source": str(repo), "name": "", "ref": "", "visibility": "public", "golden": "on"}
    response = client.post("/admin/indexing/repository/add/", values)
    assert response.status_code == 302
    repository = Repository.objects.get()
    assert (repository.mirror.url, repository.golden) == (str(repo), True)
    assert repository.indexes.get().active


@pytest.mark.parametrize("source", ["ext::sh -c whoami", "--upload-pack=touch /tmp/x", "/etc"])
def test_it_refuses_dangerous_sources(client: Client, lead: User, source: str) -> None:
    values = {"source": source, "visibility": "public"}
    assert "errorlist" in client.post("/admin/indexing/repository/add/", values).content.decode()
    assert not Repository.objects.exists()


def test_it_takes_files_along_when_a_repository_is_deleted(staff_client: Client, data_dir: Path) -> None:
    repository = make_repository()
    make_index(repository, current=True)
    repository.index_path.mkdir(parents=True)
    staff_client.post(f"/admin/indexing/repository/{repository.pk}/delete/", {"post": "yes"})
    assert not Repository.objects.exists()
    assert not repository.index_path.exists()


def test_it_keeps_records_as_they_are(staff_client: Client) -> None:
    index = make_index(current=True)
    assert staff_client.get("/admin/indexing/index/add/").status_code == 403
    assert staff_client.post(f"/admin/indexing/index/{index.pk}/change/", {"status": "failed"}).status_code == 403
    assert staff_client.post(f"/admin/indexing/index/{index.pk}/delete/", {"post": "yes"}).status_code == 403
    assert "skipped" in page(staff_client, f"/admin/indexing/index/{index.pk}/change/").lower()


def test_it_serves_its_pages_under_the_strict_policy(staff_client: Client) -> None:
    make_index(current=True)
    response = staff_client.get("/admin/indexing/repository/")
    assert "unsafe-inline" not in response.headers["Content-Security-Policy"]
    html = response.content.decode()
    assert "style=" not in html
    assert "<script>" not in html


def test_it_shows_progress_staleness_and_cost(staff_client: Client) -> None:
    building = make_repository("example/busy", commits_behind=14)
    make_index(building, current=True, size_bytes=3 * 1024 * 1024)
    make_index(building, status="building", step="embed", chunks_done=340, chunks_known=1000, chunks_per_second=2)
    LLMCall.objects.create(purpose="describe", model="m", repository=building, cost_usd=0.42)
    make_repository("example/new")
    html = page(staff_client, "/admin/indexing/repository/").replace("\xa0", " ")
    for shown in ("34 %, embedding: 340 of 1,000 chunks, about 6 min left", "14 commits behind", "3.0 MB", "0.42"):
        assert shown in html
    assert "Choose it and Index again." in html


def test_it_verifies_index_files_and_has_damaged_ones_made_anew(staff_client: Client) -> None:
    damaged = make_repository("example/web")
    make_index(damaged, current=True)  # a row without files
    chosen = {"action": "verify_files", "_selected_action": [damaged.pk]}
    html = staff_client.post("/admin/indexing/repository/", chosen, follow=True).content.decode()
    assert "It is made anew from its mirror." in html
    assert damaged.indexes.filter(status=Index.Status.QUEUED).exists()


def test_it_is_in_the_colours_of_the_product(staff_client: Client) -> None:
    html = page(staff_client, "/admin/")
    assert "/static/css/tokens.css" in html
    assert "Codebase assistant" in html
    assert not re.search(r"<style|\sstyle=|\son\w+=", html)
