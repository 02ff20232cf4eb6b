"""Rows past their time -> gone. Called every hour by schedulers.

Conversations go with everything that hangs on them. Events and traces go earlier if wanted: the answer, its evidence
and its citations stay. Settings say how long each of these is kept. Jobs of Slack and callbacks that are over, and
idempotency keys, have a time of their own. In steps, so that no transaction holds the database for long. Audit records
are not touched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db.models import Max, Model, QuerySet
from django.utils import timezone

from assistant import idempotency
from assistant.models import AnswerEvent, Callback, Conversation, IdempotentReply, LeasedJob, Message, SlackJob
from indexing.models import Index, LLMCall, Repository

AT_ONCE = 500
JOBS_KEPT = timedelta(days=90)  # a thread of Slack finds its conversation by its jobs, so follow-ups work for so long

log = logging.getLogger(__name__)


def remove_old() -> dict[str, int]:
    """What was removed, by kind; only kinds that had something."""
    kinds: dict[str, tuple[int, Callable[[timedelta], int]]] = {
        "conversations": (settings.KEEP_CONVERSATIONS_DAYS, _conversations),
        "events": (settings.KEEP_EVENTS_DAYS, _events),
        "traces": (settings.KEEP_TRACES_DAYS, _traces),
        "usage records": (settings.KEEP_USAGE_DAYS, _usage),
        "builds": (settings.KEEP_BUILDS_DAYS, _builds),
    }
    removed = {kind: remove(timedelta(days=days)) for kind, (days, remove) in kinds.items() if days > 0}
    removed |= {
        "Slack jobs": _jobs(SlackJob),
        "callbacks": _jobs(Callback),
        "idempotency keys": _delete(IdempotentReply.objects.filter(created_at__lt=timezone.now() - idempotency.KEPT)),
    }
    removed = {kind: number for kind, number in removed.items() if number}
    if removed:
        log.info("removed what is past its time: %s", ", ".join(f"{n} {kind}" for kind, n in removed.items()))
    return removed


def _conversations(age: timedelta) -> int:
    """Untouched for so long; pinned ones stay, because somebody wants them."""
    return _delete(Conversation.objects.filter(pinned=False, updated_at__lt=timezone.now() - age))


def _events(age: timedelta) -> int:
    """The steps of finished answers: they serve readers that reconnect."""
    finished = Message.objects.filter(finished_at__lt=timezone.now() - age)
    return _delete(AnswerEvent.objects.filter(message__in=finished))


def _traces(age: timedelta) -> int:
    old = Message.objects.filter(finished_at__lt=timezone.now() - age).exclude(trace={})
    return old.update(trace={})


def _usage(age: timedelta) -> int:
    return _delete(LLMCall.objects.filter(created_at__lt=timezone.now() - age))


def _builds(age: timedelta) -> int:
    """Those that are over, but for the newest and the published one of each repository and whose skips are listed."""
    old = Index.objects.filter(finished_at__lt=timezone.now() - age)
    newest = Repository.objects.annotate(newest=Max("indexes")).exclude(newest=None).values("newest")
    published = Repository.objects.exclude(current_index=None).values("current_index")
    listing = Index.objects.exclude(skips_of=None).values("skips_of")
    return _delete(old.exclude(pk__in=newest).exclude(pk__in=published).exclude(pk__in=listing))


def _jobs(model: type[LeasedJob]) -> int:
    return _delete(model._default_manager.filter(finished_at__lt=timezone.now() - JOBS_KEPT))


def _delete(rows: QuerySet[Model]) -> int:
    number = 0
    while pks := list(rows.order_by("pk").values_list("pk", flat=True)[:AT_ONCE]):
        rows.model._default_manager.filter(pk__in=pks).delete()
        number += len(pks)
    return number
