"""The one rule of who may read what."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser, Group

from indexing.access import Principal
from indexing.models import Repository
from tests.factories import make_repository, make_user

pytestmark = pytest.mark.django_db


def seen(principal: Principal) -> set[str]:
    return set(Repository.objects.visible_to(principal).values_list("name", flat=True))


def test_it_shows_each_person_what_they_may_read_and_once() -> None:
    owner, member, insider, stranger = (make_user(name) for name in ("owner", "member", "insider", "stranger"))
    group = Group.objects.create(name="backend")
    insider.groups.add(group, Group.objects.create(name="frontend"))
    make_repository("open")
    secret = make_repository("secret", visibility="private", owner=owner)
    secret.members.add(member)
    secret.groups.set(Group.objects.all())
    for person in (owner, member, insider):
        assert sorted(Repository.objects.visible_to(Principal.of_user(person)).values_list("name", flat=True)) == [
            "open",
            "secret",
        ]
    assert seen(Principal.of_user(stranger)) == {"open"}
    assert seen(Principal.of_user(make_user("lead", is_staff=True))) == {"open"}
    assert seen(Principal.of_user(make_user("root", is_superuser=True))) == {"open", "secret"}
    assert seen(Principal.of_user(AnonymousUser())) == set()
    assert seen(Principal.of_user(make_user("gone", is_active=False))) == set()


def test_it_takes_the_right_of_a_group_away_with_the_group_or_the_membership() -> None:
    person, group = make_user(), Group.objects.create(name="backend")
    make_repository("secret", visibility="private").groups.add(group)
    person.groups.add(group)
    assert seen(Principal.of_user(person)) == {"secret"}
    person.groups.remove(group)
    assert seen(Principal.of_user(person)) == set()
    person.groups.add(group)
    group.delete()
    assert seen(Principal.of_user(person)) == set()


def test_it_never_shows_a_token_more_than_its_list() -> None:
    listed, other = make_repository("listed"), make_repository("other")
    everything = Principal(user_id=None, sees_all=True, repository_ids=frozenset({listed.pk}))
    assert seen(everything) == {"listed"}
    assert seen(Principal(user_id=make_user().pk, repository_ids=frozenset())) == set()
    assert other.name not in seen(everything)
