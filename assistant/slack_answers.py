"""One question of Slack -> one answer there, whatever Slack, the broker or this process do meanwhile.

In: the row of a `SlackJob`. A worker that has its lease links accounts, asks as the person who wrote, shows progress
and turns it into the answer. How far it got is in the row, so that the next worker goes on when this one dies.
Whoever asked is told why when there is no answer. In a channel only repositories that everyone may read are asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.contrib.auth.models import User
from django.db import close_old_connections

from assistant import answering, conversations, jobs, slack_accounts, slack_client
from assistant.errors import AssistantError, InvalidQuestion, SlackClosed, SlackFailed, SlackGone
from assistant.models import Conversation, Message, SlackJob
from assistant.slack_messages import answer_messages, section
from assistant.threads import in_thread
from search import scoping
from search.errors import SearchError

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 5
BACKOFF_SECONDS = 20.0
MAX_RUNS = 2  # of one message by one worker: a run that finds a dead one ends it first
EYES = "eyes"
LOOKING = "Looking into it …"
UNLINKED = "This Slack account is not linked to anybody any more."
WRONG_CODE = "This code is wrong, was used before, or is older than ten minutes. Make a new one on the account page."
SEEN_CODE = "Others can read this channel, so the code was made void. Make a new one and type `/ask link CODE`."
SWITCHED_OFF = "Your account on the server is switched off, so I cannot answer. Ask its administrator."
SHARED = "This channel is shared with another organisation, so I answer nothing here. Ask me in a direct message."
NOT_A_MEMBER = "I am not in the channel where you asked (any more), so this comes here. `/invite` me there to go on."
HELP = (
    "Ask me a question about the code: `/ask How are sessions signed?`, a mention in a channel, or a direct message. "
    "Follow up in the thread. `@owner/name`, `path:src` and `lang:python` narrow it down. "
    "`/ask link CODE` links your account, `/ask unlink` ends that."
)
_LINK = re.compile(r"link\s+([A-Za-z0-9-]{6,30})", re.IGNORECASE)
_PIN = re.compile(r"(?<!\S)@([\w.-]+(?:/[\w.-]+)+?)(?=[\s,;:?!.]*(?:\s|$))")
_PROGRESS = ThreadPoolExecutor(max_workers=4, thread_name_prefix="slack")


def answer(job_id: int) -> None:
    """Do the job, unless it is done or another worker has it."""
    lease = jobs.claim(SlackJob, job_id)
    if lease is None:
        return
    with lease:
        job = SlackJob.objects.get(pk=job_id)
        if job.attempts > MAX_ATTEMPTS:
            _end(job, lease, jobs.DIED)
            return
        try:
            with _eyes(job):
                said = _answer(job, lease)
        except SlackFailed as error:
            _later(job, lease, str(error))
        except Exception as error:  # a bug must not leave a person without a word
            log.exception("Slack job %d failed", job.pk)
            _later(job, lease, f"{type(error).__name__}")
        else:
            lease.finish(text="", response_url="")
            log.info("Slack job %d: %s", job.pk, said)


def _answer(job: SlackJob, lease: jobs.Lease) -> str:
    """What was done, in a word. Raises SlackFailed."""
    if job.kind == SlackJob.Kind.SHARED:
        return _tell(job, lease, SHARED)
    if (found := _LINK.fullmatch(job.text)) is not None:
        return _tell(job, lease, _link(job, found[1]))
    if job.text.lower() == "unlink":
        slack_accounts.unlink(job.team_id, job.slack_user_id)
        return _tell(job, lease, UNLINKED)
    user = slack_accounts.person_of(job.team_id, job.slack_user_id)
    if user is None:
        return _tell(job, lease, slack_accounts.how_to_link(job.origin))
    if not user.is_active:
        return _tell(job, lease, SWITCHED_OFF)
    if job.text.lower() in ("", "help"):
        return _tell(job, lease, HELP)
    return _ask(job, lease, user)


def _link(job: SlackJob, code: str) -> str:
    if not job.private:
        slack_accounts.void_code(code)
        return SEEN_CODE
    user = slack_accounts.use_code(
        code, team_id=job.team_id, slack_user_id=job.slack_user_id, name=job.slack_name or job.slack_user_id
    )
    if user is None:
        return WRONG_CODE
    return f"Linked. I answer you from what {user.get_username()} may read on {job.origin}. {HELP}"


def _ask(job: SlackJob, lease: jobs.Lease, user: User) -> str:
    if job.message is None:
        try:
            job.message = _stored_question(job, user)
        except (AssistantError, SearchError) as error:
            return _tell(job, lease, str(error))
        lease.save(message=job.message)
    _show_progress(job, lease, LOOKING)
    message = _written(job.message, resumed=job.attempts > 1, found=lambda count: _progress(job, lease, count))
    if not lease.held():
        return "taken over by another worker"
    fresh = Message.objects.select_related("conversation__owner", "conversation__token__user").get(pk=message.pk)
    principal = conversations.principal_of(fresh.conversation)
    evidence = conversations.evidence(fresh, principal)
    _deliver(job, lease, answer_messages(fresh, evidence, job.origin, for_everyone=fresh.conversation.for_everyone))
    return "answered"


def _stored_question(job: SlackJob, user: User) -> Message:
    """The same message whenever it is asked for. Raises InvalidQuestion for a repository that is not there."""
    principal = conversations.principal_for(user, for_everyone=not job.private)
    scoped = scoping.read_question(job.text, [], principal)
    if unknown := _PIN.findall(scoped.question):
        raise InvalidQuestion(_unknown(unknown, private=job.private), job.text)
    return conversations.start_message(
        user,
        scoped.question,
        request_id=uuid.uuid5(uuid.NAMESPACE_URL, f"slack:{job.event_key}"),
        conversation=_conversation(job, user),
        scope=scoped.scope,
        for_everyone=not job.private,
    )


def _unknown(names: list[str], *, private: bool) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:5])
    where = "" if private else "In channels I read only what everyone may read; ask me in a direct message for others. "
    return (
        f"There is no repository {listed}, or you may not read it. {where}"
        "Its owner can give you the right on the repositories page. If it is no repository, write it in backquotes."
    )


def _conversation(job: SlackJob, user: User) -> Conversation | None:
    """What this person asked in this thread before; others in the thread have conversations of their own."""
    if not job.thread_ts:
        return None
    earlier = SlackJob.objects.filter(
        team_id=job.team_id,
        channel_id=job.channel_id,
        thread_ts=job.thread_ts,
        message__conversation__owner=user,
        message__conversation__for_everyone=not job.private,
    )
    last = earlier.select_related("message__conversation").order_by("-pk").first()
    return last.message.conversation if last is not None and last.message is not None else None


def _written(message: Message, *, resumed: bool, found: Callable[[int], None]) -> Message:
    """The message once its answer is complete; what a dead worker left half done is begun again."""
    if resumed and message.state == Message.State.RUNNING:
        conversations.abandon(message)
    for _run in range(MAX_RUNS):
        if message.finished and message.error.startswith(conversations.ORPHANED):
            conversations.retry(message)
        if message.finished:
            return message
        asyncio.run(_write(message, found))
        message.refresh_from_db()
    return message


async def _write(message: Message, found: Callable[[int], None]) -> None:
    answering.start_answer(message.pk)
    async for _sequence, name, data in answering.event_stream(message):
        if name == "evidence" and data.get("final"):
            await in_thread(found, len(data["citations"]), executor=_PROGRESS)


def _progress(job: SlackJob, lease: jobs.Lease, count: int) -> None:
    """Never in the way of an answer."""
    with contextlib.suppress(SlackFailed):
        if count:
            _show_progress(job, lease, f"Found {count} passages, writing …" if count > 1 else "Found one passage …")


def _show_progress(job: SlackJob, lease: jobs.Lease, text: str) -> None:
    """A command has its acknowledgement for that."""
    if job.kind == SlackJob.Kind.COMMAND or job.parts_sent:
        return
    message = {"text": text, "blocks": [section(text)]}
    if not job.progress_ts:
        job.progress_ts = _post(job, lease, message, part="progress")
        lease.save(progress_ts=job.progress_ts)
    elif text != LOOKING:
        slack_client.update(job.channel_id, job.progress_ts, message)


def _deliver(job: SlackJob, lease: jobs.Lease, messages: list[dict[str, Any]]) -> None:  # Any: JSON of Slack
    """Every part once: the row says how many are there."""
    for number, message in enumerate(messages):
        if number < job.parts_sent:
            continue
        if job.kind == SlackJob.Kind.COMMAND and job.response_url:
            _respond(job, lease, message, part=str(number))
        elif number == 0 and job.progress_ts:
            _replace_progress(job, lease, message)
        else:
            _post(job, lease, message, part=str(number))
        job.parts_sent = number + 1
        lease.save(parts_sent=job.parts_sent)


def _respond(job: SlackJob, lease: jobs.Lease, message: dict[str, Any], *, part: str = "0") -> None:  # Any: as above
    try:
        slack_client.respond(job.response_url, {**message, "replace_original": part == "0"})
    except SlackGone:  # half an hour is over
        job.response_url = ""
        _to_direct_message(job, lease)
        _post(job, lease, message, part=part)


def _replace_progress(job: SlackJob, lease: jobs.Lease, message: dict[str, Any]) -> None:  # Any: as above
    try:
        slack_client.update(job.channel_id, job.progress_ts, message)
    except SlackGone:  # somebody deleted it
        _post(job, lease, message)
    except SlackClosed:
        _post_directly(job, lease, message)


def _post(job: SlackJob, lease: jobs.Lease, message: dict[str, Any], *, part: str = "0") -> str:  # Any: as above
    """The time of the message: in the thread, or to the person when we may not write there. Each `part` once."""
    try:
        return slack_client.post(job.channel_id, message, thread_ts=job.thread_ts, key=_key(job, part))[1]
    except SlackClosed:
        if job.channel_id == job.slack_user_id or job.channel_id.startswith("D"):
            raise
        return _post_directly(job, lease, message, part=part)


def _post_directly(
    job: SlackJob, lease: jobs.Lease, message: dict[str, Any], *, part: str = "0"
) -> str:  # Any: as above
    _to_direct_message(job, lease)
    channel, _ts = slack_client.post(job.channel_id, {"text": NOT_A_MEMBER}, key=_key(job, "lead"))
    job.channel_id = channel
    lease.save(channel_id=channel)
    return slack_client.post(channel, message, key=_key(job, part))[1]


def _key(job: SlackJob, part: str) -> str:
    """Of one message of a job at one place, whichever worker posts it."""
    return f"{job.event_key} {job.channel_id} {part}"


def _to_direct_message(job: SlackJob, lease: jobs.Lease) -> None:
    """From here on the person is written to; Slack opens the conversation by their id."""
    job.channel_id, job.thread_ts = job.slack_user_id, ""
    lease.save(channel_id=job.channel_id, thread_ts="")


def _tell(job: SlackJob, lease: jobs.Lease, text: str) -> str:
    """Only to whoever asked. Raises SlackFailed."""
    if job.kind == SlackJob.Kind.COMMAND:
        _respond(job, lease, {"text": text})
    elif job.kind == SlackJob.Kind.DIRECT:
        _post(job, lease, {"text": text}, part="told")
    else:
        try:
            slack_client.whisper(job.channel_id, job.slack_user_id, text, thread_ts=_shown_thread(job))
        except SlackClosed:
            _post_directly(job, lease, {"text": text}, part="told")
    return "told"


def _shown_thread(job: SlackJob) -> str:
    """A thread that exists already: a whisper into a new one would be seen by nobody."""
    return job.thread_ts if job.thread_ts != job.message_ts else ""


@contextlib.contextmanager
def _eyes(job: SlackJob) -> Iterator[None]:
    """A reaction on the question while it is worked on, gone whatever happens."""
    place = (job.channel_id, job.message_ts, EYES)
    if not job.message_ts:
        yield
        return
    with contextlib.suppress(SlackFailed):
        slack_client.react(*place)
    try:
        yield
    finally:
        with contextlib.suppress(SlackFailed):
            slack_client.end_reaction(*place)


def _later(job: SlackJob, lease: jobs.Lease, why: str) -> None:
    """Try again later; after the last attempt say so to the person and in the log."""
    close_old_connections()
    if job.attempts < MAX_ATTEMPTS:
        log.warning("Slack job %d is tried again: %s", job.pk, why)
        lease.put_back(why, seconds=BACKOFF_SECONDS * 2**job.attempts)
        return
    _end(job, lease, why)


def _end(job: SlackJob, lease: jobs.Lease, why: str) -> None:
    """What an operator needs to have it tried again stays: the question where no message has it, and where to reply."""
    log.error("Slack job %d is given up: %s", job.pk, why)
    with contextlib.suppress(SlackFailed):
        _give_up(job, lease)
    lease.finish(failed=why, text="" if job.message_id else job.text)


def _give_up(job: SlackJob, lease: jobs.Lease) -> None:
    text = "I could not finish this answer. Ask again later, or tell the server's administrator, who can see why."
    if job.progress_ts and not job.parts_sent:
        _replace_progress(job, lease, {"text": text, "blocks": [section(text)]})
    else:
        _tell(job, lease, text)
