"""What staff see of the runs of `judge_chunks`."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from indexing.models import ChunkReview, Repository
from tests.factories import make_repository, make_user

pytestmark = pytest.mark.django_db

PAGE = "/repositories/chunks/"
FAILING = {"check": "cut_through", "path": "src/<b>.py", "line": 3, "detail": "if_statement of 90 characters"}


def _marked(mark: int) -> dict[str, Any]:
    marks = {"unit": mark, "edges": 5, "companions": 5, "name": 1}
    return {"path": "src/a b.py", "symbol": "Shop.pay", "start_line": 4, "end_line": 9, "remark": "torn <i>", **marks}


def _review(repository: Repository, **fields: Any) -> ChunkReview:
    return ChunkReview.objects.create(repository=repository, commit="a" * 40, files=7, chunks=1234, **fields)


@pytest.fixture
def repository() -> Repository:
    return make_repository("acme/shop")


def test_it_draws_the_marks_of_each_run_in_time_order(repository: Repository, staff_client: Client) -> None:
    _review(repository, marked=[_marked(1), _marked(2)])
    _review(repository)  # without a sample: in the table alone
    _review(repository, marked=[_marked(5)], problems={"cut_through": 2, "edges": 1}, examples=[FAILING])
    response = staff_client.get(PAGE)
    [card] = response.context["cards"]
    assert [run.problems for run in card["runs"]] == [3, 0, 0]
    unit, edges, _, name = card["series"]
    assert [point.said.split(",")[0] for point in unit.points] == ["unit 1.50", "unit 5.00"]
    assert [point.x for point in unit.points] == [24.0, 616.0]
    assert unit.points[0].y > unit.points[1].y == edges.points[0].y == 12.0  # y grows downwards
    assert name.points[0].y == 158.0
    html = response.content.decode()
    assert html.count("<polyline") == 4
    assert "1,234" in html


def test_it_links_failing_and_judged_chunks_into_the_viewer(repository: Repository, staff_client: Client) -> None:
    review = _review(
        repository, marked=[_marked(2)], model="m", problems={"cut_through": 1}, examples=[FAILING], notice="Few."
    )
    html = staff_client.get(f"{PAGE}{review.pk}/").content.decode()
    blob = f"/r/{repository.pk}/acme-shop/blob/{'a' * 40}"
    assert f'href="{blob}?path=src/a%20b.py#L4-L9"' in html
    assert f'href="{blob}?path=src/%3Cb%3E.py#L3-L3"' in html
    assert "src/&lt;b&gt;.py:3" in html
    assert "Shop.pay: unit 2, edges 5, companions 5, name 1" in html
    assert "torn &lt;i&gt;" in html
    assert "a construct that was cut although it fits" in html
    assert "Few." in html


def test_it_links_no_path_that_it_cannot_tell(repository: Repository, staff_client: Client) -> None:
    review = _review(repository, problems={"edges": 1}, examples=[FAILING | {"path": "caf\\xe9.py"}])
    html = staff_client.get(f"{PAGE}{review.pk}/").content.decode()
    assert "caf\\xe9.py:3" in html
    assert "/blob/" not in html


def test_it_says_so_when_no_check_failed_and_nothing_was_reviewed(repository: Repository, staff_client: Client) -> None:
    assert "Nothing was reviewed yet" in staff_client.get(PAGE).content.decode()
    review = _review(repository)
    html = staff_client.get(f"{PAGE}{review.pk}/").content.decode()
    assert "No check failed." in html
    assert "No sample was judged" in html
    assert "<polyline" not in staff_client.get(PAGE).content.decode()


def test_it_shows_nothing_of_repositories_that_the_person_may_not_read(repository: Repository) -> None:
    review = _review(repository)
    Repository.objects.update(visibility=Repository.Visibility.PRIVATE)
    client = Client()
    client.force_login(make_user("lead", is_staff=True))
    assert "acme/shop" not in client.get(PAGE).content.decode()
    assert client.get(f"{PAGE}{review.pk}/").status_code == 404


def test_it_is_for_staff_alone(repository: Repository, user_client: Client) -> None:
    review = _review(repository)
    assert user_client.get(PAGE).status_code == 404
    assert user_client.get(f"{PAGE}{review.pk}/").status_code == 404


def test_it_asks_as_often_for_many_reviews_as_for_one(
    repository: Repository, staff_client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(5):
        other = make_repository(f"acme/other{number}")
        _review(other)
        _review(other)
    with django_assert_num_queries(7):  # session, user, reviews with repositories, sidebar (4)
        assert len(staff_client.get(PAGE).context["cards"]) == 5
