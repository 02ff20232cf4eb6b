"""The Markdown of an answer -> Slack's mrkdwn, in sections that fit into Slack's blocks: pure, knows no message.

Everything that Slack would act on is inert: `&`, `<` and `>` are entities, so no text can mention anybody, and words
that mrkdwn would read as formatting are shown as code. Links lead to http(s) only and show their host. A code fence
that is longer than a section is closed at a line and opened again in the next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit

from markdown_it.tree import SyntaxTreeNode

from assistant.citations import answer_parser

MAX_CHARS = 200_000
SECTION_CHARS = 3000  # of the text of one section block, by Slack's reference
FENCE = "```"
_FENCE_CHARS = 2 * len(FENCE) + 2
_MAX_SPAN_CHARS = 400  # of a code span, so that escaped it still fits into a section
_MAX_ADDRESS_CHARS = 2000
_BULLETS = ("•", "◦", "▪")
# What must stay in one piece when a long paragraph is cut: a link, a code span, a word.
_UNBROKEN = re.compile(r"<[^<>]*>|`[^`\n]*`|&\w+;|\s+|[^\s<`&]+|.", re.DOTALL)
# Words at whose edges mrkdwn looks for formatting, or that it would replace by a picture.
_ACTIVE = re.compile(r"(?:^|[^\w])[*_~]\S|\S[*_~](?:[^\w]|$)|`|^:[\w+'-]+:")
_EDGES = re.compile(r"([(\[\"']*)(\S+?)([)\].,;:!?\"']*)")

Cite = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Piece:
    """A paragraph, list item or table as mrkdwn; or code as it is, which gets its fence when it is packed."""

    text: str
    code: bool = False
    tight: bool = False  # follows the piece before it without an empty line


def sections(text: str, cite: Cite, *, limit: int = SECTION_CHARS) -> list[str]:
    """The texts of the sections, each at most `limit` long as Slack counts. `cite`: a passage's number as a link."""
    return pack(pieces(text, cite), limit=limit)


def pieces(text: str, cite: Cite) -> list[Piece]:
    tree = SyntaxTreeNode(answer_parser().parse(text[:MAX_CHARS]))
    return [piece for node in tree.children for piece in _block(node, cite, depth=0) if piece.text.strip()]


def pack(found: Sequence[Piece], *, limit: int = SECTION_CHARS) -> list[str]:
    """Pieces in their order, as many in a section as fit; one that is too long alone is cut between words or lines."""
    packed: list[str] = []
    for piece in found:
        for number, part in enumerate(_fitting(piece, limit)):
            between = "\n" if piece.tight and not number else "\n\n"
            if packed and length(packed[-1]) + len(between) + length(part) <= limit:
                packed[-1] += between + part
            else:
                packed.append(part)
    return packed


