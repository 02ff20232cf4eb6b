"""Sign-in by OpenID Connect against a provider on loopback, in a process whose settings have it switched on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.oidc_stand_in import CLIENT, SECRET, providing

READER = {
    "sub": "4711",
    "preferred_username": "reader",
    "email": "reader@acme.example",
    "email_verified": True,
    "groups": ["backend", "frontend"],
}
# Runs with the settings of a server that uses the provider; prints what happened as JSON.
SCRIPT = """
import json, sys, urllib.error, urllib.parse, urllib.request
import django
django.setup()
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
call_command("migrate", verbosity=0)

class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *about): return None

def provider(path):
    try:
        return urllib.request.build_opener(Stay).open(settings.OIDC_ISSUER + path).headers
    except urllib.error.HTTPError as error:
        return error.headers

def sign_in(claims=None, tamper=lambda address: address):
    if claims is not None:
        provider("/claims?" + urllib.parse.urlencode({"claims": json.dumps(claims)}))
    client = Client(HTTP_HOST="localhost")
    sent = client.get("/sign-in/oidc/oidc/login/?next=/search/")
    address = sent["Location"].removeprefix(settings.OIDC_ISSUER)
    back = urllib.parse.urlsplit(tamper(provider(address)["Location"]))
    done = client.get(f"{back.path}?{back.query}")
    who = client.session.get("_auth_user_id")
    user = User.objects.get(pk=who) if who else None
    return {
        "status": done.status_code,
        "to": done.headers.get("Location", ""),
        "user": user.username if user else "",
        "id": user.pk if user else 0,
        "groups": sorted(user.groups.values_list("name", flat=True)) if user else [],
        "rights": [user.is_staff, user.is_superuser, user.has_usable_password()] if user else [],
        "page": "" if user else done.content.decode(),
    }

report = {}
reader = READER
User.objects.create_user("reader", email="reader@acme.example", password="a long one for tests")
report["page"] = Client(HTTP_HOST="localhost").get("/sign-in/?next=/search/").content.decode()
report["first"] = sign_in(reader)
report["again"] = sign_in(reader | {"groups": ["backend"], "preferred_username": "renamed"})
report["elsewhere"] = sign_in(reader | {"sub": "2", "email": "x@evil.example"})
report["unverified"] = sign_in(reader | {"sub": "3", "email_verified": False})
report["forged"] = sign_in(reader, tamper=lambda address: address.replace("state=", "state=x"))
report["replayed"] = sign_in(reader, tamper=lambda address: address.replace("code=", "code=x"))
User.objects.filter(pk=report["first"]["id"]).update(is_active=False)
report["inactive"] = sign_in(reader)
report["people"] = sorted(User.objects.values_list("username", flat=True))
report["password"] = Client(HTTP_HOST="localhost").post(
    "/sign-in/", {"username": "reader", "password": "a long one for tests"}
).status_code
report["elsewhere_next"] = Client(HTTP_HOST="localhost").get(
    "/sign-in/oidc/oidc/login/?next=https://evil.example/"
).status_code
print("REPORT" + json.dumps(report))
"""


def _run(code: str, data_dir: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = {**os.environ, "DATA_DIR": str(data_dir), "DJANGO_SETTINGS_MODULE": "assistant.settings", **environment}
    return subprocess.run([sys.executable, "-c", code], env=whole, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with providing(**READER) as provider:
        done = _run(
            SCRIPT.replace("READER\n", f"{READER!r}\n"),
            tmp_path_factory.mktemp("oidc"),
            DATABASE_URL="sqlite://:memory:",
            OIDC_ISSUER=provider.issuer,
            OIDC_CLIENT_ID=CLIENT,
            OIDC_CLIENT_SECRET=SECRET,
            OIDC_NAME="Acme",
            OIDC_ALLOWED_DOMAINS="acme.example",
            OIDC_GROUPS_CLAIM="groups",
        )
    assert "REPORT" in done.stdout, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.partition("REPORT")[2])
    return found


def test_it_makes_an_account_with_groups_and_without_the_rights_of_staff(report: dict[str, Any]) -> None:
    first = report["first"]
    assert (first["status"], first["to"], first["groups"]) == (302, "/search/", ["backend", "frontend"])
    assert first["rights"] == [False, False, False]


def test_it_takes_over_no_account_of_the_same_name_or_address(report: dict[str, Any]) -> None:
    assert report["first"]["user"] not in ("", "reader")
    assert report["people"] == sorted(["reader", report["first"]["user"]])
    assert report["password"] == 302


def test_it_knows_a_person_by_the_identifier_and_follows_their_groups(report: dict[str, Any]) -> None:
    assert report["again"]["id"] == report["first"]["id"]
    assert report["again"]["groups"] == ["backend"]


@pytest.mark.parametrize(
    ("case", "status", "sentence"),
    [
        ("elsewhere", 403, "people of your mail domain may not sign in here"),
        ("unverified", 403, "people of your mail domain may not sign in here"),
        ("forged", 401, "Signing in with Acme did not work"),
        ("replayed", 401, "Signing in with Acme did not work"),
        ("inactive", 403, "was switched off"),
    ],
)
def test_it_lets_nobody_else_in_and_says_why(report: dict[str, Any], case: str, status: int, sentence: str) -> None:
    assert (report[case]["status"], report[case]["user"]) == (status, "")
    assert sentence in report[case]["page"]


def test_it_offers_the_provider_beside_the_password(report: dict[str, Any]) -> None:
    assert 'href="/sign-in/oidc/oidc/login/?next=/search/">Sign in with Acme</a>' in report["page"]


def test_it_needs_tls_and_loads_nothing_when_it_is_off(tmp_path: Path) -> None:
    refused = _run("import assistant.settings", tmp_path, OIDC_ISSUER="http://id.example")
    assert "it has to begin with https://" in refused.stderr
    loaded = _run("import django, sys; django.setup(); print([n for n in sys.modules if 'allauth' in n])", tmp_path)
    assert loaded.stdout.strip() == "[]"
