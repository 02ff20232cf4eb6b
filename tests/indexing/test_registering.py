"""Repositories that come and go."""

from __future__ import annotations

from django.contrib.auth.models import User

from indexing.access import Principal
from indexing.models import Mirror, Repository
from indexing.registering import register, remove
from indexing.sources import parse_source
from tests.factories import make_repository

FLASK = "https://github.com/pallets/flask"


def add(user: User, url: str = FLASK, **fields: str) -> tuple[Repository, bool]:
    return register(parse_source(url, from_staff=False), owner=user, principal=Principal.of_user(user), **fields)


def test_it_names_a_repository_after_its_source(user: User) -> None:
    repository, created = add(user)
    assert (repository.name, repository.owner, created) == ("pallets/flask", user, True)


def test_it_shares_a_mirror_between_refs_and_numbers_the_second_name(user: User) -> None:
    add(user)
    second, _ = add(user, ref="3.0.x")
    assert second.name == "pallets/flask-2"
    assert Mirror.objects.count() == 1


def test_it_does_not_reveal_a_private_repository_of_the_same_source(user: User, other_user: User) -> None:
    hidden, _ = add(user, visibility="private")
    own, created = add(other_user)
    assert created
    assert own.pk != hidden.pk
    assert own.name == hidden.name == "pallets/flask"


def test_it_keeps_a_mirror_that_another_repository_reads(user: User) -> None:
    first, _ = add(user)
    second, _ = add(user, ref="3.0.x")
    remove(first)
    assert Mirror.objects.get() == second.mirror
    remove(second)
    assert not Mirror.objects.exists()


def test_it_removes_what_a_public_repository_left_on_disk(user: User) -> None:
    repository = make_repository(owner=user)
    repository.index_path.mkdir(parents=True)
    (repository.index_path / "manifest.json").write_text("{}")
    remove(repository)
    assert not repository.index_path.exists()
