"""Celery tasks of the assistant: bring answers to Slack, and to the addresses that programs named.

They have a queue of their own, `answers`, so that nobody waits behind a build. A message says "look at this job";
whether there is something to do is decided by its row (`jobs.py`).
"""

from __future__ import annotations

import logging
from typing import Any

from celery import shared_task
from kombu.exceptions import OperationalError

log = logging.getLogger(__name__)


@shared_task(acks_late=True)  # type: ignore[untyped-decorator]  # Celery has no types
def answer_slack(job_id: int) -> None:
    from assistant.slack_answers import answer

    answer(job_id)


@shared_task(acks_late=True)  # type: ignore[untyped-decorator]  # as above
def respond_to_slack(response_url: str, reply: dict[str, Any]) -> None:  # Any: a message of Slack
    from assistant.slack_client import respond

    respond(response_url, reply)


def tell_slack(response_url: str, reply: dict[str, Any]) -> None:  # Any: a message of Slack
    """What is said to a button. Worth no second try: what the button did is stored."""
    try:
        respond_to_slack.delay(response_url, reply)
    except (OperationalError, OSError):
        log.exception("the queue did not take a reply to Slack")


@shared_task(acks_late=True)  # type: ignore[untyped-decorator]  # as above
def call_back(callback_id: int) -> None:
    from assistant import callbacks, chat_api

    callbacks.deliver(callback_id, chat_api.callback_body)


def recover_answers() -> None:
    """Called when a worker starts and every few seconds: what a dead worker or a lost message left."""
    from assistant import jobs
    from assistant.models import Callback, SlackJob

    jobs.recover(SlackJob, answer_slack.delay)
    jobs.recover(Callback, call_back.delay)
