"""What templates of all apps draw with: icons, bars, and numbers, sizes and times in words.

Bars are SVG rectangles, because the Content-Security-Policy forbids style attributes.
"""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from typing import Any

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from assistant.conversations import FEEDBACK_REASONS

register = template.Library()


@register.simple_tag
def icon(name: str, classes: str = "") -> SafeString:
    """Decoration: hidden from screen readers, so the words stand beside it."""
    return format_html(
        '<svg class="i {}" aria-hidden="true"><use href="{}#i-{}"/></svg>', classes, static("icons.svg"), name
    )


@register.filter
def is_this_machine(host: str) -> bool:
    """Whether a host name is this machine's own; of other names in the network nothing is known but that."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@register.simple_tag
def star() -> SafeString:
    return format_html(
        '<svg class="i star" role="img" aria-label="Golden repository"><use href="{}#i-star"/></svg>',
        static("icons.svg"),
    )


@register.simple_tag
def meter(done: float, known: float, label: str) -> SafeString:
    """A progress bar of things done out of things known; nothing at all while nothing is known."""
    if known <= 0:
        return SafeString("")
    return format_html(
        '<svg class="meter" role="progressbar" aria-label="{}" aria-valuemin="0" aria-valuemax="100" '
        'aria-valuenow="{}"><rect width="{}%" height="100%" rx="3"/></svg>',
        label,
        percent(done, known),
        percent(done, known),
    )


@register.simple_tag
def bar(value: float, most: float) -> SafeString:
    """The picture of a number that is printed beside it, so screen readers skip it."""
    return format_html(
        '<svg class="meter" aria-hidden="true"><rect width="{}%" height="100%" rx="3"/></svg>', percent(value, most)
    )


@register.simple_tag
def heat(value: float, most: float) -> SafeString:
    """A bar that grows from the right, behind the number of a table cell."""
    left = 100 - percent(value, most)
    return format_html(
        '<svg aria-hidden="true"><rect x="{}%" width="{}%" height="100%"/>'
        '<rect x="98%" width="2%" height="100%"/></svg>',
        left,
        100 - left,
    )


def percent(value: float, most: float) -> int:
    """Whole per cent between 0 and 100."""
    return round(100 * min(max(value / most, 0.0), 1.0)) if most > 0 else 0


@register.simple_tag
def share(part: float, whole: float) -> str:
    return f"{percent(part, whole)} %"


@register.filter
def reason(value: str) -> str:
    """Why an answer did not help, in words."""
    return FEEDBACK_REASONS.get(value, "No reason given")


@register.filter
def count(number: int | None) -> str:
    return f"{number or 0:,}"


@register.filter
def bytesize(size: int | None) -> str:
    amount = float(size or 0)
    units = iter(("bytes", "KB", "MB", "GB"))
    unit = next(units)
    while amount >= 1000 and (larger := next(units, "")):
        amount, unit = amount / 1000, larger
    return f"{amount:,.0f} {unit}" if unit == "bytes" or amount >= 100 else f"{amount:.1f} {unit}"


@register.filter
def ago(moment: datetime | None) -> str:
    if moment is None:
        return ""
    passed = timezone.now() - moment
    if passed < timedelta(minutes=1):
        return f"{max(0, int(passed.total_seconds()))} s ago"
    if passed < timedelta(hours=1):
        return f"{passed // timedelta(minutes=1)} min ago"
    if passed < timedelta(days=1):
        return f"{passed // timedelta(hours=1)} h ago"
    if passed < timedelta(days=30):
        days = passed // timedelta(days=1)
        return "yesterday" if days == 1 else f"{days} days ago"
    return f"on {moment:%-d %B %Y}"


@register.filter
def left(seconds: float | None) -> str:
    """An estimate in words, rounded as coarsely as it deserves."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"about {max(5, round(seconds / 5) * 5)} s left"
    if seconds < 3600:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


@register.filter
def milliseconds(amount: float | None) -> str:
    return f"{round(amount or 0):,} ms"


@register.filter
def seconds(amount_ms: float | None) -> str:
    return f"{(amount_ms or 0) / 1000:.1f} s"


@register.filter
def short_commit(commit: str | None) -> str:
    return (commit or "")[:7]


@register.filter
def last_segment(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@register.filter
def item(mapping: dict[str, Any], key: str) -> Any:  # Any: JSON that a template walks
    return mapping.get(key)
