"""`/healthz`: is this web process alive? `/readyz`: can it do all of its work? No sign-in, and no details.

Alive means that it answers at all: no database is asked, so a database that is away restarts nothing and costs no
question its answer. What is not ready is named; why is in the log.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError

from assistant.celery import app as celery_app
from indexing import embedding

BROKER_SECONDS = 2.0

log = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
async def healthz(request: HttpRequest) -> JsonResponse:
    """200 from every process that serves requests."""
    return JsonResponse({"status": "ok"})


@login_not_required
@never_cache
@require_safe
def readyz(request: HttpRequest) -> JsonResponse:
    """200 when all of them are there, else 503 and which is not; the reason is in the log."""
    ready, report = check(*CHECKS)
    response = JsonResponse(report, status=200 if ready else 503)
    response._has_been_logged = True  # type: ignore[attr-defined]  # Django's: asked every few seconds, said below
    return response


def check(*names: str) -> tuple[bool, dict[str, Any]]:  # Any: JSON
    """Whether all of these are there, and which are. Names are the keys of CHECKS."""
    checks = {name: CHECKS[name]() for name in names}
    ready = all(checks.values())
    return ready, {"status": "ok" if ready else "failing", "checks": checks}


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        log.exception("the database does not answer")
        return False
    return True


def _broker_takes_messages() -> bool:
    try:
        with celery_app.connection_for_write() as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, timeout=BROKER_SECONDS)
    except (OperationalError, OSError):
        log.exception("the broker does not answer")
        return False
    return True


def _index_volume_is_writable() -> bool:
    """Searches only read it, but a volume that cannot be written is seldom the right one."""
    try:
        with tempfile.TemporaryFile(dir=settings.DATA_DIR) as file:
            file.write(b"x")
    except OSError:
        log.exception("%s cannot be written", settings.DATA_DIR)
        return False
    return True


CHECKS: dict[str, Callable[[], bool]] = {
    "database": _database_answers,
    "broker": _broker_takes_messages,
    "index_volume": _index_volume_is_writable,
    "embedding_model": embedding.is_loaded,
}
