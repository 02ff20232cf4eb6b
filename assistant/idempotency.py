"""`Idempotency-Key`: a POST that is sent again gets the first reply again and does nothing.

Keys belong to a token and are kept for a day. Another request under a used key is refused, and so is one whose first
sending is still being worked on. A reply that failed on our side is not kept: the request may be sent again. Asking
has keys of its own, stored with the question (`chat_api.py`); reading needs none. Stopping and rating an answer are
done again instead, which changes nothing: a kept reply would tell of it when its sources may not be read any more.
"""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from assistant.errors import AlreadyAsked
from assistant.models import ApiToken, IdempotentReply
from indexing.access import Principal
from indexing.models import Repository

HEADER = "Idempotency-Key"
MAX_KEY_CHARS = 200
KEPT = timedelta(days=1)
LONGEST_WORK = timedelta(minutes=2)  # a request that began earlier and has no reply died with its process
MAX_REPLY_BYTES = 100_000
OWN_KEYS = {"/api/v1/ask", "/api/v1/search"}
DONE_AGAIN = "/api/v1/messages/"
ADDING = "/api/v1/repositories"  # its reply is the repository, whose id is not in the address


class Replayed(Exception):
    """The reply that this request got before."""

    def __init__(self, response: HttpResponse) -> None:
        super().__init__()
        self.response = response


def begin(request: HttpRequest, token: ApiToken, principal: Principal) -> None:
    """Take the key, if there is one. Raises Replayed, and AlreadyAsked for a key that is taken."""
    key = request.headers.get(HEADER, "")
    if request.method != "POST" or not key or request.path in OWN_KEYS:
        return
    if len(key) > MAX_KEY_CHARS:
        raise AlreadyAsked(f"`{HEADER}` has at most {MAX_KEY_CHARS} characters.")
    now = timezone.now()
    IdempotentReply.objects.filter(created_at__lt=now - KEPT).delete()
    rows = IdempotentReply.objects.filter(token=token, key=key)
    rows.filter(status=None, created_at__lt=now - LONGEST_WORK).delete()
    digest = hashlib.sha256(f"{request.method} {request.get_full_path()}\n".encode() + request.body).hexdigest()
    try:
        with transaction.atomic():
            row = IdempotentReply.objects.create(token=token, key=key, request_sha256=digest)
    except IntegrityError:
        found = rows.first()
        if found is not None and found.request_sha256 == digest and request.path.startswith(DONE_AGAIN):
            return
        if found is not None:
            raise _again(found, digest, principal) from None
        raise AlreadyAsked("Another request under this idempotency key has just ended. Send this one again.") from None
    request.idempotent_reply = row.pk  # type: ignore[attr-defined]  # for `end`


def end(request: HttpRequest, response: HttpResponse) -> None:
    """Keep the reply for the next time."""
    rows = IdempotentReply.objects.filter(pk=int(getattr(request, "idempotent_reply", 0)))
    if response.status_code >= 500 or len(response.content) > MAX_REPLY_BYTES:
        rows.delete()
        return
    match = request.resolver_match
    named = match.kwargs.get("repository_id") if match else None
    rows.update(
        status=response.status_code,
        body="" if request.path.startswith(DONE_AGAIN) else response.content.decode(),
        repository_id=named or (_object(response.content).get("id") if request.path == ADDING else None),
    )


def begun(request: HttpRequest) -> bool:
    return hasattr(request, "idempotent_reply")


def _again(row: IdempotentReply, digest: str, principal: Principal) -> Exception:
    if row.request_sha256 != digest:
        return AlreadyAsked("This idempotency key was used for another request. Use a new key for each request.")
    if row.status is None:
        return AlreadyAsked("The first request under this idempotency key is still being worked on. Ask again later.")
    if row.status < 400 and not _may_read(row, principal):
        return AlreadyAsked("A repository of this request is gone, or this token may not read it any more.")
    response = HttpResponse(row.body, status=row.status, content_type="application/json; charset=utf-8")
    response.headers["Idempotency-Replayed"] = "true"
    return Replayed(response)


def _may_read(row: IdempotentReply, principal: Principal) -> bool:
    """What the reply tells of: one repository, or the figures of several."""
    readable = Repository.objects.visible_to(principal)
    if row.repository_id:
        return readable.filter(pk=row.repository_id).exists()
    names = set(_object(row.body).get("per_repository", ()))
    return names <= set(readable.filter(name__in=names).values_list("name", flat=True))


def _object(text: str | bytes) -> dict[str, Any]:  # Any: JSON of our own
    """Empty for a reply that is no object."""
    found = json.loads(text) if text else None
    return found if isinstance(found, dict) else {}
