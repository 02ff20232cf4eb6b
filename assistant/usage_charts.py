"""Numbers -> charts as SVG, made on the server. Colours come from classes, because the page's policy forbids styles."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from assistant.citation_uses import CitationUses
from assistant.usage import Day, StageTime, Week

WIDTH, HEIGHT = 705, 190
LEFT, TOP, BOTTOM = 30, 12, 162
NARROW = 331
ROW = 38
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


Stack = tuple[date, int, int]  # a day, the lower and the upper part of its bar


def days_chart(days: Sequence[Day]) -> SafeString:
    stacks = [(day.day, day.answered, day.unanswered) for day in days]
    asked, missed = sum(day.answered + day.unanswered for day in days), sum(day.unanswered for day in days)
    return _stacks(stacks, ("answered", "unanswered"), f"Questions per day: {asked} in total, {missed} unanswered")


def uses_chart(uses: CitationUses) -> SafeString:
    stacks = [(day.day, day.opened, day.copied) for day in uses.days]
    said = f"Citations per day: {uses.opened} opened, {uses.copied} copied"
    return _stacks(stacks, ("opened", "copied"), said)


def _stacks(days: Sequence[Stack], words: tuple[str, str], said: str) -> SafeString:
    """Two stacked bars a day."""
    step = _step(max((lower + upper for _, lower, upper in days), default=0), lines=4)
    most = step * 4
    scale = (BOTTOM - TOP) / most
    room = (WIDTH - LEFT) / max(len(days), 1)
    axis = format_html_join(
        "",
        '<path class="ax" d="M30 {}H705"/><text x="22" y="{}" text-anchor="end">{}</text>',
        (
            (round(BOTTOM - value * scale, 1), round(BOTTOM - value * scale + 4, 1), f"{value:,}")
            for value in range(0, most + 1, step)
        ),
    )
    bars = format_html_join(
        "", "{}", ((_bar(stack, words, LEFT + n * room, room, scale),) for n, stack in enumerate(days))
    )
    every = max(1, len(days) // 5)
    labels = format_html_join(
        "",
        '<text x="{}" y="179" text-anchor="middle">{}</text>',
        (
            (round(LEFT + (n + 0.5) * room, 1), f"{day:%-d %b}")
            for n, (day, _, _) in enumerate(days)
            if n % every == every // 2
        ),
    )
    return _svg("chart chart--wide", WIDTH, HEIGHT, said, axis + bars + labels)


def _bar(stack: Stack, words: tuple[str, str], left: float, room: float, scale: float) -> SafeString:
    width, x = round(room * 0.68, 1), round(left + room * 0.16, 1)
    day, first, second = stack
    lower, upper = first * scale, second * scale
    return format_html(
        '<g><title>{}</title><rect class="k1" x="{}" y="{}" width="{}" height="{}"/>'
        '<rect class="k4" x="{}" y="{}" width="{}" height="{}"/></g>',
        f"{day:%-d %B}: {first} {words[0]}, {second} {words[1]}",
        *(x, round(BOTTOM - lower, 1), width, round(lower, 1)),
        *(x, round(BOTTOM - lower - upper, 1), width, round(max(0.0, upper - 1), 1)),
    )


def weeks_chart(weeks: Sequence[Week]) -> SafeString:
    """One row a week, with the share that was helpful behind it."""
    most = max((week.helpful + week.not_helpful for week in weeks), default=0) or 1
    scale = 220 / most
    rows = format_html_join("", "{}", ((_week(week, 14 + n * ROW, scale),) for n, week in enumerate(weeks)))
    said = "Ratings per week: " + ", ".join(
        f"from {week.first:%-d %B} {week.helpful} helpful, {week.not_helpful} not" for week in weeks
    )
    return _svg("chart", NARROW, 20 + ROW * len(weeks), said, rows)


def _week(week: Week, y: int, scale: float) -> SafeString:
    total = week.helpful + week.not_helpful
    helpful, other = round(week.helpful * scale, 1), round(week.not_helpful * scale, 1)
    return format_html(
        '<text x="44" y="{}" text-anchor="end">{}</text><rect class="k1" x="52" y="{}" width="{}" height="22"/>'
        '<rect class="k4" x="{}" y="{}" width="{}" height="22"/><text class="v" x="{}" y="{}">{}</text>',
        *(y + 15, f"{week.first:%-d %b}", y, helpful),
        *(round(53 + helpful, 1), y, other, round(60 + helpful + other, 1), y + 15),
        f"{100 * week.helpful / total:.0f} %" if total else "none",
    )


def stages_chart(stages: Sequence[StageTime]) -> SafeString:
    """Median as a thick bar over the 95th percentile as a thin one; one scale for all."""
    most = max((stage.slow for stage in stages), default=0) or 1
    rows = format_html_join("", "{}", ((_stage(stage, 8 + n * 28, 270 / most),) for n, stage in enumerate(stages)))
    said = "Time per stage: " + ", ".join(
        f"{stage.label} {stage.median / 1000:.2f} s, 95th percentile {stage.slow / 1000:.2f} s" for stage in stages
    )
    return _svg("chart", 420, 16 + 28 * len(stages), said, rows)


def _stage(stage: StageTime, y: int, scale: float) -> SafeString:
    middle, slow = round(stage.median * scale, 1), round(stage.slow * scale, 1)
    return format_html(
        '<text x="82" y="{}" text-anchor="end">{}</text><rect class="k3" x="90" y="{}" width="{}" height="6"/>'
        '<rect class="k1" x="90" y="{}" width="{}" height="14"/><text class="v" x="{}" y="{}">{}</text>',
        *(y + 11, stage.label, y + 4, slow, y, middle, round(96 + slow, 1), y + 11),
        f"{stage.slow:,.0f} ms" if stage.slow < 1000 else f"{stage.slow / 1000:.1f} s",
    )


def _svg(css_class: str, width: int, height: int, said: str, inside: SafeString) -> SafeString:
    return format_html(
        '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
        css_class,
        width,
        height,
        said,
        inside,
    )


def _step(most: int, *, lines: int) -> int:
    """The round number of which `lines` reach above `most`."""
    return next((step for step in STEPS if step * lines >= most), STEPS[-1] * (1 + most // (lines * STEPS[-1])))
