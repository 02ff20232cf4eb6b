"""An answer that is complete -> one signed POST to an address that the asker named, tried again until it is taken.

The address is resolved and checked each time, and the connection goes to what was checked, so that nobody makes this
server talk to the network behind it. Redirects are not followed. The body is what the token would read at that
moment: a token that was revoked meanwhile gets nothing. The signature covers the time, so that a copy can be refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
import hmac
import http.client
import logging
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings
from django.db import close_old_connections
from django.db.models import F
from django.utils import timezone

from assistant import answering, conversations, jobs, tasks, tokens
from assistant.errors import InvalidCallback
from assistant.models import ApiToken, Callback, Message
from assistant.threads import in_thread
from indexing.errors import GitError
from indexing.network import public_addresses

MAX_URL_CHARS = 1000
TIMEOUT_SECONDS = 10  # without a sign of the receiver
LONGEST_SECONDS = 30  # of one attempt: who answers byte by byte must not keep a worker
FAREWELL_SECONDS = 1.0  # from then: for what the receiver has already said
MAX_REPLY_BYTES = 10_000
WAITS = (10.0, 60.0, 300.0, 1800.0, 7200.0)  # seconds after each failure; the next one is the last
MAX_ATTEMPTS = len(WAITS) + 1
POLL_SECONDS = 10.0  # for an answer that is still being written
MAX_RETRY_AFTER_SECONDS = 3600.0
_AGAIN = frozenset({408, 409, 425, 429})

log = logging.getLogger(__name__)
_following: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    retry_after: float = 0.0


def check_url(url: str) -> None:
    """Raises InvalidCallback."""
    _target(url)


def secret_of(token: ApiToken) -> str:
    """What signs the callbacks of a token. Made from the server's own secret, so that it is stored nowhere."""
    text = f"callback secret of token {token.pk} {token.token_sha256}"
    return "cbs_" + hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def signature(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def register(message: Message, token: ApiToken, url: str, origin: str) -> Callback:
    """One callback a message; asking again under the same key changes nothing."""
    due_at = timezone.now() + jobs.MESSAGE_AGAIN
    row, _created = Callback.objects.get_or_create(
        message=message, defaults={"token": token, "url": url, "origin": origin, "due_at": due_at}
    )
    return row


def follow(message: Message, callback: Callback) -> None:
    """Send the callback as soon as the answer is complete. From an async view; `jobs.recover` is the safety net."""
    task = asyncio.get_running_loop().create_task(_follow(message, callback), context=contextvars.Context())
    _following.add(task)
    task.add_done_callback(_following.discard)


async def _follow(message: Message, callback: Callback) -> None:
    async for _event in answering.event_stream(message):
        pass
    await in_thread(jobs.send, callback, tasks.call_back.delay)


def deliver(callback_id: int, body_of: Callable[[Callback], bytes | None]) -> None:
    """One attempt. `body_of`: the answer as the token may read it now; None when it may not."""
    lease = jobs.claim(Callback, callback_id)
    if lease is None:
        return
    with lease:
        row = Callback.objects.select_related("message", "token__user").get(pk=callback_id)
        if not row.message.finished:
            conversations.end_orphans(row.message_id)
            lease.put_back("", seconds=POLL_SECONDS, attempts=F("attempts") - 1)
            return
        if row.attempts > MAX_ATTEMPTS:
            _give_up(row, lease, jobs.DIED)
            return
        try:
            body = body_of(row) if tokens.valid().filter(pk=row.token_id).exists() else None
            if body is None:
                lease.finish(failed="The token was revoked, has expired, or may not read this answer any more.")
                return
            reply = _post(row.url, body, _headers(row, body))
        except InvalidCallback as error:
            lease.finish(failed=str(error))
        except (OSError, http.client.HTTPException) as error:
            _later(row, lease, f"No connection ({type(error).__name__}).")
        except Exception as error:  # a bug must not be met again every minute for ever
            log.exception("callback %d failed", row.pk)
            close_old_connections()
            _later(row, lease, f"This server failed ({type(error).__name__}); its log says where.")
        else:
            _take(row, lease, reply)


def _take(row: Callback, lease: jobs.Lease, reply: _Reply) -> None:
    if 200 <= reply.status < 300:
        lease.finish(status=reply.status)
    elif reply.status >= 500 or reply.status in _AGAIN:
        _later(row, lease, f"The receiver answered {reply.status}.", status=reply.status, wait=reply.retry_after)
    else:
        lease.finish(failed=f"The receiver answered {reply.status}, so it is not tried again.", status=reply.status)


def _later(row: Callback, lease: jobs.Lease, why: str, *, status: int | None = None, wait: float = 0.0) -> None:
    if row.attempts >= MAX_ATTEMPTS:
        _give_up(row, lease, f"{why} It was tried {row.attempts} times.", status=status)
        return
    seconds = max(WAITS[row.attempts - 1], min(wait, MAX_RETRY_AFTER_SECONDS))
    lease.put_back(why, seconds=seconds, status=status)


def _give_up(row: Callback, lease: jobs.Lease, why: str, *, status: int | None = None) -> None:
    log.error("callback %d is given up: %s", row.pk, why)
    lease.finish(failed=why, status=status)


def _headers(row: Callback, body: bytes) -> dict[str, str]:
    stamp = int(time.time())
    return {
        "Content-Type": "application/json",
        "User-Agent": "codebase-assistant",
        "X-Callback-Id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"callback:{row.pk}")),
        "X-Callback-Timestamp": str(stamp),
        "X-Callback-Signature": f"sha256={signature(secret_of(row.token), stamp, body)}",
    }


def _target(url: str) -> tuple[bool, str, int, str, list[str]]:
    """TLS, host, port, path and the addresses that may be connected to. Raises InvalidCallback."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidCallback("The callback URL cannot be read.") from error
    plain = all(" " < character < "\x7f" for character in url)
    if parts.scheme not in ("http", "https") or not host or not plain or len(url) > MAX_URL_CHARS:
        raise InvalidCallback(f"A callback URL is an http or https address of at most {MAX_URL_CHARS} characters.")
    if parts.username or parts.password:
        raise InvalidCallback("A callback URL has no user name or password in it; its signature says who calls.")
    tls = parts.scheme == "https"
    port = port or (443 if tls else 80)
    try:
        found = public_addresses(host, port, allowed=settings.CALLBACK_ALLOWED_HOSTS, setting="CALLBACK_ALLOWED_HOSTS")
    except GitError as error:
        raise InvalidCallback(str(error)) from error
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return tls, host, port, path, found


def _post(url: str, body: bytes, headers: Mapping[str, str]) -> _Reply:
    """Raises InvalidCallback, OSError and HTTPException."""
    tls, host, port, path, addresses = _target(url)
    connection = _Pinned(host, port, addresses[0], tls=tls)
    limit = threading.Timer(LONGEST_SECONDS, connection.end)
    limit.start()
    try:
        connection.request("POST", path, body, dict(headers))
        connection.asked = True
        reply = connection.getresponse()
        reply.read(MAX_REPLY_BYTES)
        seconds = reply.headers.get("Retry-After", "")
        return _Reply(reply.status, float(seconds) if seconds.isdecimal() and len(seconds) < 8 else 0.0)
    finally:
        limit.cancel()
        connection.close()


class _Pinned(http.client.HTTPConnection):
    """To an address that was checked, under the name that it was checked for."""

    def __init__(self, host: str, port: int, address: str, *, tls: bool) -> None:
        super().__init__(host, port, timeout=TIMEOUT_SECONDS)
        self.default_port = 443 if tls else 80
        self._address = address
        self._context = ssl.create_default_context() if tls else None
        self._open: socket.socket | None = None  # `sock` is forgotten as soon as a reply begins
        self.asked = False  # the request is sent whole

    def connect(self) -> None:
        self.sock = self._open = socket.create_connection((self._address, self.port), self.timeout)
        if self._context is not None:
            self.sock = self._open = self._context.wrap_socket(self.sock, server_hostname=self.host)

    def end(self) -> None:
        """From another thread: what waits for the receiver ends. Without the farewell of TLS, which would wait.

        A reply first gets a moment to end where it is: closed for writing as well, the next byte that comes would be
        answered by a reset, and what had come before it could not be read any more.
        """
        with contextlib.suppress(OSError):
            if self._open is not None and self.asked:
                socket.socket.shutdown(self._open, socket.SHUT_RD)
                time.sleep(FAREWELL_SECONDS)
            if self._open is not None:
                socket.socket.shutdown(self._open, socket.SHUT_RDWR)
