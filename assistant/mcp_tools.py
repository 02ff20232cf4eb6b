"""What coding agents may call: search, read, list, ask. Text out, sized for a context window.

Coordinates come first and are never left out; code follows as far as the token budget goes. Knows nothing of the
protocol: `mcp.py` serves these functions. What a caller may not read is as unknown as what does not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, unquote_to_bytes

from ninja.errors import HttpError

from assistant import answering, citations, conversations
from assistant.chat_api import AskIn, TokenCaller, check_token, code_of, message_of, stored_question
from assistant.models import ApiToken, Message
from assistant.rendering import WITHHELD
from assistant.threads import in_thread
from indexing.masking import mask_secrets
from indexing.models import Repository
from indexing.paging import page
from indexing.status import RepositoryStatus, statuses
from search import pipeline
from search.api import ScopeIn, scope_of
from search.results import Hit
from search.snippets import read_snippets

CUT = "[cut]"
CHARS_PER_TOKEN = 3  # of code; measured 3.1 with the embedding model's tokenizer
MAX_TOKENS = 20_000
REPOSITORIES_SHOWN = 100


def search_code(caller: TokenCaller, question: str, scope: ScopeIn, limit: int, max_tokens: int) -> str:
    """Ranked places, then their code. Raises Http404 and SearchError."""
    _need(caller, ApiToken.Scope.READ)
    result = pipeline.search(
        question, principal=caller.principal, scope=scope_of(scope, caller.principal), limit=limit, use_llm=False
    )
    if not result.hits:
        return "\n".join(["Nothing was found.", *result.trace.notices])
    places = [_place(number, hit) for number, hit in enumerate(result.hits, start=1)]
    head = "\n".join([*places, *(f"Note: {notice}" for notice in result.trace.notices)])
    return head + _snippets(result.hits, _chars(max_tokens) - len(head))


def read_code(
    caller: TokenCaller,
    repository_id: int,
    commit: str,
    path: str,
    byte_range: tuple[int, int],
    line_range: tuple[int, int],
    max_tokens: int,
) -> str:
    """Where the text is, then the text. `path` as the other tools write it. Raises Http404 and SourceNotFound."""
    _need(caller, ApiToken.Scope.READ)
    code = code_of(caller, repository_id, commit, unquote_to_bytes(path), byte_range, line_range)
    lines = code.text.splitlines(keepends=True)
    kept = _fitting(lines, _chars(max_tokens))
    last = code.start_line + max(0, kept - 1)
    text = "".join(lines[:kept]) if kept else code.text[: _chars(max_tokens)]
    head = f"{code.repository} {code.path} lines {code.start_line}-{last} of commit {code.commit}, {code.language}"
    more = "" if kept == len(lines) else f"\n[cut here; go on with start_line={last + 1}]"
    return f"{head}\n{text}{more}"


def list_repositories(caller: TokenCaller, name: str, cursor: str) -> str:
    """One line a repository. Raises InvalidCursor."""
    _need(caller, ApiToken.Scope.READ)
    readable = Repository.objects.visible_to(caller.principal).filter(name__icontains=name.replace("\0", ""))
    rows, next_cursor = page(readable.select_related("mirror"), cursor, REPOSITORIES_SHOWN)
    lines = [_repository_line(row) for row in statuses(rows)] or ["There is no such repository."]
    return "\n".join([*lines, f"More with cursor={next_cursor}"] if next_cursor else lines)


async def ask(caller: TokenCaller, question: AskIn) -> str:
    """The answer with its sources, once it is complete. Raises Http404, HttpError and AssistantError."""
    _need(caller, ApiToken.Scope.ASK)
    message = await in_thread(stored_question, question, caller)
    answering.start_answer(message.pk)
    async for _event in answering.event_stream(message):
        pass
    return await in_thread(_answer, caller, message)


def _answer(caller: TokenCaller, message: Message) -> str:
    check_token(caller)
    fresh = message_of(caller, message.pk)
    evidence = conversations.evidence(fresh, caller.principal)
    if citations.withheld(evidence):
        return WITHHELD
    parts = [fresh.answer, fresh.error, *(f"Note: {notice}" for notice in fresh.notices)]
    for item in evidence:
        row = item.citation
        if row is not None and (item.cited or not fresh.answered_by):
            parts.append(
                f"[{item.number}] {item.title}\n    repository_id={row.repository_id} commit={row.commit} "
                f"path={quote(bytes(row.path), safe='/')} start_byte={row.start_byte} end_byte={row.end_byte}"
            )
    parts.append(f"conversation_id={fresh.conversation_id}")
    return "\n".join(part for part in parts if part)


def _need(caller: TokenCaller, scope: str) -> None:
    if caller.token is not None and scope not in caller.token.scopes:
        raise HttpError(403, f"This token lacks the scope `{scope}`. Make one that has it.")


def _place(number: int, hit: Hit) -> str:
    return (
        f"[{number}] {hit.repository} {hit.display_path}:{hit.start_line}-{hit.end_line} {hit.kind} {hit.symbol}\n"
        f"    repository_id={hit.repository_id} commit={hit.commit} path={quote(hit.path, safe='/')} "
        f"start_byte={hit.start_byte} end_byte={hit.end_byte}"
    )


def _snippets(hits: Sequence[Hit], chars: int) -> str:
    """The code of the best hits, each whole or cut at a line, until the budget is used up."""
    parts = []
    for number, (hit, text) in enumerate(zip(hits, read_snippets(hits), strict=True), start=1):
        head = f"\n\n--- [{number}] {hit.display_path}:{hit.start_line}\n"
        lines = mask_secrets(text).splitlines(keepends=True)
        kept = _fitting(lines, chars - len(head) - len(CUT))
        if not kept:
            break
        part = head + "".join(lines[:kept]) + (CUT if kept < len(lines) else "")
        parts.append(part)
        chars -= len(part)
    return "".join(parts)


def _fitting(lines: Sequence[str], chars: int) -> int:
    """How many of the lines fit."""
    for number, line in enumerate(lines):
        chars -= len(line)
        if chars < 0:
            return number
    return len(lines)


def _chars(max_tokens: int) -> int:
    return min(max(max_tokens, 100), MAX_TOKENS) * CHARS_PER_TOKEN


def _repository_line(row: RepositoryStatus) -> str:
    repository, commit = row.repository, row.current.commit if row.current else "-"
    golden = " golden" if repository.golden else ""
    about = f" {' '.join(repository.description.split())[:120]}" if repository.description else ""
    return f"{repository.pk} {repository.name}{golden} commit={commit} ({row.label}){about}"
