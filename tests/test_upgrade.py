"""Data of the release before -> this one: its tables, with rows in them, are migrated to the newest."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

APPS = ("indexing", "search", "assistant")
pytestmark = pytest.mark.django_db(transaction=True)


def _migrate(targets: list[tuple[str, str]]) -> Any:  # Any: the models as they were then
    executor = MigrationExecutor(connection)
    executor.migrate(targets)
    return MigrationExecutor(connection).loader.project_state(targets).apps


@pytest.fixture
def first_release() -> Iterator[Any]:
    newest = [node for node in MigrationExecutor(connection).loader.graph.leaf_nodes() if node[0] in APPS]
    yield _migrate([(app, "0001_initial") for app in APPS])
    _migrate(newest)


def _rows(models: Any, when: datetime) -> dict[str, Any]:
    user = models.get_model("auth", "User").objects.create(username="reader")
    mirror = models.get_model("indexing", "Mirror").objects.create(url="https://git.example/acme/web.git")
    repository = models.get_model("indexing", "Repository").objects.create(mirror=mirror, name="acme/web", owner=user)
    index = models.get_model("indexing", "Index").objects.create(
        repository=repository, commit="c" * 40, status="ready", created_at=when
    )
    models.get_model("indexing", "Repository").objects.filter(pk=repository.pk).update(current_index=index)
    models.get_model("indexing", "Job").objects.create(index=index, state="done", attempts=1)
    waiting = models.get_model("indexing", "Index").objects.create(repository=repository, status="queued")
    models.get_model("indexing", "Job").objects.create(index=waiting)
    conversation = models.get_model("assistant", "Conversation").objects.create(owner=user, title="Sessions")
    message = models.get_model("assistant", "Message").objects.create(
        conversation=conversation, position=0, request_id=uuid.uuid4(), question="How?", answer="So [1].", state="done"
    )
    models.get_model("assistant", "Citation").objects.create(
        message=message,
        number=1,
        repository=repository,
        repository_name="acme/web",
        commit="c" * 40,
        blob="b" * 40,
        path=b"src/caf\xe9.py",
        start_byte=0,
        end_byte=9,
        start_line=1,
        end_line=2,
    )
    return {"repository": repository.pk, "message": message.pk, "waiting": waiting.pk}


def test_it_keeps_what_the_release_before_stored(first_release: Any) -> None:
    rows = _rows(first_release, timezone.now())
    _migrate([node for node in MigrationExecutor(connection).loader.graph.leaf_nodes() if node[0] in APPS])

    from assistant.models import Message
    from indexing.models import Job, Repository
    from indexing.queueing import in_line

    message = Message.objects.get(pk=rows["message"])
    assert (message.question, message.answer, message.state) == ("How?", "So [1].", "done")
    assert bytes(message.citations.get().path) == b"src/caf\xe9.py"
    repository = Repository.objects.select_related("current_index", "mirror").get(pk=rows["repository"])
    assert repository.name == "acme/web"
    assert repository.current_index is not None
    assert repository.current_index.status == "ready"
    assert [job.index_id for job in in_line(Job.Queue.BUILDS)] == [rows["waiting"]]


def test_a_command_says_what_to_do_where_there_are_no_tables_yet(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"DATA_DIR": str(tmp_path), "ENV_FILE": os.devnull, "DJANGO_SETTINGS_MODULE": "assistant.settings"}
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "search", "how is a route matched"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "run `python manage.py migrate` first" in result.stderr
    assert "Traceback" not in result.stderr
