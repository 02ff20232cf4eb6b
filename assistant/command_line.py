"""`/cli/codebase.py`: the program that searches and asks from another machine, as this server's version has it.

It is one file of the standard library and holds no secret, so nobody has to sign in for it.
"""

from __future__ import annotations

from pathlib import Path

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from assistant import remote


@login_not_required
@require_safe
def download(request: HttpRequest) -> HttpResponse:
    response = HttpResponse(Path(remote.__file__).read_bytes(), content_type="text/x-python; charset=utf-8")
    response.headers["Content-Disposition"] = 'attachment; filename="codebase.py"'
    return response
