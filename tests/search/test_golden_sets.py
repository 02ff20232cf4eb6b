from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from assistant import conversations
from assistant.completing import complete
from indexing.access import Principal
from search import golden_sets
from search.results import ScopedSet
from search.scoping import read_question, scope_tokens
from tests.factories import make_golden_set, make_message, make_repository, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def shared():
    """A set of one public repository and one that only its owner reads."""
    owner = make_user("owner")
    shop = make_repository("acme/shop")
    secret = make_repository("acme/secret", owner=owner, visibility="private")
    make_golden_set("trade", shop, secret, note="Everything about orders", topics="orders, refunds")
    return shop, secret, Principal.of_user(owner), Principal.of_user(make_user("stranger"))


def test_it_pins_the_members_that_the_asking_person_reads(shared) -> None:
    shop, secret, owner, stranger = shared
    asked = read_question("how are orders kept @set/trade", [], owner)
    assert asked.question == "how are orders kept"
    assert asked.scope.repository_ids == (shop.pk, secret.pk)
    assert asked.scope.sets == (ScopedSet("trade", (shop.pk, secret.pk)),)
    assert read_question("x", ["@set/trade"], stranger).scope.repository_ids == (shop.pk,)


def test_it_is_not_there_for_who_reads_no_member(shared) -> None:
    _shop, secret, owner, stranger = shared
    make_golden_set("vault", secret)
    asked = read_question("what is @set/vault", [], stranger)
    assert (asked.question, asked.scope.sets) == ("what is @set/vault", ())
    assert [row.token for row in complete("@set", [], stranger)] == ["@set/trade"]
    assert [row.token for row in complete("@vau", [], owner)] == ["@set/vault"]


def test_it_is_offered_with_its_readable_size_and_note(shared) -> None:
    *_, owner, stranger = shared
    assert complete("@tra", [], owner)[0].detail == "2 repositories: Everything about orders"
    assert complete("@tra", [], stranger)[0].detail == "1 repository: Everything about orders"


def test_it_stays_one_chip_beside_the_repositories_that_were_named(shared) -> None:
    shop, secret, owner, _stranger = shared
    mail = make_repository("acme/mail")
    scope = read_question("x", ["@set/trade", "@acme/mail"], owner).scope
    assert scope.repository_ids == (shop.pk, secret.pk, mail.pk)
    assert scope_tokens(scope, owner) == ["@set/trade", "@acme/mail"]


def test_it_survives_being_stored_with_a_message(shared) -> None:
    *_, owner, _stranger = shared
    scope = read_question("x", ["@set/trade"], owner).scope
    stored = {"repository_ids": list(scope.repository_ids), "sets": [{"name": "trade", "repository_ids": [1, 2]}]}
    assert conversations.scope_of(make_message(scope=stored)).sets == (ScopedSet("trade", (1, 2)),)


def test_it_lists_topics_by_repository(shared) -> None:
    shop, secret, *_ = shared
    assert golden_sets.topics() == {pk: [("orders", "trade"), ("refunds", "trade")] for pk in (shop.pk, secret.pk)}


def test_it_leaves_a_quoted_phrase_as_it_is(shared) -> None:
    *_, owner, _stranger = shared
    asked = read_question('"see @set/trade lang:go"', [], owner)
    assert (asked.question, asked.scope.sets) == ('"see @set/trade lang:go"', ())
    assert read_question('"return None" @set/trade', [], owner).question == '"return None"'


def test_it_keeps_members_that_the_curating_person_does_not_see(shared, client: Client) -> None:
    shop, secret, *_ = shared
    lead = make_user("lead", is_staff=True)
    lead.user_permissions.set(Permission.objects.filter(content_type__app_label="indexing"))
    client.force_login(lead)
    row = secret.golden_sets.get()
    page = client.get(f"/admin/indexing/goldenset/{row.pk}/change/").content.decode()
    assert "acme/shop" in page
    assert "acme/secret" not in page
    client.post(f"/admin/indexing/goldenset/{row.pk}/change/", {"name": "trade", "note": "", "topics": ""})
    assert list(row.repositories.all()) == [secret]


def test_it_begins_a_set_with_the_repositories_chosen_in_the_admin(client: Client) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    shop = make_repository("acme/shop")
    chosen = {"action": "make_set", "_selected_action": [shop.pk]}
    response = client.post("/admin/indexing/repository/", chosen, follow=True)
    assert f'<option value="{shop.pk}" selected>acme/shop</option>' in response.content.decode()


def test_it_narrows_the_search_page(shared, client: Client) -> None:
    client.force_login(make_user("reader"))
    html = client.get("/search/", {"q": "orders @set/trade"}).content.decode()
    assert '<span class="chip">@set/trade</span>' in html
    assert "acme/secret" not in html
