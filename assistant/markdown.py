"""The Markdown of an answer -> HTML that can be put into a page: nothing in it runs, loads or hides where it leads.

HTML in the text stays text, images become their words, links show their host and lead only to http(s), and only
citations link into this site. Markup is made by us from tokens; a sanitiser has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from urllib.parse import urlsplit

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from assistant import activity
from assistant.citations import Evidence, answer_parser
from assistant.patches import LANGUAGES, Verdict
from indexing.highlighting import highlighted_lines, visible

MAX_CHARS = 200_000
CHANGED_WORDS = {"changed": "; these lines changed since", "gone": "; the file is gone since"}
COPY_BUTTON = '<button type="button" class="btn btn--quiet" data-copy>Copy</button>'

_LANGUAGE_NAMES = {
    "js": "JavaScript",
    "ts": "TypeScript",
    "py": "Python",
    "cpp": "C++",
    "csharp": "C#",
    "cs": "C#",
    "plantuml": "PlantUML",
    "puml": "PlantUML",
}
_UPPER_CASE = {"sql", "html", "css", "json", "yaml", "toml", "xml", "php", "ini"}
_HUNK = re.compile(r"@@ -(\d{1,7})(?:,\d+)? \+(\d{1,7})(?:,\d+)? @@")
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")

_TAGS = set(
    "a blockquote br button code del details div em figure h3 h4 h5 h6 header hr li ol p pre s span strong summary "
    "table tbody td th thead tr ul".split()
)
_ATTRIBUTES = {
    "*": {"class"},
    "a": {"href", "title", "rel", "target", "data-n", "data-changed", "aria-label"},
    "button": {"type", "data-copy"},
    "div": {"tabindex", "role", "aria-label"},
    "figure": {"data-mermaid"},
    "ol": {"start"},
    "pre": {"tabindex", "role", "aria-label"},
    "span": {"title", "data-state", "data-n", "aria-label"},
}


@dataclass(frozen=True, slots=True)
class Chip:
    """What a citation marker looks like. Without `href` it cannot be opened."""

    label: str  # sessions.py:303–321
    title: str
    href: str
    state: str  # ok, pending, broken, removed, hidden
    changed: str = ""  # changed or gone: how the newest indexed commit differs there


def chips_of(
    evidence: Iterable[Evidence], link: Callable[[Evidence], str], changed: Mapping[int, str] | None = None
) -> dict[int, Chip]:
    """`changed`: by the primary key of the citation, as `freshness.changed_since` tells."""
    return {item.number: _chip(item, link, changed or {}) for item in evidence}


def _chip(item: Evidence, link: Callable[[Evidence], str], changed: Mapping[int, str]) -> Chip:
    since = changed.get(item.citation.pk, "") if item.citation is not None else ""
    return Chip(item.label, item.title, link(item) if item.linkable else "", item.state, since)


def render(text: str, chips: Mapping[int, Chip], patches: Mapping[str, Verdict] | None = None) -> SafeString:
    """`chips`: what the markers may point at; other numbers are shown as broken. `patches`: verdicts on diff fences."""
    verdicts = tuple((patches or {}).items())
    html = _rendered(text, tuple(sorted(chips.items())), verdicts)
    return mark_safe(html)  # noqa: S308  # made by us, cleaned by nh3


def render_next(block: str, chips: Mapping[int, Chip], mentioned: set[int]) -> SafeString:
    """One more block of a text that is still being written; `mentioned` carries over what earlier blocks cited."""
    return mark_safe(_render(block, dict(chips), mentioned))  # noqa: S308  # as above


def chip_html(number: int, chip: Chip | None, *, short: bool = False) -> str:
    """A citation. `short`: the number alone, for later mentions of the same passage."""
    flag = f'<span class="flag">{number}</span>'
    name = "citation citation--short" if short else "citation"
    if chip is None or not chip.href:
        label = "" if chip is None or short else visible(chip.label)
        state = "removed" if chip is not None and chip.state == "removed" else "broken"
        title = "This citation could not be verified." if chip is None or chip.state == "broken" else chip.title
        title += " Its repository was removed, so the passage no longer opens." if state == "removed" else ""
        attributes = f'data-state="{state}" data-n="{number}" title="{_attribute(title)}"'
        return f'<span class="{name}" {attributes}>{flag}{label}</span>'
    state = ' data-state="pending"' if chip.state == "pending" else ""
    label = "" if short else visible(chip.label)
    since = CHANGED_WORDS.get(chip.changed, "")
    mark = f' data-changed="{chip.changed}"' if since else ""
    return (
        f'<a class="{name}"{state}{mark} data-n="{number}" href="{_attribute(chip.href)}" '
        f'title="{_attribute(chip.title)}{since}" '
        f'aria-label="Citation {number}: {_attribute(chip.label)}{since}">{flag}{label}</a>'
    )


def code_box(text: str, language: str, verdict: Verdict | None = None) -> str:
    """Code with a header that names its language and copies it; a patch, a flow chart have their own forms."""
    if language in LANGUAGES:
        return patch_box(text, verdict)
    header = _header(_language_name(language))
    lines = "\n".join(highlighted_lines(text.rstrip("\n"), language))
    body = f'<pre tabindex="0" role="region" aria-label="Code">{lines}</pre>'
    if language in ("plantuml", "puml") and (steps := activity.parse(text)) is not None:
        flow = f'<div class="hscroll" tabindex="0" role="region" aria-label="Diagram">{activity.draw(steps)}</div>'
        return f'<figure class="codebox">{header}{flow}<details><summary>Text</summary>{body}</details></figure>\n'
    if language == "mermaid":  # drawn by the browser; without its script the text stays
        return f'<figure class="codebox" data-mermaid="">{header}{body}</figure>\n'
    return f'<figure class="codebox">{header}{body}</figure>\n'


def patch_box(text: str, verdict: Verdict | None = None) -> str:
    """What a patch adds and removes, with line numbers, and whether it applies."""
    names = list(dict.fromkeys(re.findall(r"^\+\+\+ (?:b/)?([^\t\n]+)", text, flags=re.MULTILINE)))
    said = ""
    if verdict is not None:
        said = f'<span class="{"ok" if verdict.applies else "bad"}">{visible(verdict.sentence)}</span>'
    header = _header(", ".join(names) or "Diff", said, COPY_BUTTON.replace("Copy", "Copy patch"))
    rows = "".join(_patch_rows(text.rstrip("\n").split("\n")))
    body = f'<div class="code" tabindex="0" role="region" aria-label="Patch"><ol>{rows}</ol></div>'
    return f'<figure class="codebox">{header}{body}</figure>\n'


def _header(name: str, said: str = "", button: str = COPY_BUTTON) -> str:
    return f'<header><span class="grow cut">{visible(name)}</span>{said}{button}</header>'


def clean(html: str) -> str:
    """The last step for everything made from text we did not write."""
    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        link_rel=None,
        url_schemes={"http", "https"},
        generic_attribute_prefixes=set(),
    )


@lru_cache(maxsize=512)
def _rendered(text: str, chips: tuple[tuple[int, Chip], ...], patches: tuple[tuple[str, Verdict], ...]) -> str:
    return _render(text, dict(chips), set(), dict(patches))


def _render(
    text: str, chips: dict[int, Chip], mentioned: set[int], patches: Mapping[str, Verdict] | None = None
) -> str:
    env: EnvType = {"chips": chips, "mentioned": mentioned, "open_links": [], "patches": patches or {}}
    return clean(_parser().render(text[:MAX_CHARS], env))


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    md = answer_parser()
    for name, rule in {
        "citation": _citation,
        "code_block": _code,
        "fence": _code,
        "heading_close": _heading,
        "heading_open": _heading,
        "image": _image,
        "link_close": _link_close,
        "link_open": _link_open,
        "text": _text,
        "code_inline": _code_inline,
        "td_open": _cell,
        "th_open": _cell,
    }.items():
        md.add_render_rule(name, rule)
    return md


Tokens = Sequence[Token]


def _citation(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    """Within a link a marker stays text: links do not nest, and what looks like a citation must be one."""
    if env["open_links"]:
        return visible(tokens[at].content)
    chips = []
    for number in tokens[at].meta["numbers"]:
        chips.append(chip_html(number, env["chips"].get(number), short=number in env["mentioned"]))
        env["mentioned"].add(number)
    return " ".join(chips)


def _code(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    language = _LANGUAGE.match(tokens[at].info.strip().lower())
    content = tokens[at].content
    return code_box(content, language.group() if language else "", env["patches"].get(content))


def _heading(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    """An answer stands below the page's own headings."""
    level = min(int(tokens[at].tag[1:]) + 2, 6)
    return f"<h{level}>" if tokens[at].nesting == 1 else f"</h{level}>\n"


