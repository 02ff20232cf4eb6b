"""Does each citation that a page shows open the bytes that the model was shown under its number?

`CitingModel` stands in for the model: it remembers its passages and cites all of them. `wrong_citations` opens what the
page links as a browser does and compares three readings of the same place: the passage in the prompt, the bytes in
the repository, decoded here, and the marked text of the viewer. Used by a test and by `tests/measure_citations.py`.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

from django.contrib.auth.models import User
from django.test import Client

from assistant import answering, conversations
from assistant.models import Message
from indexing.errors import LLMBadReply
from indexing.git_process import git
from indexing.highlighting import drawn
from indexing.llm import StreamPart
from indexing.models import Repository
from search.results import Scope

MASK = "•"
MADE_UP = 97
_CHIP = re.compile(r'<a class="citation[^>]* data-n="(\d+)" href="([^"]+)"')
_CUT = re.compile(r'<span class="c">(?:… | … [\d,]+ more characters)</span>')
_LINE_ENDS = re.compile(r"\r\n|\r|\n")


class CitingModel:
    """In place of `llm.stream`. `shown`: number -> path and text of the passages in the last prompt."""

    def __init__(self) -> None:
        self.shown: dict[int, tuple[str, str]] = {}

    async def __call__(self, messages: Sequence[dict[str, str]], **_: Any) -> AsyncGenerator[StreamPart, None]:
        mark = re.search(r'"<<<([0-9a-f]+) n"', messages[0]["content"])
        assert mark is not None
        fence = rf"<<<{mark[1]} (\d+)\n(.*?)\n(.*?)\n{mark[1]}>>>\n"
        blocks = re.findall(fence, messages[-1]["content"], flags=re.DOTALL)
        self.shown = {int(number): (json.loads(head)["path"], text) for number, head, text in blocks}
        for part in _answer(sorted(self.shown)):
            yield StreamPart(part, None)
        yield StreamPart("", "stop")


def _answer(numbers: Sequence[int]) -> Iterator[str]:
    """Every passage, in each of the forms that models use; and a number that stands for nothing."""
    forms = ("[{}]", "【{}】", "[ {} ]", "[{}, {}]")
    for place, number in enumerate(numbers):
        yield f"Claim {place} " + forms[place % len(forms)].format(number, numbers[0]) + ".\n\n"
    yield f"Code is code: `[{numbers[0]}]`. Nothing stands behind [{MADE_UP}] and [{numbers[0]}](https://example.org)."


def no_structured_reply(*_: Any, **__: Any) -> None:
    """In place of `llm.structured`: plans and rankings are made without a model."""
    raise LLMBadReply("The script has no plan.")


def answered(user: User, question: str, repository: Repository) -> Message:
    scope = Scope(repository_ids=(repository.pk,))
    message = conversations.start_message(user, question, request_id=uuid.uuid4(), scope=scope)
    asyncio.run(_answered(message))
    message.refresh_from_db()
    return message


async def _answered(message: Message) -> None:
    answering.start_answer(message.pk)
    async for _event in answering.event_stream(message):
        pass


def wrong_citations(message: Message, client: Client, model: CitingModel) -> tuple[int, list[str]]:
    """How many places the page links, and what is wrong with any of them."""
    page = client.get(f"/c/{message.conversation_id}/").content.decode()
    links = {int(number): href.replace("&amp;", "&") for number, href in _CHIP.findall(page)}
    wrong = [f"{number} is linked, and stands for nothing" for number in links if number not in model.shown]
    wrong += [f"{number} of the prompt is not linked" for number in model.shown if number not in links]
    for number in sorted(links.keys() & model.shown.keys()):
        row = message.citations.get(attempt=message.attempt, number=number)
        problem = _wrong(client, links[number], *model.shown[number], row.encoding)
        wrong += [f"{message.question} [{number}] {links[number]}: {problem}"] if problem else []
    return len(links), wrong


def _wrong(client: Client, href: str, path: str, passage: str, encoding: str) -> str:
    """Why the link does not show what the prompt had; empty when it does."""
    address = urlsplit(href)
    asked = parse_qs(address.query)
    _, number, _, _, commit = address.path.strip("/").split("/")
    raw_path = unquote_to_bytes(re.search(r"path=([^&]*)", address.query)[1])  # type: ignore[index]
    if raw_path.decode("utf-8", "backslashreplace") != path:
        return f"another file than {path}"
    repository = Repository.objects.select_related("mirror").get(pk=int(number))
    raw = git(repository.mirror.path, "cat-file", "blob", b"%s:%s" % (commit.encode(), raw_path)).stdout
    start, end = map(int, asked["bytes"][0].split("-"))
    try:
        before, text = raw[:start].decode(encoding), raw[start:end].decode(encoding)
    except UnicodeDecodeError as error:
        return f"bytes {start}-{end} cut a character: {error}"
    text = text.removeprefix("\ufeff")
    lines = [drawn(line) for line in _LINE_ENDS.split(text)]
    if not _same("\n".join(_LINE_ENDS.split(text)).rstrip(), "\n".join(_LINE_ENDS.split(passage)).rstrip()):
        return f"the prompt had other text: {passage[:80]!r} for {text[:80]!r}"
    first = len(_LINE_ENDS.split(before))
    said = re.fullmatch(r"L(\d+)(?:-L(\d+))?", address.fragment)
    if said is None or int(said[1]) != first:
        return f"it says {address.fragment}, and begins in line {first}"
    response = client.get(href)
    if response.status_code != 200:
        return f"status {response.status_code}"
    return _wrong_view(_marked(response.content.decode()), lines)


def _wrong_view(marked: Sequence[tuple[str, bool]], lines: Sequence[str]) -> str:
    while lines and not lines[-1]:  # the range ends with a line end
        lines = lines[:-1]
    if len(marked) != len(lines):
        return f"{len(marked)} lines are marked in place of {len(lines)}"
    for (shown, is_cut), line in zip(marked, lines, strict=True):
        if not (is_cut or _same(line.rstrip("\r\n"), shown)):
            return f"the viewer marks {shown[:80]!r} for {line[:80]!r}"
    return ""


def _same(text: str, shown: str) -> bool:
    """Character for character, but for what is masked."""
    return len(text) == len(shown) and all(b in (a, MASK) for a, b in zip(text, shown, strict=True))


def _marked(html: str) -> list[tuple[str, bool]]:
    """The marked text of each marked line, and whether that line was too long to be shown whole."""
    reader = _Marked()
    for item in re.findall(r'<li id="L\d+" class="hit">.*?</li>', html, flags=re.DOTALL):
        reader.rows.append("")
        reader.caret = ""
        reader.feed(_CUT.sub("", item))
        reader.texts.append((reader.caret if reader.has_caret else reader.rows[-1], bool(_CUT.search(item))))
        reader.has_caret = False
    return reader.texts


class _Marked(HTMLParser):
    """Text of a line, and of the part between its carets."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[str] = []
        self.texts: list[tuple[str, bool]] = []
        self.open: list[set[str]] = []
        self.caret, self.has_caret = "", False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "span":
            classes = set((dict(attrs).get("class") or "").split())
            self.open.append(classes)
            self.has_caret = self.has_caret or bool(classes & {"from", "to"})

    def handle_endtag(self, tag: str) -> None:
        if tag == "span":
            self.open.pop()

    def handle_data(self, data: str) -> None:
        classes = set().union(*self.open)
        if self.open and not classes & {"ln", "flag"}:
            self.rows[-1] += data
            self.caret += data if classes & {"from", "to"} else ""
