"""POST /webhooks/<repository id>/: GitHub, GitLab or Gitea says that somebody pushed, and the index is updated.

Whoever knows the repository's secret is believed, nobody else learns whether the repository exists. A delivery that
comes again starts nothing, whatever id it carries now; neither does a push to a ref that is not followed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import secrets
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.db import IntegrityError, transaction
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from indexing.building import request_update
from indexing.models import Repository, WebhookDelivery

REMEMBERED = timedelta(days=30)  # a delivery that is replayed later finds the index up to date
_EVENT_HEADERS = ("X-GitHub-Event", "X-Gitlab-Event", "X-Gitea-Event")
_ID_HEADERS = ("X-GitHub-Delivery", "X-Gitea-Delivery", "Idempotency-Key", "X-Gitlab-Event-UUID")
_PUSHES = frozenset({"push", "Push Hook", "Tag Push Hook"})
_UNKNOWN_SECRET = secrets.token_urlsafe(32)

log = logging.getLogger(__name__)


@csrf_exempt
@login_not_required
@require_POST
def receive(request: HttpRequest, repository_id: int) -> JsonResponse:
    """202 when the repository is queued; 200 when there is nothing to do, and why."""
    try:
        body = request.body
    except RequestDataTooBig:
        return _answer("too large", 413)
    repository = Repository.objects.select_related("mirror").filter(pk=repository_id).first()
    if not _is_authentic(request, body, repository.webhook_secret if repository else _UNKNOWN_SECRET):
        return _answer("forbidden", 403)
    if repository is None:  # somebody guessed a random secret
        return _answer("forbidden", 403)
    if _header(request, _EVENT_HEADERS) not in _PUSHES:
        return _answer("ignored: not a push", 200)
    try:
        ref = _pushed_ref(request, body)
    except (ValueError, RecursionError):  # JSON may be nested without end
        return _answer("not a push that can be read", 400)
    if not _is_followed(repository, ref):
        return _answer("ignored: this ref is not followed", 200)
    return _update_once(repository, _keys(request, body))


@transaction.atomic
def _update_once(repository: Repository, keys: list[str]) -> JsonResponse:
    """A delivery is only remembered together with the build it asked for."""
    try:
        with transaction.atomic():
            WebhookDelivery.objects.bulk_create([WebhookDelivery(repository=repository, key=key) for key in keys])
    except IntegrityError:
        return _answer("duplicate", 200)
    index = request_update(repository)
    log.info("a webhook asked for index %d of repository %d", index.pk, repository.pk)
    repository.deliveries.filter(received_at__lt=timezone.now() - REMEMBERED).delete()
    return _answer("queued", 202)


def _is_authentic(request: HttpRequest, body: bytes, secret: str) -> bool:
    """GitLab sends the secret itself, the others a signature of the body. Takes as long whether it is right or not."""
    if token := request.headers.get("X-Gitlab-Token"):
        return hmac.compare_digest(token.encode(), secret.encode())
    signature = request.headers.get("X-Hub-Signature-256", "").removeprefix("sha256=")
    signature = signature or request.headers.get("X-Gitea-Signature", "")
    expected = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(signature.encode(), expected.encode())


def _keys(request: HttpRequest, body: bytes) -> list[str]:
    """What the delivery is recognised by. Its id is not part of the signature, so a signed body is one as well."""
    digest = f"body {hashlib.sha256(body).hexdigest()}"
    delivery_id = _header(request, _ID_HEADERS)
    keys = [f"id {delivery_id[:150]}"] if delivery_id else [digest]
    if "X-Gitlab-Token" not in request.headers and digest not in keys:
        keys.append(digest)
    return keys


def _header(request: HttpRequest, names: tuple[str, ...]) -> str:
    return next((value for name in names if (value := request.headers.get(name))), "")


def _pushed_ref(request: HttpRequest, body: bytes) -> str:
    """`refs/heads/main`. Raises ValueError for anything but a push, also as a form, which GitHub can send."""
    if request.content_type == "application/x-www-form-urlencoded":
        body = parse_qs(body.decode(), strict_parsing=True).get("payload", [""])[0].encode()
    payload: Any = json.loads(body)  # Any: JSON from outside
    ref = payload.get("ref") if isinstance(payload, dict) else None
    if not isinstance(ref, str):
        raise ValueError("no ref")
    return "" if payload.get("deleted") is True or not str(payload.get("after", "1")).strip("0") else ref


def _is_followed(repository: Repository, ref: str) -> bool:
    wanted = repository.ref or repository.mirror.default_branch
    if not wanted:  # not fetched yet: any branch may be the default one
        return ref.startswith("refs/heads/")
    return ref in (wanted, f"refs/heads/{wanted}", f"refs/tags/{wanted}")


def _answer(text: str, status: int) -> JsonResponse:
    return JsonResponse({"status": text}, status=status)
