from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from assistant.models import SlackJob
from indexing.models import Job, LLMCall, Repository
from tests.factories import make_index, make_repository

pytestmark = pytest.mark.django_db


def metrics(client: Client) -> dict[tuple[str, ...], float]:
    """(name, label values in order of their names) -> value."""
    text = client.get("/metrics").content.decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(s.name, *(s.labels[name] for name in sorted(s.labels))): s.value for s in samples}


def test_it_counts_requests_by_page_and_status(client: Client) -> None:
    before = metrics(client).get(("assistant_requests_total", "GET", "sign_in", "200"), 0)
    client.get("/sign-in/?next=/secret-name")
    assert metrics(client)["assistant_requests_total", "GET", "sign_in", "200"] == before + 1
    assert b"secret-name" not in client.get("/metrics").content


def test_it_tells_how_many_jobs_wait_and_for_how_long(client: Client) -> None:
    job = Job.objects.create(index=make_index(status="queued"))
    Job.objects.update(created_at=timezone.now() - timedelta(seconds=90))
    Job.objects.create(index=make_index(status="failed"), state=Job.State.PARKED, queue=Job.Queue.DESCRIPTIONS)
    found = metrics(client)
    assert found["assistant_jobs", job.queue, "queued"] == 1
    assert found["assistant_jobs", "descriptions", "parked"] == 1
    assert found["assistant_queue_oldest_seconds", "builds"] == pytest.approx(90, abs=10)
    assert found["assistant_queue_oldest_seconds", "descriptions"] == 0


def test_it_tells_how_old_indexes_are(client: Client) -> None:
    for hours, behind in ((1, 0), (3, 2), (9, 0)):
        repository = make_repository(checked_at=timezone.now() - timedelta(hours=hours), commits_behind=behind)
        make_index(repository, current=True, size_bytes=1000, chunks_done=7)
    found = metrics(client)
    assert Repository.objects.count() == found["assistant_repositories", "all"] == 3
    assert found["assistant_repositories", "behind"] == 1
    assert found["assistant_index_age_seconds", "oldest"] == pytest.approx(9 * 3600, abs=10)
    assert found["assistant_index_age_seconds", "median"] == pytest.approx(3 * 3600, abs=10)
    assert (found["assistant_index_bytes",], found["assistant_index_chunks",]) == (3000, 21)


def test_it_adds_up_what_models_cost_within_the_hour(client: Client) -> None:
    for error in ("", "LLMUnavailable"):
        LLMCall.objects.create(
            purpose="answer", model="openai/x", prompt_tokens=10, completion_tokens=5, cost_usd=0.25, error=error
        )
    found = metrics(client)
    assert found["assistant_llm_hour_calls", "openai/x", "answer"] == 2
    assert found["assistant_llm_hour_errors", "openai/x", "answer"] == 1
    assert found["assistant_llm_hour_tokens", "openai/x", "answer"] == 30
    assert found["assistant_llm_hour_cost_usd", "openai/x", "answer"] == 0.5


def test_it_counts_what_waits_for_slack_and_what_failed_within_a_day(client: Client) -> None:
    now = timezone.now()
    for number, (state, finished_at) in enumerate(
        [("queued", None), ("done", now), ("failed", now), ("failed", now - timedelta(days=2))]
    ):
        SlackJob.objects.create(
            event_key=str(number), kind="direct", channel_id="D", state=state, finished_at=finished_at, due_at=now
        )
    found = metrics(client)
    assert found["assistant_deliveries", "slack", "open"] == 1
    assert found["assistant_deliveries", "slack", "failed"] == 1
    assert found["assistant_deliveries", "callback", "failed"] == 0


@pytest.mark.parametrize(
    ("token", "headers", "address", "status"),
    [
        ("", {}, "127.0.0.1", 200),
        ("", {}, "192.0.2.7", 404),
        ("", {"X-Forwarded-For": "192.0.2.7"}, "127.0.0.1", 404),
        ("", {}, "", 404),
        ("secret", {}, "127.0.0.1", 404),
        ("secret", {"Authorization": "Bearer wrong"}, "127.0.0.1", 404),
        ("secret", {"Authorization": "Bearer secret"}, "192.0.2.7", 200),
    ],
)
def test_it_is_shown_to_whom_the_setting_says(
    client: Client, settings: Settings, token: str, headers: dict[str, str], address: str, status: int
) -> None:
    settings.METRICS_TOKEN = token
    assert client.get("/metrics", headers=headers, REMOTE_ADDR=address).status_code == status
