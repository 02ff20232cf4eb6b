"""The page that a Mermaid diagram is drawn in: an empty one, in a sandboxed frame, that gets the diagram as a message.

Mermaid makes SVG from text that a model wrote, with inline styles. So it has an origin of its own (`sandbox`), no
cookies, no network and no way to the page around it; its policy says so again to whoever opens it directly.
"""

from __future__ import annotations

from csp.constants import NONE, SELF, UNSAFE_INLINE
from csp.decorators import csp
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_GET

POLICY = {
    "default-src": [NONE],
    "script-src": [SELF],
    "style-src": [UNSAFE_INLINE],  # of the SVG; styles can load nothing here
    "base-uri": [NONE],
    "form-action": [NONE],
    "frame-ancestors": [SELF],
    "sandbox": ["allow-scripts"],
}


@login_not_required
@require_GET
@xframe_options_sameorigin
@csp(POLICY)  # type: ignore[untyped-decorator]  # of django-csp
def frame(request: HttpRequest) -> HttpResponse:
    """Nothing of anybody's is in it."""
    return render(request, "diagram.html")
