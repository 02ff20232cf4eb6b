"""The webhook of a repository in the API: where it is, what came lately, and a new secret, which is shown once.

For those who manage the repository; to everybody else it is as unknown as a repository that does not exist.
"""

from __future__ import annotations

from datetime import datetime

from django.http import HttpRequest
from django.urls import reverse
from ninja import Field, Router, Schema

from indexing import audit
from indexing.api import managed
from indexing.models import new_webhook_secret

router = Router(tags=["repositories"])
DELIVERIES_SHOWN = 20


class DeliveryOut(Schema):
    """A push that was recognised. One that comes again starts nothing."""

    key: str = Field(description="The id that the sender gave it, or the hash of its body")
    received_at: datetime


class WebhookOut(Schema):
    url: str = Field(description="For push events, content type JSON")
    deliveries: list[DeliveryOut] = Field(description=f"The newest {DELIVERIES_SHOWN}")


class WebhookSecretOut(Schema):
    url: str
    secret: str = Field(description="Shown once; the one before it is void")


@router.get(
    "/{int:repository_id}/webhook",
    response=WebhookOut,
    summary="The webhook of a repository",
    operation_id="get_webhook",
)
def get_webhook(request: HttpRequest, repository_id: int) -> WebhookOut:
    repository = managed(request, repository_id)
    rows = repository.deliveries.order_by("-pk")[:DELIVERIES_SHOWN]
    return WebhookOut(
        url=_url(request, repository_id),
        deliveries=[DeliveryOut(key=row.key, received_at=row.received_at) for row in rows],
    )


@router.post(
    "/{int:repository_id}/webhook/secret",
    response=WebhookSecretOut,
    summary="Make a new webhook secret",
    operation_id="renew_webhook_secret",
)
def renew_webhook_secret(request: HttpRequest, repository_id: int) -> WebhookSecretOut:
    repository = managed(request, repository_id)
    repository.webhook_secret = new_webhook_secret()
    repository.save(update_fields=["webhook_secret"])
    audit.record(request.auth.user, "webhook secret renewed", repository)  # type: ignore[attr-defined]  # set by the API
    return WebhookSecretOut(url=_url(request, repository_id), secret=repository.webhook_secret)


def _url(request: HttpRequest, repository_id: int) -> str:
    return request.build_absolute_uri(reverse("webhook", args=[repository_id]))
