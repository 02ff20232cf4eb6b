from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from indexing.models import Repository
from search import evaluation_api
from search.evaluation import own_commit
from search.models import EvaluationRun, Question, QuestionSet
from tests.assistant.api_client import ApiClient
from tests.assistant.scripted import SESSIONS
from tests.search.conftest import Indexed

pytestmark = pytest.mark.django_db


@pytest.fixture
def lead() -> User:
    """Staff who may not read everything."""
    return User.objects.create_user("lead", is_staff=True)


@pytest.fixture
def api(lead: User) -> ApiClient:
    return ApiClient(lead, ["admin", "read"])


@pytest.fixture
def repository(indexed: Indexed) -> Repository:
    return indexed("acme/web", {"src/sessions.py": SESSIONS, "src/other.py": "def unrelated():\n    return 7\n"})


@pytest.fixture
def questions(repository: Repository) -> QuestionSet:
    row = QuestionSet.objects.create(name="team")
    Question.objects.create(question_set=row, repository=repository, query="sign cookie", relevant="src/sessions.py")
    return row


def test_it_measures_a_set_and_keeps_the_run(api: ApiClient, questions: QuestionSet) -> None:
    made = api.post("/evaluations", {"set": "team"})
    assert made.status_code == 201, made.content
    run = made.json()
    assert (run["ndcg_at_10"], run["queries"], run["options"]) == (1.0, 1, {"set": "team"})
    assert run["per_query"][0]["query"] == "sign cookie"
    assert run["commit"] == own_commit()
    (listed,) = api.get("/evaluations").json()["items"]
    assert listed["id"] == run["id"]
    assert api.get(f"/evaluations/{run['id']}").json() == run


def test_it_leaves_out_what_the_caller_may_not_read(
    api: ApiClient, questions: QuestionSet, repository: Repository, staff: User
) -> None:
    run = api.post("/evaluations", {"set": "team"}).json()
    Repository.objects.update(visibility="private", owner=staff)
    assert api.get(f"/evaluations/{run['id']}").status_code == 404
    assert api.get("/evaluations").json()["items"] == []
    assert api.post("/evaluations", {"set": "team"}).status_code == 422


def test_it_repeats_figures_under_a_key_only_to_who_may_still_read_them(
    api: ApiClient, questions: QuestionSet, staff: User
) -> None:
    EvaluationRun.objects.create(
        pk=4711, ndcg_at_10=0.5, queries=1, report={}
    )  # ids of runs are not those of repositories
    key = {"Idempotency-Key": "nightly"}
    first, again = (api.post("/evaluations", {"set": "team"}, headers=key) for _ in range(2))
    assert (again.status_code, again.json()) == (201, first.json())
    assert EvaluationRun.objects.count() == 2
    Repository.objects.update(visibility="private", owner=staff)
    refused = api.post("/evaluations", {"set": "team"}, headers=key)
    assert (refused.status_code, "sessions.py" in refused.content.decode()) == (409, False)


def test_it_is_for_staff_with_the_scope(user: User, lead: User, questions: QuestionSet) -> None:
    assert ApiClient(user, ["read", "admin"]).get("/evaluations").status_code == 404
    assert ApiClient(lead, ["read"]).get("/evaluations").status_code == 404


@pytest.mark.parametrize(("body", "status"), [({"set": "none"}, 422), ({"set": 7}, 422), ({}, 422)])
def test_it_refuses_sets_that_are_not_there(api: ApiClient, body: dict[str, Any], status: int) -> None:
    assert api.post("/evaluations", body).status_code == status
    assert api.get("/evaluations/999").status_code == 404


def test_it_leaves_large_sets_to_the_command(
    api: ApiClient, questions: QuestionSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_api, "MAX_QUESTIONS", 0)
    response = api.post("/evaluations", {"set": "team"})
    assert response.status_code == 422
    assert "manage.py evaluate" in response.json()["error"]["message"]
    assert not EvaluationRun.objects.exists()


def test_it_gives_means_over_what_the_caller_may_read(api: ApiClient, repository: Repository) -> None:
    per_repository = {"acme/web": {"ndcg_at_10": 0.9, "queries": 2}, "acme/secret": {"ndcg_at_10": 0.3, "queries": 4}}
    row = EvaluationRun.objects.create(
        ndcg_at_10=0.5, queries=6, options={"repo": ["acme/secret"]}, report={"per_repository": per_repository}
    )
    for seen in (api.get("/evaluations").json()["items"][0], api.get(f"/evaluations/{row.pk}").json()):
        assert (seen["ndcg_at_10"], seen["queries"], seen["options"]) == (0.9, 2, {})


def test_it_narrows_a_token_with_a_list_even_of_a_superuser(repository: Repository) -> None:
    chief = User.objects.create_superuser("chief")
    per_repository = {"acme/secret": {"ndcg_at_10": 0.3, "queries": 4}}
    row = EvaluationRun.objects.create(ndcg_at_10=0.3, queries=4, report={"per_repository": per_repository})
    assert ApiClient(chief, ["read", "admin"]).get(f"/evaluations/{row.pk}").status_code == 200
    limited = ApiClient(chief, ["read", "admin"], [repository])
    assert limited.get(f"/evaluations/{row.pk}").status_code == 404
    assert limited.get("/evaluations").json()["items"] == []
