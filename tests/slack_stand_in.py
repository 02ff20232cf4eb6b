"""A stand-in for Slack's Web API on loopback that refuses what Slack refuses, by its reference's numbers and words.

Limits: 50 blocks a message, 3,000 characters a section, 10 elements a context, 25 an actions block, 75 a button's
label, 2,000 its value, 12,000 of all text of a message, five uses of a response address. Membership, authors and
time stamps are checked; a text that would mention somebody is remembered in `mentions`. A post whose
`client_msg_id` is known makes no other message.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlencode

TOKEN, SECRET = "xoxb-stand-in", "signing-secret"
TEAM, CHANNEL, DM, PERSON = "T0TEAM", "C0GENERAL", "D0DIRECT", "U0PERSON"
PLACE = ("", "")  # of no message
Json = dict[str, Any]


@dataclass
class Slack:
    base: str
    members: set[str] = field(default_factory=lambda: {CHANNEL, DM})  # channels that the bot is in
    messages: dict[tuple[str, str], Json] = field(default_factory=dict)  # (channel, ts) -> what it shows now
    history: list[tuple[str, Json]] = field(default_factory=list)  # every call that was taken
    refusals: list[str] = field(default_factory=list)
    whispers: list[Json] = field(default_factory=list)
    responses: list[Json] = field(default_factory=list)
    reactions: set[tuple[str, str, str]] = field(default_factory=set)
    mentions: list[str] = field(default_factory=list)
    rate_limits: int = 0  # how many calls are answered with 429 before the next one is taken
    down: bool = False
    response_uses: dict[str, int] = field(default_factory=dict)
    before: Any = None  # called with (method, arguments) before a call is taken
    after: Any = None  # called with (method, arguments) when a call was taken, before it is answered
    posts: dict[str, tuple[str, str]] = field(default_factory=dict)  # client_msg_id -> the message it made
    clock: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def api(self) -> str:
        return f"{self.base}/api/"

    def response_url(self, name: str = "one") -> str:
        return f"{self.base}/response/{name}"

    def texts(self, channel: str | None = None) -> list[str]:
        """What is shown in a channel, oldest first."""
        shown = [(ts, m) for (where, ts), m in self.messages.items() if channel in (None, where)]
        return [text_of(message) for _ts, message in sorted(shown, key=lambda item: item[0])]

    def called(self, method: str) -> list[Json]:
        return [arguments for name, arguments in self.history if name == method]

    def call(self, method: str, arguments: Json, token: str) -> tuple[int, Json]:
        if self.before is not None:
            self.before(method, arguments)
        with self.lock:
            if self.down:
                return 503, {}
            if self.rate_limits:
                self.rate_limits -= 1
                return 429, {"ok": False, "error": "ratelimited"}
            error = "invalid_auth" if token != f"Bearer {TOKEN}" else self._error(method, arguments)
            if error:
                self.refusals.append(f"{method}: {error}")
                return 200, {"ok": False, "error": error}
            self.history.append((method, arguments))
            reply = {"ok": True, **self._do(method, arguments)}
            if self.after is not None:
                self.after(method, arguments)
            return 200, reply

    def respond(self, name: str, message: Json) -> tuple[int, str]:
        with self.lock:
            uses = self.response_uses.get(name, 0)
            if uses >= 5:
                return 404, "used_url"
            if error := self._wrong_content(message):
                self.refusals.append(f"response: {error}")
                return 400, error
            self.response_uses[name] = uses + 1
            self.responses.append(message)
            return 200, "ok"

    def _error(self, method: str, given: Json) -> str:
        channel = given.get("channel", "")
        if method == "chat.postMessage":
            to_person = channel.startswith("U")
            if not to_person and channel not in self.members:
                return "not_in_channel"
            if self.posts.get(given["client_msg_id"], PLACE) not in (PLACE, *self.messages):
                return "duplicate_message_not_found"
            return self._wrong_content(given)
        if method == "chat.postEphemeral":
            return "" if channel in self.members else "not_in_channel"
        if method == "chat.update":
            if channel not in self.members and not channel.startswith("D"):
                return "channel_not_found"
            return self._wrong_content(given) if (channel, given["ts"]) in self.messages else "message_not_found"
        if method == "reactions.add":
            return "already_reacted" if self._reaction(given) in self.reactions else ""
        if method == "reactions.remove":
            return "" if self._reaction(given) in self.reactions else "no_reaction"
        return "unknown_method"

    def _do(self, method: str, given: Json) -> Json:
        channel = given["channel"]
        if method == "chat.postMessage":
            if given["client_msg_id"] not in self.posts:
                channel = DM if channel.startswith("U") else channel
                self.clock += 1
                ts = f"1700000000.{self.clock:06d}"
                self.messages[channel, ts] = given
                self.posts[given["client_msg_id"]] = (channel, ts)
            channel, ts = self.posts[given["client_msg_id"]]
            return {"channel": channel, "ts": ts, "message": {"ts": ts}}
        if method == "chat.postEphemeral":
            self.whispers.append(given)
            return {"message_ts": "1700000000.999999"}
        if method == "chat.update":
            self.messages[channel, given["ts"]] |= given
            return {"channel": channel, "ts": given["ts"], "text": given["text"]}
        if method == "reactions.add":
            self.reactions.add(self._reaction(given))
        else:
            self.reactions.discard(self._reaction(given))
        return {}

    @staticmethod
    def _reaction(given: Json) -> tuple[str, str, str]:
        return given["channel"], given["timestamp"], given["name"]

    def _wrong_content(self, message: Json) -> str:
        if message.get("unfurl_links") is not False or message.get("unfurl_media") is not False:
            return "previews_are_not_switched_off"  # not a word of Slack's: our own rule
        if len(message.get("text", "")) > 40_000:
            return "msg_too_long"
        blocks = message.get("blocks", [])
        if not blocks and not message.get("text"):
            return "no_text"
        if len(blocks) > 50 or any(wrong_block(block) for block in blocks):
            return "invalid_blocks"
        texts = [text for block in blocks for text in texts_of(block)] or [message["text"]]
        if sum(units(text) for text in texts) > 12_000:
            return "msg_blocks_too_long"
        self.mentions += [found for text in [*texts, message.get("text", "")] for found in MENTION.findall(text)]
        return ""


MENTION = re.compile(r"<[@!#][^>]*>")


def wrong_block(block: Json) -> bool:
    match block["type"]:
        case "section":
            return not _fits(block["text"], 3000)
        case "context":
            elements = block["elements"]
            return not 1 <= len(elements) <= 10 or not all(_fits(element, 3000) for element in elements)
        case "actions":
            return not 1 <= len(block["elements"]) <= 25 or any(map(_wrong_button, block["elements"]))
    return True


def _wrong_button(button: Json) -> bool:
    right = button["type"] == "button" and button["text"]["type"] == "plain_text" and _fits(button["text"], 75)
    return not right or len(button["value"]) > 2000 or len(button["action_id"]) > 255


def _fits(text: Json, limit: int) -> bool:
    return text["type"] in ("mrkdwn", "plain_text") and 1 <= units(text["text"]) <= limit


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def texts_of(block: Json) -> list[str]:
    if block["type"] == "section":
        return [block["text"]["text"]]
    return [element["text"] for element in block["elements"]] if block["type"] == "context" else []


def text_of(message: Json) -> str:
    """All that a message shows."""
    blocks = message.get("blocks")
    return "\n".join(text for block in blocks for text in texts_of(block)) if blocks else message["text"]


class _Handler(BaseHTTPRequestHandler):
    slack: Slack

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        kind, _, name = self.path.strip("/").partition("/")
        if kind == "response":
            status, text = self.slack.respond(name, body)
            return self._send(status, text.encode(), "text/plain")
        status, reply = self.slack.call(name, body, self.headers.get("Authorization", ""))
        return self._send(status, json.dumps(reply).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body))}
        for header, value in (headers | ({"Retry-After": "1"} if status == 429 else {})).items():
            self.send_header(header, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve() -> Iterator[Slack]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    slack = Slack(f"http://127.0.0.1:{server.server_port}")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"slack": slack})
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield slack
    finally:
        server.shutdown()
        server.server_close()


# --- what Slack sends, in the shapes of its reference


def signed(body: str, *, at: float | None = None, secret: str = SECRET) -> dict[str, str]:
    stamp = str(int(time.time() if at is None else at))
    digest = hmac.new(secret.encode(), f"v0:{stamp}:{body}".encode(), hashlib.sha256).hexdigest()
    return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}


def mention(text: str, *, event_id: str = "Ev0001", ts: str = "1699999999.000100", **event: Any) -> Json:
    """An `app_mention` as the Events API wraps it."""
    return _wrapped(
        event_id,
        {"type": "app_mention", "user": PERSON, "text": text, "ts": ts, "channel": CHANNEL, "event_ts": ts} | event,
    )


def direct(text: str, *, event_id: str = "Ev0002", ts: str = "1699999999.000200", **event: Any) -> Json:
    return _wrapped(
        event_id,
        {"type": "message", "channel_type": "im", "user": PERSON, "text": text, "ts": ts, "channel": DM, "event_ts": ts}
        | event,
    )


def _wrapped(event_id: str, event: Json) -> Json:
    shared = event.pop("is_ext_shared_channel", False)
    return {
        "token": "deprecated",
        "team_id": TEAM,
        "api_app_id": "A0APP",
        "event": event,
        "type": "event_callback",
        "event_id": event_id,
        "event_time": 1700000000,
        "authorizations": [{"enterprise_id": None, "team_id": TEAM, "user_id": "U0BOT", "is_bot": True}],
        "is_ext_shared_channel": shared,
        "event_context": "4-abc",
    }


def command(text: str, *, response_url: str, trigger_id: str = "13345224609.738474920.8088930838d88f008e0") -> str:
    """The body of a slash command: a form."""
    return urlencode(
        {
            "token": "deprecated",
            "team_id": TEAM,
            "team_domain": "example",
            "channel_id": CHANNEL,
            "channel_name": "general",
            "user_id": PERSON,
            "user_name": "person",
            "command": "/ask",
            "text": text,
            "api_app_id": "A0APP",
            "is_enterprise_install": "false",
            "response_url": response_url,
            "trigger_id": trigger_id,
        }
    )


def press(action_id: str, value: str, *, response_url: str, user: str = PERSON) -> str:
    """The body of a pressed button: a form whose only field is JSON."""
    action = {"type": "button", "block_id": "b1", "action_id": action_id, "value": value, "action_ts": "1700000001.1"}
    payload = {
        "type": "block_actions",
        "user": {"id": user, "username": "person", "team_id": TEAM},
        "team": {"id": TEAM, "domain": "example"},
        "container": {"type": "message", "message_ts": "1700000000.000001", "channel_id": CHANNEL},
        "trigger_id": "13345224609.1.2",
        "channel": {"id": CHANNEL, "name": "general"},
        "response_url": response_url,
        "actions": [action],
    }
    return urlencode({"payload": json.dumps(payload)})