def cut(text: str, limit: int) -> list[str]:
    """mrkdwn in parts of at most `limit`, cut between words: no link, code span or entity is broken."""
    if length(text) <= limit:
        return [text]
    parts = [""]
    for word in _UNBROKEN.findall(text):
        if length(parts[-1]) + length(word) > limit:
            parts.append("")
        while length(word) > limit:  # one word, longer than a section
            parts[-1], word = word[: limit // 2], word[limit // 2 :]
            parts.append("")
        parts[-1] += word
    return [part for part in (part.strip() for part in parts) if part]


def length(text: str) -> int:
    """As Slack's clients count: UTF-16 units."""
    return len(text.encode("utf-16-le", "replace")) // 2


def escape(text: str) -> str:
    """Text in which Slack finds no mention, link or date."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain(text: str) -> str:
    """Text on one or more lines without formatting: words that would be formatted are shown as code."""
    return "".join(_inert_word(word) for word in re.split(r"(\s+)", text))


def code(text: str) -> str:
    """One line as a code span."""
    line = " ".join(text.replace("`", "'").split())
    short = line if len(line) <= _MAX_SPAN_CHARS else line[: _MAX_SPAN_CHARS - 1] + "…"
    return f"`{escape(short)}`" if short else ""


def link(url: str, label: str) -> str:
    words, address = escape(label[:_MAX_SPAN_CHARS]).replace("|", "¦"), _address(url)
    return f"<{address}|{words}>" if len(address) <= _MAX_ADDRESS_CHARS else words


def _inert_word(word: str) -> str:
    if len(word) < 2 or not _ACTIVE.search(word):
        return escape(word)
    before, inner, after = _EDGES.fullmatch(word).groups()  # type: ignore[union-attr]  # it matches every word
    return f"{escape(before)}{code(inner)}{escape(after)}"


def _block(node: SyntaxTreeNode, cite: Cite, *, depth: int) -> Iterator[Piece]:
    match node.type:
        case "heading":
            yield Piece(_wrapped("*", _inline(node.children[0], cite, frozenset({"*"})).replace("\n", " ")))
        case "paragraph" | "inline":
            yield Piece(_inline(node if node.type == "inline" else node.children[0], cite, frozenset()))
        case "fence" | "code_block":
            yield Piece(node.content.rstrip("\n"), code=True)
        case "bullet_list" | "ordered_list":
            yield from _list(node, cite, depth)
        case "blockquote":
            for child in node.children:
                for piece in _block(child, cite, depth=depth):
                    yield piece if piece.code else replace(piece, text=_quoted(piece.text))
        case "table":
            yield Piece(_table(node), code=True)
        case "hr":
            yield Piece("———")
        case _:
            yield Piece(plain(node.content))


def _list(node: SyntaxTreeNode, cite: Cite, depth: int) -> Iterator[Piece]:
    number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else 0
    for position, item in enumerate(node.children):
        marker = f"{number + position}." if number else _BULLETS[min(depth, len(_BULLETS) - 1)]
        head = "    " * depth + marker
        for child in item.children:
            for piece in _block(child, cite, depth=depth + 1):
                nested = child.type in ("bullet_list", "ordered_list")
                if piece.code or nested:
                    yield piece
                else:
                    text = piece.text.replace("\n", "\n" + "    " * (depth + 1))
                    yield Piece(f"{head} {text}", tight=position > 0 or depth > 0 or not head.strip())
                    head = "    " * (depth + 1)


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


def _table(node: SyntaxTreeNode) -> str:
    """Columns in a fixed width, because Slack has no tables."""
    rows = [
        ["".join(_words(cell)).replace("\n", " ") for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(rows[0]))]
    lines = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def _words(node: SyntaxTreeNode) -> Iterator[str]:
    if node.type in ("text", "code_inline", "citation"):
        yield node.content
    elif node.type in ("softbreak", "hardbreak"):
        yield " "
    for child in node.children or ():
        yield from _words(child)


def _inline(node: SyntaxTreeNode, cite: Cite, active: frozenset[str]) -> str:
    return "".join(_span(child, cite, active) for child in node.children or ())


def _span(node: SyntaxTreeNode, cite: Cite, active: frozenset[str]) -> str:
    match node.type:
        case "text":
            return plain(node.content)
        case "code_inline":
            return code(node.content)
        case "softbreak":
            return " "
        case "hardbreak":
            return "\n"
        case "strong" | "em" | "s":
            return _styled({"strong": "*", "em": "_", "s": "~"}[node.type], node, cite, active)
        case "link":
            return _link(node, cite, active)
        case "image":
            return plain(f"[image: {node.content or 'without words'}]")
        case "citation":
            return " ".join(cite(number) for number in node.meta["numbers"])
        case _:
            return plain(node.content)


def _styled(mark: str, node: SyntaxTreeNode, cite: Cite, active: frozenset[str]) -> str:
    inner = _inline(node, cite, active | {mark})
    return inner if mark in active else _wrapped(mark, inner)


def _wrapped(mark: str, inner: str) -> str:
    """Slack wants the mark at the word itself, and a boundary outside of it: a zero-width space makes one."""
    stripped = inner.strip()
    return f"\u200b{mark}{stripped}{mark}\u200b" if stripped else inner


def _link(node: SyntaxTreeNode, cite: Cite, active: frozenset[str]) -> str:
    """Only absolute http(s) addresses are links, and each shows where it leads."""
    url, words = str(node.attrs.get("href", "")), "".join(_words(node)).strip()
    parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
    if parts is None or not parts.hostname:
        return _inline(node, cite, active)
    return f"{link(url, words or parts.hostname)} ({plain(parts.hostname)})"


def _address(url: str) -> str:
    """Nothing in it ends the address early."""
    return quote(url, safe="%/:=&?~#+!$,;'@()*[]").replace("&", "&amp;")


def _fitting(piece: Piece, limit: int) -> list[str]:
    if piece.code:
        return [f"{FENCE}\n{escape(part)}\n{FENCE}" for part in _cut_code(piece.text, limit - _FENCE_CHARS)]
    return cut(piece.text, limit)


def _cut_code(text: str, limit: int) -> list[str]:
    """At lines, so that every part can be read; a line that is too long itself is cut where it must be."""
    inert = text.replace(FENCE, "`\u200b`\u200b`")
    if length(escape(inert)) <= limit:
        return [inert]
    parts: list[str] = []
    size = limit + 1
    for line in (short for long in inert.split("\n") for short in _cut_line(long, limit)):
        needed = length(escape(line)) + 1
        if size + needed > limit:
            parts.append(line)
            size = needed
        else:
            parts[-1] += "\n" + line
            size += needed
    return parts


def _cut_line(line: str, limit: int) -> Iterator[str]:
    while length(escape(line)) > limit:
        end = limit // 6  # "&amp;" is five characters, and no character is more than two units
        yield line[:end]
        line = line[end:]
    yield line
