"""The MCP server for coding agents: Streamable HTTP at `/mcp` of the web process, and stdio by `manage.py mcp`.

Built on the official SDK, which is the optional extra `mcp`; without it the address says what to install. Requests
carry a token of the account page; every request is checked and counted as one of the API is, and keeps no session.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec
from urllib.parse import urlsplit

from django.conf import settings
from django.http import Http404
from django.http.request import split_domain_port, validate_host
from ninja.errors import HttpError
from pydantic import Field, ValidationError

from assistant import mcp_tools, tokens
from assistant.api import caller_of
from assistant.chat_api import AskIn, TokenCaller
from assistant.errors import AssistantError
from assistant.threads import in_thread
from indexing.errors import IndexingError
from search.api import ScopeIn
from search.errors import SearchError

if TYPE_CHECKING:
    from mcp.server.mcpserver import MCPServer

log = logging.getLogger(__name__)

PATH = "/mcp"
MISSING = "The MCP server needs an extra that is not installed: pip install 'codebase-assistant[mcp]', then restart."
NOTHING_TO_FOLLOW = "This server sends nothing but answers: POST to it."  # a stream would stay open, for nothing
INSTRUCTIONS = (
    "Search and read the code of this organisation's indexed repositories. Begin with search_code; it gives "
    "coordinates that read_code takes as they are. ask gives a cited answer in prose and takes longer."
)
_SEARCHES = ThreadPoolExecutor(max_workers=4, thread_name_prefix="mcp")

Scope = dict[str, Any]  # Any: ASGI messages are open mappings
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Arguments = ParamSpec("Arguments")

current_caller: ContextVar[TokenCaller] = ContextVar("current_caller")

Names = Annotated[list[str | int], Field(description="Names or ids of repositories; empty: all", max_length=50)]
Tokens = Annotated[int, Field(description="How long the reply may be, in tokens", ge=100, le=mcp_tools.MAX_TOKENS)]
Offset = Annotated[int, Field(ge=0, le=2**40)]


def installed() -> bool:
    return importlib.util.find_spec("mcp") is not None


def make_server(secret: str = "") -> MCPServer[Any]:
    """The tools, used by whoever `current_caller` is; with `secret` by its token, which is checked at each call."""
    from mcp.server.mcpserver import MCPServer

    server: MCPServer[Any] = MCPServer("codebase-assistant", instructions=INSTRUCTIONS)
    for tool in (search_code, read_code, list_repositories, ask):
        server.add_tool(_answering(tool, secret), structured_output=False)
    return server


async def search_code(
    question: Annotated[str, Field(description="A question or words; identifiers are found as they are")],
    repositories: Names = [],  # noqa: B006  # never changed
    path: Annotated[str, Field(description="Prefer this folder")] = "",
    path_filter: Annotated[str, Field(description="Leave out everything outside of this folder")] = "",
    languages: Annotated[
        list[str], Field(max_length=20, description="Keep to these, by name or file ending: python, ts")
    ] = [],  # noqa: B006  # never changed
    limit: Annotated[int, Field(ge=1, le=50)] = 8,
    max_tokens: Tokens = 2000,
) -> str:
    """Find code. Gives ranked coordinates first, then the code of the best ones as far as max_tokens goes."""
    scope = ScopeIn(repositories=repositories, path=path, path_filter=path_filter, languages=languages)
    work = functools.partial(mcp_tools.search_code, current_caller.get(), question, scope, limit, max_tokens)
    return await in_thread(work, executor=_SEARCHES)


async def read_code(
    repository_id: int,
    commit: str,
    path: Annotated[str, Field(description="As search_code wrote it")],
    start_byte: Offset = 0,
    end_byte: Offset = 0,
    start_line: Offset = 0,
    end_line: Offset = 0,
    max_tokens: Tokens = 4000,
) -> str:
    """Read a range of bytes, else of lines, else the beginning of a file. Secrets in it are masked."""
    byte_range, line_range = (start_byte, end_byte), (start_line, end_line)
    work = functools.partial(mcp_tools.read_code, current_caller.get(), repository_id, commit, path)
    return await in_thread(work, byte_range, line_range, max_tokens, executor=_SEARCHES)


async def list_repositories(
    name: Annotated[str, Field(description="Only names that contain this")] = "", cursor: str = ""
) -> str:
    """List the repositories that can be searched, with the commit that is indexed."""
    return await in_thread(mcp_tools.list_repositories, current_caller.get(), name, cursor)


async def ask(
    question: str,
    repositories: Names = [],  # noqa: B006  # never changed
    mode: Literal["explain", "how-to", "fix", "diagram"] = "explain",
    conversation_id: Annotated[str, Field(description="Follow up in this conversation")] = "",
) -> str:
    """Ask a question about the code and get an answer whose claims cite exact places."""
    return await mcp_tools.ask(
        current_caller.get(),
        AskIn.model_validate(
            {
                "question": question,
                "repositories": repositories,
                "mode": mode,
                "conversation_id": conversation_id or None,
            }
        ),
    )


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[App]:
    """The ASGI application of `/mcp`, for as long as this context is open."""
    from mcp.server.transport_security import TransportSecuritySettings

    server = make_server()
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=settings.API_MAX_BODY_BYTES,
        # Hosts and origins are checked by `_refusal`, with the settings that hold for all of this server.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    async with server.session_manager.run():
        yield functools.partial(_serve, app)


async def not_installed(scope: Scope, receive: Receive, send: Send) -> None:
    await _send_error(send, 501, "not_installed", MISSING)


async def _serve(app: App, scope: Scope, receive: Receive, send: Send) -> None:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    if (refusal := _refusal(headers)) is not None:
        return await _send_error(send, 403, "forbidden", refusal)
    if scope["method"] == "GET":
        return await _send_error(send, 405, "method_not_allowed", NOTHING_TO_FOLLOW)
    caller = await in_thread(_caller, headers.get("authorization", ""))
    if isinstance(caller, tokens.Allowance):
        return await _send_error(send, 429, "too_many_requests", caller.refusal, retry=caller.retry_seconds)
    if caller is None:
        return await _send_error(send, 401, "unauthorized", "Send a valid token: `Authorization: Bearer cba_...`.")
    before = current_caller.set(caller)
    try:
        return await app(scope, receive, send)
    finally:
        current_caller.reset(before)


def _refusal(headers: dict[str, str]) -> str | None:
    """Browsers of other sites must not get here, not even by a host name that leads to this machine."""
    hosts = [headers.get("host", "")]
    if "origin" in headers:
        hosts.append(urlsplit(headers["origin"]).netloc)
    domains = [split_domain_port(host)[0] for host in hosts]
    allowed = all(domain and validate_host(domain, settings.ALLOWED_HOSTS) for domain in domains)
    return None if allowed else "This server is not reached by that host name or from that origin. See ALLOWED_HOSTS."


def _caller(authorization: str) -> TokenCaller | tokens.Allowance | None:
    scheme, _, secret = authorization.partition(" ")
    caller = caller_of(secret.strip()) if scheme.lower() == "bearer" else None
    if caller is None or caller.token is None:
        return None
    allowance = tokens.count_request(caller.token)
    return allowance if allowance.refusal else caller


def _answering(tool: Callable[Arguments, Awaitable[str]], secret: str = "") -> Callable[Arguments, Awaitable[str]]:
    """What we raise on purpose is told to the agent; a bug is not."""
    from mcp.server.mcpserver.exceptions import ToolError

    @functools.wraps(tool)
    async def answering(*arguments: Arguments.args, **options: Arguments.kwargs) -> str:
        try:
            if secret:
                current_caller.set(await in_thread(_holder_of, secret))
            return await tool(*arguments, **options)
        except (AssistantError, IndexingError, SearchError, Http404, HttpError) as error:
            raise ToolError(str(error)) from error
        except ValidationError as error:
            reasons = (f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors())
            raise ToolError("; ".join(reasons)) from error

    return answering


def _holder_of(secret: str) -> TokenCaller:
    """Raises HttpError for a token that ended meanwhile, or has used up its requests."""
    caller = _caller(f"Bearer {secret}")
    if caller is None:
        raise HttpError(401, "The token in MCP_TOKEN was revoked or has expired. Make another one.")
    if isinstance(caller, tokens.Allowance):
        raise HttpError(429, caller.refusal)
    return caller


async def _send_error(send: Send, status: int, code: str, message: str, *, retry: int = 0) -> None:
    request_id = uuid.uuid4().hex
    log.info("request %s to %s was refused: %d %s", request_id, PATH, status, code)
    headers = [(b"content-type", b"application/json"), (b"x-request-id", request_id.encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 405:
        headers.append((b"allow", b"POST"))
    if retry:
        headers.append((b"retry-after", str(retry).encode()))
    body = json.dumps({"error": {"code": code, "message": message, "request_id": request_id}}).encode()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
