"""Slack's Web API as far as we call it. Rate limits are waited for; what failed says what to do about it.

The only module that imports slack_sdk's clients. Nothing is unfurled: an address in an answer must not be fetched.
"""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.http_retry.builtin_handlers import RateLimitErrorRetryHandler
from slack_sdk.http_retry.handler import RetryHandler
from slack_sdk.webhook import WebhookClient

from assistant.errors import SlackClosed, SlackFailed, SlackGone

TIMEOUT_SECONDS = 10
RATE_LIMIT_WAITS = 3
# The bot is not (any more) where it was asked, or may not write there.
_CLOSED = frozenset(
    "not_in_channel channel_not_found is_archived no_permission restricted_action restricted_action_thread_locked "
    "user_not_in_channel restricted_action_read_only_channel restricted_action_thread_only_channel "
    "messages_tab_disabled".split()
)
_GONE = frozenset(
    "message_not_found cant_update_message edit_window_closed duplicate_message_not_found "
    "duplicate_channel_not_found".split()
)
_WAYS_OUT = {
    "invalid_auth": "set SLACK_BOT_TOKEN to the token of the installed app",
    "not_authed": "set SLACK_BOT_TOKEN",
    "token_revoked": "install the app again and set SLACK_BOT_TOKEN to its token",
    "account_inactive": "install the app again and set SLACK_BOT_TOKEN to its token",
    "missing_scope": "install the app with the manifest of docs/slack.md",
}

Message = dict[str, Any]  # Any: blocks of Slack


def post(channel: str, message: Message, *, key: str, thread_ts: str = "") -> tuple[str, str]:
    """The channel and time of the message; `channel` may be a person. Raises SlackClosed and SlackFailed.

    Under one `key` there is one message, also when nobody here has heard that Slack took it: the second time Slack
    knows its `client_msg_id` and answers with the first one. When that was deleted meanwhile, another one is posted.
    """
    arguments = {"channel": channel, "thread_ts": thread_ts or None, **_inert(message)}
    same = uuid.uuid5(uuid.NAMESPACE_URL, f"slack:{settings.SLACK_BOT_TOKEN}:{key}")
    try:
        reply = _call("chat.postMessage", client_msg_id=str(same), **arguments)
    except SlackGone:
        reply = _call("chat.postMessage", client_msg_id=str(uuid.uuid4()), **arguments)
    return reply["channel"], reply["ts"]


def update(channel: str, ts: str, message: Message) -> None:
    """Raises SlackGone when the message was deleted, SlackClosed and SlackFailed."""
    _call("chat.update", channel=channel, ts=ts, **_inert(message))


def whisper(channel: str, user: str, text: str, *, thread_ts: str = "") -> None:
    """A message that one person sees. Raises SlackClosed and SlackFailed."""
    _call("chat.postEphemeral", channel=channel, user=user, thread_ts=thread_ts or None, **_inert({"text": text}))


def react(channel: str, ts: str, name: str) -> None:
    """Raises SlackFailed."""
    _call("reactions.add", channel=channel, timestamp=ts, name=name)


def end_reaction(channel: str, ts: str, name: str) -> None:
    """Raises SlackFailed."""
    _call("reactions.remove", channel=channel, timestamp=ts, name=name)


def respond(response_url: str, message: Message) -> None:
    """To a command or a button: at most five times within 30 minutes. Raises SlackGone after that, and SlackFailed."""
    client = WebhookClient(response_url, timeout=TIMEOUT_SECONDS, retry_handlers=_handlers())
    try:
        reply = client.send(response_type="ephemeral", **_inert(message, parse=False))
    except (SlackClientError, OSError, ValueError) as error:
        raise SlackFailed(f"Slack could not be reached ({type(error).__name__}).") from error
    if reply.status_code in (404, 410) or "used_url" in reply.body or "expired_url" in reply.body:
        raise SlackGone("Slack's address for replies is used up.")
    if reply.status_code != 200:
        raise SlackFailed(f"Slack answered {reply.status_code} to a reply.")


def _inert(message: Message, *, parse: bool = True) -> Message:
    """No previews of addresses, no names made into mentions."""
    quiet = {"unfurl_links": False, "unfurl_media": False}
    return {**message, **quiet, **({"parse": "none", "link_names": False} if parse else {})}


def _call(method: str, **arguments: Any) -> Any:  # Any: JSON of Slack
    client = WebClient(
        settings.SLACK_BOT_TOKEN,
        base_url=settings.SLACK_API_URL,
        timeout=TIMEOUT_SECONDS,
        retry_handlers=_handlers(),
    )
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return client.api_call(method, json=given).data
    except SlackApiError as error:
        raise _explained(method, error.response) from error
    except (SlackClientError, OSError) as error:
        raise SlackFailed(f"Slack could not be reached for {method} ({type(error).__name__}).") from error


def _explained(method: str, reply: Any) -> SlackFailed:  # Any: slack_sdk's response
    code = str(reply.get("error") or reply.status_code)
    if code in _CLOSED:
        return SlackClosed(f"Slack refused {method} there: {code}.")
    if code in _GONE:
        return SlackGone(f"Slack refused {method}: {code}.")
    way_out = f"; {_WAYS_OUT[code]}" if code in _WAYS_OUT else ""
    return SlackFailed(f"Slack refused {method}: {code}{way_out}.")


def _handlers() -> list[RetryHandler]:
    """Only of rate limits: after a broken connection the job is done again, which knows what it posted."""
    return [RateLimitErrorRetryHandler(max_retry_count=RATE_LIMIT_WAITS)]
