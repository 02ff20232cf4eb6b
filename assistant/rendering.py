"""A stored message -> the HTML of its answer, as one person may see it now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from django.utils.safestring import SafeString, mark_safe

from assistant import citations, markdown, patches, source_view
from assistant.citations import Evidence
from assistant.models import Message
from assistant.source_view import PassageView, Row
from indexing.highlighting import visible

WITHHELD = "This answer draws on a repository that you cannot read, so it is not shown."


def answer_html(
    message: Message,
    evidence: Sequence[Evidence],
    *,
    link: Callable[[Evidence], str],
    changed: Mapping[int, str] | None = None,
) -> SafeString:
    """What the model wrote; or, for an extractive answer, its passages, read from the mirrors now.

    `changed`: which citations differ at the newest indexed commit, see `freshness.changed_since`.
    """
    if citations.withheld(evidence):
        return mark_safe(f"<p>{WITHHELD}</p>")  # noqa: S308  # a constant
    chips = markdown.chips_of(evidence, link, changed)
    cited = [item for item in evidence if item.cited]
    if message.answered_by or not cited:
        return markdown.render(message.answer, chips, patches.check_patches(message.answer, evidence))
    passages = source_view.read_passages(cited)
    boxes = [
        _file_box(list(items), passages, chips)
        for _, items in groupby(_by_file(cited), key=lambda item: _file_key(item))
    ]
    return mark_safe(markdown.clean("".join(boxes)))  # noqa: S308  # every part is escaped, nh3 has seen the whole


def _by_file(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Files in the order of their best passage, passages of a file in the order of their rank."""
    first: dict[tuple[int | None, bytes], int] = {}
    for item in evidence:
        first.setdefault(_file_key(item), item.number)
    return sorted(evidence, key=lambda item: (first[_file_key(item)], item.number))


def _file_key(item: Evidence) -> tuple[int | None, bytes]:
    row = item.citation
    assert row is not None  # withheld answers are not rendered
    return row.repository_id, bytes(row.path)


def _file_box(items: Sequence[Evidence], passages: dict[int, PassageView], chips: dict[int, markdown.Chip]) -> str:
    row = items[0].citation
    assert row is not None
    name = row.repository.name if row.repository is not None else row.repository_name
    header = f'<span class="mono grow cut">{visible(row.display_path)}</span><span>{visible(name)}</span>'
    rows = "".join(_passage(item, passages.get(item.number), chips) for item in items)
    label = visible(row.file_name)
    code = f'<div class="code" tabindex="0" role="region" aria-label="{label}"><ol>{rows}</ol></div>'
    return f'<figure class="codebox"><header>{header}</header>{code}</figure>\n'


def _passage(item: Evidence, passage: PassageView | None, chips: dict[int, markdown.Chip]) -> str:
    symbol = item.citation.symbol if item.citation is not None else ""
    chip = markdown.chip_html(item.number, chips.get(item.number))
    head = f'<li class="gap">{chip}<strong>{visible(symbol)}</strong></li>\n'
    if passage is None:
        return head + '<li class="gap">This passage cannot be read from the mirror any more.</li>\n'
    more = f'<li class="gap">{passage.hidden_lines} more lines</li>\n' if passage.hidden_lines else ""
    return head + "".join(_row(row) for row in passage.rows) + more


def _row(row: Row) -> str:
    css_class = ' class="hit"' if row.hit else ""
    return f'<li{css_class}><span class="ln">{row.number}</span><span>{row.html or " "}</span></li>\n'
