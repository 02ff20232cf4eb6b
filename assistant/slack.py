"""The doors for Slack: events, the slash command and buttons. Checked, stored, acknowledged; answered by a worker.

Slack signs each request and sends it again when it hears nothing for three seconds. What a request asks for becomes
one row, whatever comes again (`SlackJob`), and a worker does the rest (`slack_answers.py`). Nothing here waits for a
model or for Slack. Without the extra `slack` or without its settings the addresses say so.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import re
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.db import IntegrityError, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse, QueryDict
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from assistant import jobs, slack_feedback, tasks
from assistant.models import SlackJob

log = logging.getLogger(__name__)

MISSING = "Slack needs an extra that is not installed: pip install 'codebase-assistant[slack]', then restart."
LOOKING = "Looking into it …"
MAX_TEXT_CHARS = 40_000  # of one message, by Slack's reference
# Subtypes of messages that a person wrote all the same.
_WRITTEN = {None, "file_share", "thread_broadcast"}
_MARKUP = re.compile(
    r"<(?:(?P<mention>[@!])|#\w+\|?|(?P<url>https?://|mailto:|tel:))(?P<rest>[^<>|]*)(?:\|(?P<label>[^<>]*))?>"
)

Payload = dict[str, Any]  # Any: JSON from outside
View = Callable[[HttpRequest], HttpResponse]


def configured() -> bool:
    return bool(settings.SLACK_BOT_TOKEN and settings.SLACK_SIGNING_SECRET)


def installed() -> bool:
    return importlib.util.find_spec("slack_sdk") is not None


def _signed(view: Callable[[HttpRequest, bytes], HttpResponse]) -> View:
    """Only what Slack signed within the last five minutes gets in."""

    @csrf_exempt
    @login_not_required
    @require_POST
    @functools.wraps(view)
    def checked(request: HttpRequest) -> HttpResponse:
        if not configured():
            return _refusal(404, "Slack is not set up here. See SLACK_BOT_TOKEN and SLACK_SIGNING_SECRET.")
        if not installed():
            return _refusal(501, MISSING)
        try:
            body = request.body
        except RequestDataTooBig:
            return _refusal(413, "too large")
        if not _is_authentic(request, body):
            return _refusal(403, "The signature does not fit, or the request is older than five minutes.")
        try:
            return view(request, body)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            log.warning("a signed request of Slack could not be read", exc_info=True)
            return _refusal(400, "This request cannot be read.")

    return checked


@_signed
def receive_event(request: HttpRequest, body: bytes) -> HttpResponse:
    payload: Payload = json.loads(body)
    if payload["type"] == "url_verification":
        return JsonResponse({"challenge": str(payload["challenge"])[:200]})
    event: Payload = payload["event"]
    kind = _kind(event, payload)
    if kind is not None:
        _store(
            request,
            kind=kind,
            event_key=f"event {payload['event_id']}",
            message_key=f"{payload['team_id']} {event['channel']} {event['ts']}",
            team_id=payload["team_id"],
            channel_id=event["channel"],
            slack_user_id=event["user"],
            text=question_of(event.get("text", "")),
            message_ts=event["ts"],
            thread_ts=event.get("thread_ts") or event["ts"],
            private=kind == SlackJob.Kind.DIRECT,
        )
    return HttpResponse()


@_signed
def receive_command(request: HttpRequest, body: bytes) -> HttpResponse:
    """Its reply is seen by whoever typed the command and by nobody else."""
    form = QueryDict(body, encoding="utf-8")
    if form.get("ssl_check"):
        return HttpResponse()
    _store(
        request,
        kind=SlackJob.Kind.COMMAND,
        event_key=f"command {form['trigger_id']}",
        message_key=None,
        team_id=form["team_id"],
        channel_id=form["channel_id"],
        slack_user_id=form["user_id"],
        slack_name=f"{form.get('user_name', '')} in {form.get('team_domain', '')}"[:200],
        text=question_of(form.get("text", "")),
        response_url=form["response_url"],
        private=True,
    )
    return JsonResponse({"response_type": "ephemeral", "text": LOOKING})


@_signed
def receive_interaction(request: HttpRequest, body: bytes) -> HttpResponse:
    """A button under an answer. The opinion is stored at once; what is said to it comes by `response_url`."""
    payload: Payload = json.loads(QueryDict(body, encoding="utf-8")["payload"])
    if payload["type"] == "block_actions":
        for action in payload["actions"]:
            reply = slack_feedback.rate(payload["team"]["id"], payload["user"]["id"], action, request)
            if reply is not None:
                tasks.tell_slack(payload["response_url"], reply)
    return HttpResponse()


def question_of(text: str) -> str:
    """Slack's markup -> what the person typed: without mentions, links as their words, entities as characters."""
    plain = _MARKUP.sub(_typed, text[:MAX_TEXT_CHARS])
    return plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&").replace("\0", "").strip()


def _typed(found: re.Match[str]) -> str:
    if found["mention"]:
        return ""
    address = (found["url"] or "") + found["rest"]
    return found["label"] or address.removeprefix("mailto:").removeprefix("tel:")


def _kind(event: Payload, payload: Payload) -> SlackJob.Kind | None:
    """None for what no person wrote to us: other bots, our own messages, edits, other events."""
    if event.get("bot_id") or event.get("subtype") not in _WRITTEN or not event.get("user"):
        return None
    if event["channel"].startswith("D"):  # a mention in a direct message comes as both kinds of event
        return SlackJob.Kind.DIRECT
    if event["type"] == "app_mention":
        return SlackJob.Kind.SHARED if payload.get("is_ext_shared_channel") else SlackJob.Kind.MENTION
    return None


def _store(request: HttpRequest, **fields: Any) -> None:  # Any: fields of the job
    """One job, however often it is sent."""
    origin = request.build_absolute_uri("/").rstrip("/")
    try:
        with transaction.atomic():
            job = SlackJob.objects.create(origin=origin, due_at=timezone.now() + jobs.MESSAGE_AGAIN, **fields)
    except IntegrityError:
        log.info("Slack sent %s again", fields["event_key"])
        return
    jobs.send(job, tasks.answer_slack.delay)


def _is_authentic(request: HttpRequest, body: bytes) -> bool:
    from slack_sdk.signature import SignatureVerifier

    verifier = SignatureVerifier(settings.SLACK_SIGNING_SECRET)
    try:
        return verifier.is_valid_request(body, dict(request.headers))
    except (ValueError, TypeError):  # a time that is no number, a body that is no UTF-8, a signature that is no ASCII
        return False


def _refusal(status: int, text: str) -> HttpResponse:
    return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8")