def _image(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    words = self.renderInlineAsText(tokens[at].children or [], options, env)
    host = _host(str(tokens[at].attrGet("src") or ""))
    return visible(f"[image: {words or 'without words'}{f', not loaded from {host}' if host else ''}]")


def _link_open(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    """Only absolute http(s) addresses are links: a relative one could do something in this site."""
    href = str(tokens[at].attrGet("href") or "")
    host = _host(href)
    env["open_links"].append(host)
    if not host:
        return ""
    return f'<a class="link" href="{_attribute(href)}" rel="noopener noreferrer nofollow" target="_blank">'


def _link_close(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    host = env["open_links"].pop()
    return f'</a> <span class="dim">({visible(host)})</span>' if host else ""


def _text(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    return visible(tokens[at].content)


def _code_inline(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    return f"<code>{visible(tokens[at].content)}</code>"


def _cell(self: RendererHTML, tokens: Tokens, at: int, options: OptionsDict, env: EnvType) -> str:
    """Without the style attribute that aligns it: the policy of the page forbids inline styles."""
    return f"<{tokens[at].tag}>"


def _host(url: str) -> str:
    """The host a link leads to, as the browser sees it; empty for what must not be a link."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "") if parts.scheme in ("http", "https") else ""
    except ValueError:
        return ""


def _attribute(text: str) -> str:
    return escape(text, quote=True)


def _language_name(language: str) -> str:
    if language in _UPPER_CASE:
        return language.upper()
    return _LANGUAGE_NAMES.get(language, language.capitalize()) or "Code"


def _patch_rows(lines: Sequence[str]) -> Iterator[str]:
    """Numbers count the old file for what is removed, else the new one; they begin with each hunk."""
    old = new = 0
    for line in lines:
        if (hunk := _HUNK.match(line)) is not None:
            old, new = int(hunk[1]), int(hunk[2])
            yield _patch_row(line, "", "")
        elif line.startswith(("+++", "---")):
            yield _patch_row(line, "", "")
        elif line.startswith("+"):
            yield _patch_row(line, ' class="add"', f"+{new}" if new else "")
            new += bool(new)
        elif line.startswith("-"):
            yield _patch_row(line, ' class="del"', f"-{old}" if old else "")
            old += bool(old)
        else:
            yield _patch_row(line, "", str(new or ""))
            old, new = old + bool(old), new + bool(new)


def _patch_row(line: str, css_class: str, number: str) -> str:
    return f'<li{css_class}><span class="ln">{number}</span><span>{visible(line) or " "}</span></li>\n'
