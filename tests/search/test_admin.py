from __future__ import annotations

import pytest
from django.test import Client

from search.models import EvaluationRun


@pytest.mark.django_db
def test_it_lists_runs_and_changes_none(staff_client: Client) -> None:
    run = EvaluationRun.objects.create(ndcg_at_10=0.8251, queries=120, commit="a" * 40, report={"overall": {}})
    html = staff_client.get("/admin/search/evaluationrun/").content.decode()
    assert "0.8251" in html
    assert "120" in html
    page = f"/admin/search/evaluationrun/{run.pk}/change/"
    assert staff_client.get(page).status_code == 200
    assert staff_client.post(page, {"queries": 1}).status_code == 403
