"""schemathesis over the whole OpenAPI description: no 5xx, and no reply that is not described.

Each operation meets requests that fit its description and requests that do not, from a token that may do everything,
from one that may do nothing, and from nobody. `make fuzz` sends many more (FUZZ_EXAMPLES of each kind).
"""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.contrib.auth.models import User
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis.errors import Unsatisfiable
from pytest_django import Settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup

from assistant import answering, conversations, tokens
from assistant.models import ApiToken, Message
from search.models import EvaluationRun
from tests.assistant.scripted import SESSIONS, hit_for, real_repository, script_search
from tests.factories import make_user

pytestmark = pytest.mark.django_db(transaction=True)
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "4"))
CALLERS = ("everything", "nothing", "nobody")

load_all_checks()
CHECKED = CHECKS.get_by_names(
    [
        *("not_a_server_error", "status_code_conformance", "content_type_conformance"),
        *("response_headers_conformance", "response_schema_conformance"),
    ]
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> dict[str, Any]:
    """Ids that exist, for a token that may use them. No model writes and nothing is fetched."""
    settings.API_REQUESTS_PER_MINUTE = settings.API_REQUESTS_PER_DAY = 1_000_000
    owner = make_user("owner", is_staff=True)
    repository = real_repository(tmp_path, {"src/sessions.py": SESSIONS}, owner=owner)
    script_search(monkeypatch, [hit_for(repository, "src/sessions.py", "def sign(value: str) -> str:")])
    message = conversations.start_message(owner, "How?", request_id=uuid.uuid4())
    _end(message)
    monkeypatch.setattr(answering, "start_answer", lambda message_id: None)
    monkeypatch.setattr(answering, "event_stream", _no_events)
    figures = {repository.name: {"ndcg_at_10": 0.5, "queries": 1}}
    run = EvaluationRun.objects.create(ndcg_at_10=0.5, queries=1, report={"per_repository": figures, "per_query": []})
    return {
        "repository_id": repository.pk,
        "conversation_id": str(message.conversation_id),
        "message_id": str(message.pk),
        "run_id": run.pk,
    }


async def _no_events(message: Message, after_sequence: int = 0) -> Any:
    return
    yield


def _end(message: Message) -> None:
    conversations.claim(message.pk)
    conversations.finish(message.pk, 1, conversations.Ending(Message.State.DONE, [], answer="So."))


def _authorization(caller: str) -> dict[str, str]:
    if caller == "nobody":
        return {}
    everything = caller == "everything"
    user = User.objects.get(username="owner") if everything else make_user("stranger")
    scopes = ApiToken.Scope.values if everything else []
    return {"Authorization": f"Bearer {tokens.create(user, caller, scopes=scopes)[1]}"}


def _operations(schema: Any) -> Iterator[Any]:
    for found in schema.get_all_operations():
        yield found.ok()


@pytest.mark.parametrize("caller", CALLERS)
def test_it_answers_anything_as_it_is_described(caller: str, world: dict[str, Any]) -> None:
    schema = schemathesis.openapi.from_wsgi("/api/v1/openapi.json", app=get_wsgi_application())
    headers = _authorization(caller)
    sent, failures = 0, []
    for operation, mode in itertools.product(list(_operations(schema)), GenerationMode):
        try:
            sent += _fuzz(operation, mode, headers, world)
        except FailureGroup as group:
            failures += [f"{operation.label}, {mode.value} data: {error}" for error in group.exceptions]
    assert not failures, "\n\n".join(failures)
    assert sent > 60


def _fuzz(operation: Any, mode: GenerationMode, headers: dict[str, str], world: dict[str, Any]) -> int:
    counter = itertools.count()

    @hypothesis_settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        if next(counter) % 2 and mode == GenerationMode.POSITIVE:  # every other one reaches what exists
            case.path_parameters = {
                name: world.get(name, value) for name, value in (case.path_parameters or {}).items()
            }
        case.call_and_validate(headers=headers, checks=CHECKED)

    try:
        send()
    except Unsatisfiable:  # nothing that can be sent there is wrong
        assert mode == GenerationMode.NEGATIVE
    return next(counter)
