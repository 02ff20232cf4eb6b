from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from assistant import conversations, extractive
from assistant.citations import Evidence
from assistant.conversations import Ending, Event
from assistant.models import Message
from assistant.rendering import answer_html
from indexing.access import Principal
from indexing.models import Repository
from tests.assistant.scripted import SESSIONS, hit_for, real_repository
from tests.factories import make_conversation, make_message

pytestmark = pytest.mark.django_db

SIGN = 'def sign(value: str) -> str:\n    """Sign the cookie."""'
UNSIGN = "def unsign(value: str) -> str:"


def _link(item: Evidence) -> str:
    return f"/r/1/blob?n={item.number}"


def _answered(user: User, repository: Repository, **ending: Any) -> Message:
    hits = [hit_for(repository, "src/sessions.py", passage) for passage in (SIGN, UNSIGN)]
    message = make_message(make_conversation(user))
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, hits)
    values: dict[str, Any] = {"answer": extractive.compose(hits), "cited": [1, 2], "verified": [1, 2]}
    ending = {"state": Message.State.DONE, "events": [Event(1, "done", {})], **values, **ending}
    conversations.finish(message.pk, 1, Ending(**ending))
    message.refresh_from_db()
    return message


def _html(message: Message, user: User) -> str:
    return answer_html(message, conversations.evidence(message, Principal.of_user(user)), link=_link)


def test_it_renders_what_the_model_wrote_with_chips(tmp_path: Path, user: User) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    message = _answered(user, repository, answer="It **signs** [1], not [9].", answered_by="m", cited=[1])
    html = _html(message, user)
    assert "<strong>signs</strong>" in html
    assert 'href="/r/1/blob?n=1"' in html
    assert "sessions.py:4–5</a>" in html
    assert html.count('data-state="broken"') == 1


def test_it_reads_the_passages_of_an_extractive_answer_from_the_mirror(tmp_path: Path, user: User) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    message = _answered(user, repository)
    html = _html(message, user)
    assert "Sign the cookie" not in message.answer
    assert "Sign the cookie" in html
    assert html.count("<figure") == 1
    assert re.search(r'<li class="hit"><span class="ln">4</span><span><span class="from"><span class="k">def', html)
    assert [int(number) for number in re.findall(r'href="/r/1/blob\?n=(\d)"', html)] == [1, 2]


def test_it_keeps_an_extractive_answer_readable_when_the_mirror_is_gone(tmp_path: Path, user: User) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    message = _answered(user, repository)
    repository.mirror.path.rename(tmp_path / "elsewhere")
    assert _html(message, user).count("cannot be read from the mirror any more") == 2


def test_it_withholds_an_answer_from_who_lost_access(tmp_path: Path, user: User) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    messages = [_answered(user, repository), _answered(user, repository, answer="It signs [1].", answered_by="m")]
    Repository.objects.update(visibility="private")
    for message in messages:
        assert _html(message, user) == (
            "<p>This answer draws on a repository that you cannot read, so it is not shown.</p>"
        )


def test_it_keeps_an_answer_whose_repository_was_removed(tmp_path: Path, user: User) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    message = _answered(user, repository, answer="It signs [1].", answered_by="m")
    repository.delete()
    html = _html(message, user)
    assert "It signs" in html
    assert "<a" not in html


def test_it_shows_that_nothing_was_found(tmp_path: Path, user: User) -> None:
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS})
    message = _answered(user, repository, answer=extractive.not_found(["Kafka"]), cited=[])
    assert "mentions <code>Kafka</code>" in _html(message, user)


def test_it_escapes_hostile_paths_and_symbols(tmp_path: Path, user: User) -> None:
    name = "<img src=x onerror=alert(1)>.py"
    repository = real_repository(tmp_path, {name: "x = '</pre><script>'\n"})
    message = make_message(make_conversation(user))
    conversations.claim(message.pk)
    conversations.store_evidence(message.pk, 1, [hit_for(repository, name, "x = ", symbol="<svg onload=alert(1)>")])
    conversations.finish(message.pk, 1, Ending(Message.State.DONE, [Event(1, "done", {})], cited=[1], verified=[1]))
    message.refresh_from_db()
    assert not re.search(r"<(img|svg|script)", _html(message, user))
