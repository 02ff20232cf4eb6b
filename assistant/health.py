"""`/healthz`: can this web process serve? For supervisors and load balancers: no sign-in, and no details."""

from __future__ import annotations

import logging
import tempfile
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

log = logging.getLogger(__name__)


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """200 when the database answers and the data folder can be written, else 503; the reason is in the log."""
    healthy, report = check()
    return JsonResponse(report, status=200 if healthy else 503)


def check() -> tuple[bool, dict[str, Any]]:  # Any: JSON
    checks = {"database": _database_answers(), "data_folder": _data_folder_is_writable()}
    healthy = all(checks.values())
    return healthy, {"status": "ok" if healthy else "failing", "checks": checks}


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        log.exception("the database does not answer")
        return False
    return True


def _data_folder_is_writable() -> bool:
    try:
        with tempfile.TemporaryFile(dir=settings.DATA_DIR) as file:
            file.write(b"x")
    except OSError:
        log.exception("%s cannot be written", settings.DATA_DIR)
        return False
    return True
