from __future__ import annotations

import pytest
from django.test import Client

from search.models import EvaluationRun
from tests.factories import make_message, make_repository, make_user


@pytest.mark.django_db
def test_it_charts_runs_for_staff_without_inline_styles(staff_client: Client) -> None:
    name = make_repository().name
    for figure in (0.81, 0.84):
        report = {"per_repository": {name: {"ndcg_at_10": figure, "queries": 12}}}
        EvaluationRun.objects.create(ndcg_at_10=figure, queries=12, commit="a" * 40, report=report)
    make_message()
    html = staff_client.get("/evaluation/").content.decode()
    assert html.count("<circle") == 2
    assert "0.8400" in html
    assert "1 question asked" in html
    assert "style=" not in html


@pytest.mark.django_db
def test_it_says_how_to_measure_when_nothing_was(staff_client: Client) -> None:
    assert "Nothing was measured yet" in staff_client.get("/evaluation/").content.decode()


def test_it_does_not_exist_for_others(user_client: Client) -> None:
    assert user_client.get("/evaluation/").status_code == 404


@pytest.mark.django_db
def test_it_shows_staff_no_figures_of_what_they_may_not_read(client: Client) -> None:
    client.force_login(make_user(is_staff=True))
    secret = make_repository("acme/secret", visibility="private", owner=make_user())
    report = {"per_repository": {secret.name: {"ndcg_at_10": 0.8123, "queries": 12}}}
    EvaluationRun.objects.create(ndcg_at_10=0.8123, queries=12, options={"repo": [secret.name]}, report=report)
    html = client.get("/evaluation/").content.decode()
    assert "0.8123" not in html
    assert secret.name not in html
