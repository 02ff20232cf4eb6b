from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from indexing.audit import record
from indexing.models import AuditEvent
from tests.factories import make_repository, make_user

pytestmark = pytest.mark.django_db
LIST = "/admin/indexing/auditevent/"


def lead(client: Client) -> User:
    lead = make_user("lead", is_staff=True)
    lead.user_permissions.set(Permission.objects.filter(content_type__app_label="indexing"))
    client.force_login(lead)
    return lead


def events() -> list[tuple[str, str, str]]:
    return list(AuditEvent.objects.order_by("pk").values_list("actor", "action", "detail"))


def test_it_keeps_rows_as_they_were_written() -> None:
    record(None, "repository removed", "acme/web")
    event = AuditEvent.objects.get()
    assert (event.actor, event.target, event.repository_id) == ("(server)", "acme/web", None)
    for change in (event.save, event.delete, AuditEvent.objects.all().delete):
        with pytest.raises(TypeError, match="only added to"):
            change()


def test_it_keeps_no_secret() -> None:
    record(None, "setting changed", "x", 'token = "ghp_' + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8" + '"')
    assert "ghp_" not in AuditEvent.objects.get().detail


def test_it_outlives_its_actor() -> None:
    person = make_user("ana")
    record(person, "token revoked", "x")
    person.delete()
    assert events() == [("ana", "token revoked", "")]


def test_it_records_what_is_changed_in_the_admin(client: Client) -> None:
    person, repository = lead(client), make_repository("acme/web")
    client.post("/admin/indexing/repository/", {"action": "make_golden", "_selected_action": [repository.pk]})
    form = {"name": "acme/web", "visibility": "public", "description": "The shop", "owner": "", "members": []}
    response = client.post(f"/admin/indexing/repository/{repository.pk}/change/", form)
    assert response.status_code == 302
    client.post(f"/repositories/{repository.pk}/golden/", {"golden": "0"})
    assert events() == [
        (person.username, "repository made golden", ""),
        (person.username, "repository changed", "Changed Golden and Description."),
        (person.username, "repository made not golden", ""),
    ]


def test_it_shows_staff_no_event_about_a_repository_that_they_may_not_read(client: Client) -> None:
    lead(client)
    record(None, "repository removed", make_repository("acme/secret", visibility="private"))
    record(None, "repository removed", make_repository("acme/open"))
    html = client.get(LIST).content.decode()
    assert "acme/open" in html
    assert "acme/secret" not in html


def test_it_offers_neither_change_nor_removal(client: Client) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    record(None, "repository removed", "acme/web")
    page = client.get(f"{LIST}{AuditEvent.objects.get().pk}/change/").content.decode()
    assert "acme/web" in page
    assert "_save" not in page
    assert client.post(f"{LIST}{AuditEvent.objects.get().pk}/delete/", {"post": "yes"}).status_code == 403


def test_it_exports_cells_that_no_spreadsheet_runs(client: Client) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    record(None, "repository removed", '=HYPERLINK("https://example.org")')
    chosen = {"action": "export", "_selected_action": [AuditEvent.objects.get().pk]}
    lines = client.post(LIST, chosen).content.decode().splitlines()
    assert lines[0] == "at,actor,action,target,detail"
    assert "\"'=HYPERLINK(" in lines[1]


def test_it_records_rights_and_passwords_without_their_values(client: Client) -> None:
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    person = make_user("ana")
    form = {"password1": "correct-horse-battery", "password2": "correct-horse-battery", "usable_password": "true"}
    client.post(f"/admin/auth/user/{person.pk}/password/", form)
    client.post("/admin/auth/group/add/", {"name": "payments"})
    assert events() == [("root", "user changed", "Changed password."), ("root", "group added", "")]
