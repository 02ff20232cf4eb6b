"""A feature that does not exist is not found by the real search in a real index: no citation, and where it looked."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from assistant import answering, conversations
from assistant.models import Citation, Message
from indexing import llm
from indexing.building import build_now
from indexing.models import Repository
from tests.assistant.cited_bytes import no_structured_reply
from tests.assistant.scripted import script_model
from tests.factories import make_repo, make_repository, make_user

pytestmark = pytest.mark.django_db(transaction=True)
QUESTION = "Where is the Kafka consumer?"
APP = {
    "app.py": "from flask import Flask, session\n\napp = Flask(__name__)\n\n\n@app.route('/login')\ndef login():\n"
    "    session['user'] = 'reader'\n    return 'welcome'\n",
    "models.py": "class User:\n    def check_password(self, password):\n        return password == self.password\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Embedded by the real model: what is near a question that has no answer, only it can tell."""
    repository = make_repository("acme/web", url=str(make_repo(tmp_path, dict(APP))))
    build_now(repository)
    return repository


def ask(question: str) -> Message:
    message = conversations.start_message(make_user("asker"), question, request_id=uuid.uuid4())

    async def answered() -> None:
        answering.start_answer(message.pk)
        async for _event in answering.event_stream(message):
            pass

    asyncio.run(answered())
    message.refresh_from_db()
    return message


def test_it_says_that_it_found_nothing_and_where_it_looked(repository: Repository, client: Client) -> None:
    message = ask(QUESTION)
    assert "did not find" in message.answer or "none of the passages" in message.answer
    assert not Citation.objects.filter(message=message, cited=True).exists()
    assert any("Looked in 1 of 1 repositor" in notice for notice in message.notices)
    client.force_login(message.conversation.owner)
    assert 'class="citation' not in client.get(f"/c/{message.conversation_id}/").content.decode()


def test_it_links_nothing_that_a_model_makes_up(
    repository: Repository, client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm, "structured", no_structured_reply)
    script_model(monkeypatch, settings, ["The consumer is `KafkaConsumer` in kafka/consumer.py [41], see [42]."])
    message = ask(QUESTION)
    client.force_login(message.conversation.owner)
    page = client.get(f"/c/{message.conversation_id}/").content.decode()
    assert '<a class="citation' not in page
    assert not Citation.objects.filter(message=message, cited=True).exists()
    assert message.notices
