"""Webhooks: who is believed, what starts a build, and what a delivery that comes again does."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from indexing.models import Index, Job, Repository, WebhookDelivery
from tests.factories import make_repository

pytestmark = pytest.mark.django_db

PUSH = {"ref": "refs/heads/main", "after": "a" * 40}


@pytest.fixture
def repository() -> Repository:
    return make_repository("acme/shop", webhook_secret="s3cret", ref="main")


def _signature(body: bytes, secret: str = "s3cret") -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _github(repository_id: int, payload: Any = PUSH, *, secret: str = "s3cret", **headers: str) -> HttpResponse:
    body = json.dumps(payload).encode()
    sent = {
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": "d1",
        "X-Hub-Signature-256": f"sha256={_signature(body, secret)}",
    }
    url = f"/webhooks/{repository_id}/"
    return Client(enforce_csrf_checks=True).post(url, body, "application/json", headers=sent | headers)


def _gitlab(repository_id: int, token: str, payload: Any = PUSH, **headers: str) -> HttpResponse:
    sent = {"X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": token, "X-Gitlab-Event-UUID": "u1"} | headers
    return Client().post(f"/webhooks/{repository_id}/", json.dumps(payload), "application/json", headers=sent)


def test_it_starts_one_build_for_five_equal_deliveries(repository: Repository) -> None:
    responses = [_github(repository.pk) for _ in range(5)]
    assert [response.status_code for response in responses] == [202, 200, 200, 200, 200]
    assert {response.json()["status"] for response in responses[1:]} == {"duplicate"}
    assert Index.objects.count() == Job.objects.count() == 1


def test_it_knows_a_signed_body_again_under_another_delivery_id(repository: Repository) -> None:
    _github(repository.pk)
    Index.objects.update(status="ready")
    assert _github(repository.pk, **{"X-GitHub-Delivery": "d2"}).json() == {"status": "duplicate"}
    assert Index.objects.count() == 1


def test_it_starts_a_build_for_each_push(repository: Repository) -> None:
    assert _github(repository.pk).status_code == 202
    Index.objects.update(status="ready")
    again = _github(repository.pk, PUSH | {"after": "b" * 40}, **{"X-GitHub-Delivery": "d2"})
    assert (again.status_code, Index.objects.count()) == (202, 2)


def test_it_tells_a_wrong_signature_and_an_unknown_repository_apart_for_nobody(repository: Repository) -> None:
    wrong, unknown = _github(repository.pk, secret="other"), _github(10**30)
    no_signature = _github(repository.pk, **{"X-Hub-Signature-256": ""})
    assert {response.status_code for response in (wrong, unknown, no_signature)} == {403}
    assert wrong.content == unknown.content == no_signature.content
    headers = [
        {name: value for name, value in reply.headers.items() if name != "X-Request-ID"} for reply in (wrong, unknown)
    ]
    assert headers[0] == headers[1]
    assert not Index.objects.exists()


@pytest.mark.parametrize("body", ["", "[]", "{}", "[" * 100_000, '{"ref": 5}'])
def test_it_says_so_when_a_signed_push_cannot_be_read(body: str, repository: Repository) -> None:
    headers = {"X-GitHub-Event": "push", "X-Hub-Signature-256": f"sha256={_signature(body.encode())}"}
    response = Client().post(f"/webhooks/{repository.pk}/", body, "application/json", headers=headers)
    assert (response.status_code, Index.objects.count()) == (400, 0)


def test_it_believes_gitlab_by_its_token(repository: Repository) -> None:
    assert _gitlab(repository.pk, "wrong").status_code == 403
    assert [_gitlab(repository.pk, "s3cret").status_code for _ in range(2)] == [202, 200]
    same_body = _gitlab(repository.pk, "s3cret", **{"X-Gitlab-Event-UUID": "u2"})
    assert same_body.status_code == 202  # GitLab's bodies hold no time: two pushes may be equal


def test_it_believes_gitea_by_its_signature(repository: Repository) -> None:
    body = json.dumps(PUSH).encode()
    headers = {"X-Gitea-Event": "push", "X-Gitea-Delivery": "g1", "X-Gitea-Signature": _signature(body)}
    response = Client().post(f"/webhooks/{repository.pk}/", body, "application/json", headers=headers)
    assert response.status_code == 202


def test_it_reads_a_push_that_github_sends_as_a_form(repository: Repository) -> None:
    body = b"payload=%7B%22ref%22%3A%22refs%2Fheads%2Fmain%22%7D"
    headers = {"X-GitHub-Event": "push", "X-Hub-Signature-256": f"sha256={_signature(body)}"}
    form = "application/x-www-form-urlencoded"
    assert Client().post(f"/webhooks/{repository.pk}/", body, form, headers=headers).status_code == 202


@pytest.mark.parametrize(
    ("payload", "event"),
    [
        ({"zen": "Keep it simple."}, "ping"),
        (PUSH | {"ref": "refs/heads/feature"}, "push"),
        (PUSH | {"ref": "refs/tags/v1"}, "push"),
        (PUSH | {"deleted": True}, "push"),
        (PUSH | {"after": "0" * 40}, "push"),
    ],
)
def test_it_ignores_what_does_not_move_the_followed_ref(
    repository: Repository, payload: dict[str, Any], event: str
) -> None:
    response = _github(repository.pk, payload, **{"X-GitHub-Event": event})
    assert (response.status_code, response.json()["status"][:7]) == (200, "ignored")
    assert not WebhookDelivery.objects.exists()


@pytest.mark.parametrize(("ref", "branch", "status"), [("", "main", 202), ("", "trunk", 200), ("v1", "main", 200)])
def test_it_follows_the_default_branch_without_a_ref(
    repository: Repository, ref: str, branch: str, status: int
) -> None:
    repository.mirror.default_branch = branch
    repository.mirror.save()
    Repository.objects.update(ref=ref)
    assert _github(repository.pk).status_code == status


@pytest.mark.parametrize("payload", ["text", [], {"ref": 7}, {}])
def test_it_refuses_what_is_no_push(repository: Repository, payload: Any) -> None:
    assert _github(repository.pk, payload).status_code == 400


def test_it_refuses_a_body_that_is_too_large(repository: Repository, settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
    assert _github(repository.pk, PUSH | {"commits": "x" * 2000}).status_code == 413


def test_it_only_takes_posts(repository: Repository) -> None:
    assert Client().get(f"/webhooks/{repository.pk}/").status_code == 405


def test_it_asks_for_another_build_when_one_runs_already(repository: Repository) -> None:
    _github(repository.pk)
    Job.objects.update(state=Job.State.RUNNING)
    _github(repository.pk, PUSH | {"after": "b" * 40}, **{"X-GitHub-Delivery": "d2"})
    assert (Index.objects.count(), Job.objects.get().again) == (1, True)


def test_it_forgets_old_deliveries(repository: Repository) -> None:
    WebhookDelivery.objects.create(repository=repository, key="id old")
    WebhookDelivery.objects.update(received_at=timezone.now() - timedelta(days=31))
    _github(repository.pk)
    assert not WebhookDelivery.objects.filter(key="id old").exists()


def test_it_makes_a_secret_for_each_repository() -> None:
    one, two = make_repository(), make_repository()
    assert len(one.webhook_secret) > 40
    assert one.webhook_secret != two.webhook_secret


def test_it_shows_the_secret_to_staff_only(staff_client: Client, user_client: Client, repository: Repository) -> None:
    assert "s3cret" in staff_client.get(f"/admin/indexing/repository/{repository.pk}/change/").content.decode()
    assert "s3cret" not in user_client.get("/repositories/").content.decode()
