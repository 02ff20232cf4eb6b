from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.test import Client

from indexing.models import Repository
from search.metrics import Target
from search.models import EvaluationRun, Question, QuestionSet
from tests.factories import make_repository, make_user


@pytest.mark.django_db
def test_it_lists_runs_and_changes_none(staff_client: Client) -> None:
    report = {"per_repository": {make_repository().name: {"ndcg_at_10": 0.8251, "queries": 120}}}
    run = EvaluationRun.objects.create(ndcg_at_10=0.8251, queries=120, commit="a" * 40, report=report)
    html = staff_client.get("/admin/search/evaluationrun/").content.decode()
    assert "0.8251" in html
    assert "120" in html
    page = f"/admin/search/evaluationrun/{run.pk}/change/"
    assert staff_client.get(page).status_code == 200
    assert staff_client.post(page, {"queries": 1}).status_code == 403


@pytest.mark.django_db
def test_it_offers_only_repositories_that_the_team_lead_may_read(client: Client) -> None:
    lead = make_user(is_staff=True)
    lead.user_permissions.set(Permission.objects.filter(content_type__app_label="search"))
    make_repository("acme/open")
    secret = make_repository("acme/secret", visibility=Repository.Visibility.PRIVATE, owner=make_user())
    questions = QuestionSet.objects.create(name="ours")
    questions.questions.create(repository=secret, query="hidden question", relevant="a.py")
    client.force_login(lead)
    html = client.get(f"/admin/search/questionset/{questions.pk}/change/").content.decode()
    assert "acme/open" in html
    assert "secret" not in html
    assert "hidden question" not in html


def test_it_reads_paths_with_and_without_lines() -> None:
    question = Question(query="q", relevant="src/app.py\n\nsrc/b.py:10-24 \nc.py:7\n")
    assert question.targets == (Target("src/app.py"), Target("src/b.py", 10, 24), Target("c.py", 7, 7))


@pytest.mark.parametrize("relevant", ["", " \n", "a.py:9-3", "a.py:0"])
def test_it_refuses_a_question_without_an_answer(relevant: str) -> None:
    with pytest.raises(ValidationError):
        Question(query="q", relevant=relevant).clean()


@pytest.mark.django_db
def test_it_shows_a_report_to_those_who_read_all_of_its_repositories(client: Client) -> None:
    lead = make_user(is_staff=True)
    lead.user_permissions.set(Permission.objects.filter(content_type__app_label="search"))
    names = [make_repository().name, make_repository(visibility="private", owner=make_user()).name]
    for figure, seen in ((0.7111, names[:1]), (0.7222, names)):
        report = {"per_repository": {name: {"ndcg_at_10": figure, "queries": 3} for name in seen}}
        EvaluationRun.objects.create(ndcg_at_10=figure, queries=3, report=report)
    client.force_login(lead)
    html = client.get("/admin/search/evaluationrun/").content.decode()
    assert "0.7111" in html
    assert "0.7222" not in html
