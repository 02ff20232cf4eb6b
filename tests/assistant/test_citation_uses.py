from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client

from assistant import conversations
from assistant.citation_uses import OTHERS, citation_uses, count
from assistant.exchanges import evidence_links
from assistant.models import CitationUse, Message
from indexing.access import Principal
from indexing.models import Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository
from tests.factories import make_repository, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def answered(user: User, tmp_path: Path) -> Message:
    """An answer of `user` that cites `sign` in a private repository."""
    repository = real_repository(tmp_path, {"a.py": SESSIONS}, "acme/web", owner=user, visibility="private")
    message = conversations.start_message(user, "Where?", request_id=uuid.uuid4())
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, "a.py", "def sign")])
    ending = conversations.Ending(Message.State.DONE, [], answer="Here [1].", answered_by="m", cited=[1], verified=[1])
    conversations.finish(message.pk, 1, ending)
    return Message.objects.select_related("conversation").get(pk=message.pk)


def used() -> list[tuple[int, int]]:
    return list(CitationUse.objects.values_list("opened", "copied"))


def test_it_counts_an_opened_citation_and_nothing_else(answered: Message, user: User, client: Client) -> None:
    client.force_login(user)
    principal = Principal.of_user(user)
    (link,) = evidence_links(answered, conversations.evidence(answered, principal))
    assert client.get(link.href).status_code == 200
    assert used() == [(1, 0)]
    client.get(link.href.replace("/blob/", "/preview/"))
    client.get(link.href.replace("bytes=", "was="))  # the file, not the passage
    client.get(link.href.split("&m=")[0])  # outside of the answer
    assert used() == [(1, 0)]


def test_it_counts_copies_of_what_its_owner_may_read(answered: Message, user: User, client: Client) -> None:
    client.force_login(user)
    address = f"/m/{answered.pk}/copied/1/"
    assert client.post(address).status_code == 204
    assert client.post(f"/m/{answered.pk}/copied/2/").status_code == 404
    client.force_login(make_user("stranger"))
    assert client.post(address).status_code == 404
    assert used() == [(0, 1)]


def test_it_sums_by_repository_and_day_without_naming_what_may_not_be_read(answered: Message, user: User) -> None:
    repository = Repository.objects.get()
    count(repository, "opened")
    count(repository, "opened")
    count(make_repository("acme/open"), "copied")
    mine = citation_uses(30, Principal.of_user(user))
    assert [(row.name, row.cited, row.opened, row.copied) for row in mine.repositories] == [
        ("acme/web", 1, 2, 0),
        ("acme/open", 0, 0, 1),
    ]
    assert (len(mine.days), mine.days[-1].opened, mine.days[-1].copied) == (30, 2, 1)
    theirs = citation_uses(30, Principal.of_user(make_user("stranger")))
    assert [row.name for row in theirs.repositories] == ["acme/open", OTHERS]
    assert theirs.opened == 2
