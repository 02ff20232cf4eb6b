from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from indexing import leases
from indexing.errors import BuildCancelled, LeaseLost
from indexing.leases import Lease, claim
from indexing.models import Index, Job
from tests.factories import make_index

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _always_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "CHECK_SECONDS", 0)


@pytest.fixture
def index(db: None) -> Index:
    index = make_index(status="queued")
    Job.objects.create(index=index)
    return index


def _claimed(index: Index) -> Lease:
    lease = claim(index.pk)
    assert lease is not None
    return lease


def test_it_gives_a_build_to_one_worker_only(index: Index) -> None:
    _claimed(index)
    assert claim(index.pk) is None


def test_it_gives_nothing_that_was_cancelled(index: Index) -> None:
    Job.objects.update(cancel_requested=True)
    assert claim(index.pk) is None


def test_it_tells_the_first_worker_when_another_took_over(index: Index) -> None:
    first = _claimed(index)
    first.check()
    Job.objects.update(leased_until=timezone.now() - timedelta(seconds=1))
    second = _claimed(index)
    second.check()
    with pytest.raises(LeaseLost):
        first.check()
    assert first.end(Job.State.FAILED) is False
    assert second.end(Job.State.DONE) is True
    assert Job.objects.get().state == "done"


def test_it_tells_the_worker_when_a_person_stops_the_build(index: Index) -> None:
    lease = _claimed(index)
    Job.objects.update(cancel_requested=True)
    with pytest.raises(BuildCancelled, match="stays searchable"):
        lease.check()


def test_it_asks_the_database_at_most_once_a_second(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "CHECK_SECONDS", 60)
    lease = _claimed(index)
    lease.check()
    Job.objects.update(cancel_requested=True)
    lease.check()


def test_it_renews_only_its_own_lease(index: Index) -> None:
    first = _claimed(index)
    past = timezone.now() - timedelta(seconds=1)
    Job.objects.update(leased_until=past)
    first.renew()
    assert Job.objects.get().leased_until > timezone.now() + timedelta(seconds=50)
    Job.objects.update(leased_until=past, holder="elsewhere:1:a")
    first.renew()
    assert Job.objects.get().leased_until == past


@pytest.mark.django_db(transaction=True)
def test_it_renews_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "HEARTBEAT_SECONDS", 0.01)
    index = make_index(status="queued")
    Job.objects.create(index=index)
    renewed = leases.threading.Event()
    real = Lease.renew

    def renew(lease: Lease) -> None:
        real(lease)
        renewed.set()

    monkeypatch.setattr(Lease, "renew", renew)
    with _claimed(index):
        first = Job.objects.get().heartbeat_at
        assert renewed.wait(5)
        assert Job.objects.get().heartbeat_at > first
