from __future__ import annotations

from datetime import UTC, datetime

from search.charts import HEIGHT, WIDTH, charts, label
from search.models import EvaluationRun


def make_run(figure: float, **options: object) -> EvaluationRun:
    return EvaluationRun(ndcg_at_10=figure, queries=9, options=options, created_at=datetime(2024, 1, 1, tzinfo=UTC))


def test_it_draws_runs_that_were_asked_for_alike_from_old_to_new() -> None:
    newest_first = [make_run(0.9), make_run(0.5, pooled=True), make_run(0.8)]
    whole, pooled = charts(newest_first)
    assert [point.run.ndcg_at_10 for point in whole.points] == [0.8, 0.9]
    assert whole.points[0].x < whole.points[1].x
    assert whole.points[0].y > whole.points[1].y  # y grows downwards
    assert (pooled.title, len(pooled.points)) == ("all repositories, pooled", 1)


def test_it_stays_inside_its_box() -> None:
    (chart,) = charts([make_run(figure) for figure in (0.0, 1.0, 0.5)] * 40)
    assert all(0 <= point.x <= WIDTH and 0 <= point.y <= HEIGHT for point in chart.points)


def test_it_says_how_a_run_was_asked_for() -> None:
    assert label({"repo": ["shop"], "no_vectors": True, "judge": "noisy"}) == "shop, no vectors, noisy judge"
    assert label({"set": "ours", "golden": ["a", "b"]}) == "ours, golden a, b"
