"""Scopes as words."""

from __future__ import annotations

import pytest

from indexing.access import Principal
from search.results import Scope
from search.scoping import read_question, scope_tokens
from tests.factories import make_repository, make_user

EVERYTHING = Principal.operator()


@pytest.mark.django_db
def test_it_takes_known_names_and_keys_out_of_the_question() -> None:
    flask = make_repository("pallets/flask")
    asked = read_question("@pallets/flask how is it path:src/flask signed? lang:Python", [], EVERYTHING)
    assert asked.question == "how is it signed?"
    assert asked.scope == Scope((flask.pk,), "src/flask", "", ("python",))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "text", ["What does @app.route do?", "me@example.org", "@Override and @nobody/knows", "a:path:b"]
)
def test_it_leaves_other_words_alone(text: str) -> None:
    asked = read_question(text, [], EVERYTHING)
    assert asked.question == text
    assert asked.scope == Scope()


@pytest.mark.django_db
def test_it_tells_a_filter_from_a_preference() -> None:
    scope = read_question("where?", ["path!:docs", "path:src"], EVERYTHING).scope
    assert (scope.path, scope.path_filter) == ("src", "docs")


@pytest.mark.django_db
def test_it_knows_languages_by_the_ends_of_their_files() -> None:
    asked = read_question("where? lang:py lang:.ts lang:C++ lang:go lang:Python lang:nonsense", [], EVERYTHING)
    assert asked.scope.languages == ("python", "typescript", "cpp", "go", "nonsense")


@pytest.mark.django_db
def test_it_keeps_a_question_that_is_nothing_but_scope() -> None:
    assert read_question("path:src", [], EVERYTHING).question == "path:src"


@pytest.mark.django_db
def test_it_pins_nothing_that_may_not_be_read() -> None:
    make_repository("acme/secret", visibility="private")
    principal = Principal.of_user(make_user())
    assert read_question("where?", ["@acme/secret"], principal).scope == Scope()


@pytest.mark.django_db
def test_it_gives_back_the_words_of_a_scope() -> None:
    flask = make_repository("pallets/flask")
    scope = Scope((flask.pk, 999), "src", "docs", ("python",))
    assert scope_tokens(scope, EVERYTHING) == ["@pallets/flask", "path:src", "path!:docs", "lang:python"]


@pytest.mark.django_db
def test_it_pins_all_that_have_the_name() -> None:
    twins = tuple(make_repository("acme/web", url=f"https://git.example.org/{n}/web").pk for n in range(2))
    assert read_question("where?", ["@acme/web"], EVERYTHING).scope.repository_ids == twins
    assert scope_tokens(Scope(twins), EVERYTHING) == ["@acme/web"]
