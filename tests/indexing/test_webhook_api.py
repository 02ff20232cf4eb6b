from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from indexing.models import AuditEvent, Repository, WebhookDelivery
from tests.assistant.api_client import ApiClient
from tests.factories import make_repository

pytestmark = pytest.mark.django_db


@pytest.fixture
def repository(user: User) -> Repository:
    return make_repository("acme/web", owner=user)


def test_it_tells_the_address_and_what_came_but_no_secret(user: User, repository: Repository) -> None:
    WebhookDelivery.objects.create(repository=repository, key="id 7")
    response = ApiClient(user, ["read"]).get(f"/repositories/{repository.pk}/webhook")
    assert response.json()["url"] == f"http://testserver/webhooks/{repository.pk}/"
    assert response.json()["deliveries"][0]["key"] == "id 7"
    assert repository.webhook_secret not in response.content.decode()


def test_it_shows_a_new_secret_once_and_voids_the_old_one(user: User, repository: Repository, client: Client) -> None:
    made = ApiClient(user, ["write"]).post(f"/repositories/{repository.pk}/webhook/secret").json()
    body, headers = b'{"ref": "refs/heads/none"}', {"X-Gitlab-Event": "Push Hook"}
    for secret, status in ((repository.webhook_secret, 403), (made["secret"], 200)):
        sent = headers | {"X-Gitlab-Token": secret}
        address = f"/webhooks/{repository.pk}/"
        Repository.objects.update(ref="main")
        assert client.post(address, body, "application/json", headers=sent).status_code == status
    assert AuditEvent.objects.filter(action="webhook secret renewed", repository_id=repository.pk).exists()


def test_it_is_for_those_who_manage_the_repository(user: User, other_user: User, repository: Repository) -> None:
    assert ApiClient(other_user, ["read"]).get(f"/repositories/{repository.pk}/webhook").status_code == 404
    assert ApiClient(other_user, ["write"]).post(f"/repositories/{repository.pk}/webhook/secret").status_code == 404
    assert ApiClient(user, ["read"]).post(f"/repositories/{repository.pk}/webhook/secret").status_code == 403
