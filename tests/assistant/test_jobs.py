from __future__ import annotations

import os
from datetime import timedelta

import pytest
from django.utils import timezone
from kombu.exceptions import OperationalError

from assistant import jobs
from assistant.models import SlackJob

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> SlackJob:
    return SlackJob.objects.create(
        event_key="event 1", kind="direct", team_id="T", channel_id="D", slack_user_id="U", due_at=timezone.now()
    )


def test_it_gives_a_job_to_one_worker(job: SlackJob) -> None:
    first, second = jobs.claim(SlackJob, job.pk), jobs.claim(SlackJob, job.pk)
    assert first is not None
    assert second is None
    assert first.finish()
    assert jobs.claim(SlackJob, job.pk) is None
    job.refresh_from_db()
    assert (job.state, job.attempts) == ("done", 1)


def test_it_lets_a_worker_write_nothing_that_lost_its_job(job: SlackJob) -> None:
    first = jobs.claim(SlackJob, job.pk)
    SlackJob.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    second = jobs.claim(SlackJob, job.pk)
    assert first is not None
    assert second is not None
    assert not first.held()
    assert not first.save(parts_sent=3)
    assert not first.finish()
    assert second.held()


def test_it_sends_again_what_no_worker_took_and_what_a_dead_one_left(job: SlackJob) -> None:
    sent: list[int] = []
    assert jobs.recover(SlackJob, sent.append) == 1
    assert jobs.recover(SlackJob, sent.append) == 0  # a message is on its way
    jobs.claim(SlackJob, job.pk)
    assert jobs.recover(SlackJob, sent.append) == 0  # this process lives
    holder = SlackJob.objects.get().holder
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    SlackJob.objects.update(holder=holder.replace(f":{os.getpid()}:", f":{pid}:"))
    assert jobs.recover(SlackJob, sent.append) == 1
    assert sent == [job.pk, job.pk]


def test_it_keeps_a_job_when_there_is_no_broker(job: SlackJob) -> None:
    def refuse(pk: int) -> None:
        raise OperationalError("no broker")

    jobs.send(job, refuse)
    assert SlackJob.objects.get().state == "queued"


def test_it_tries_later_what_was_put_back(job: SlackJob) -> None:
    lease = jobs.claim(SlackJob, job.pk)
    assert lease is not None
    with lease:
        assert lease.put_back("Slack is down.", seconds=60)
    sent: list[int] = []
    assert jobs.recover(SlackJob, sent.append) == 0
    SlackJob.objects.update(due_at=timezone.now())
    assert jobs.recover(SlackJob, sent.append) == 1


def test_it_begins_a_job_anew_that_was_given_up(job: SlackJob) -> None:
    sent: list[int] = []
    assert not jobs.requeue(job, sent.append)  # it waits anyway
    SlackJob.objects.update(state="failed", attempts=5, error="Slack is down.", finished_at=timezone.now())
    assert jobs.requeue(job, sent.append)
    assert sent == [job.pk]
    job.refresh_from_db()
    assert (job.state, job.attempts, job.finished_at) == ("queued", 0, None)
    assert jobs.claim(SlackJob, job.pk) is not None
