"""Private repositories: a login reaches Git and its own host, and nothing else; who has none shares nothing."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from pytest_django import Settings

from indexing import credentials
from indexing.access import Principal
from indexing.credentials import key_secret, secret_of, token_secret
from indexing.errors import GitError, InvalidLogin, InvalidSource, UnreachableSource
from indexing.git import allowed_source, blob_at, ensure_mirror, parse_source, probe, remote_commit, resolve
from indexing.models import AuditEvent, Credential, Mirror, Repository
from indexing.registering import register, remove, set_login, set_readers
from tests.factories import git, make_repo, make_user
from tests.git_server import GitServer, serving

pytestmark = pytest.mark.django_db
TOKEN = "glpat-only-for-tests-4711"


@pytest.fixture(autouse=True)
def keys(settings: Settings) -> None:
    settings.CREDENTIALS_KEYS = [Fernet.generate_key().decode()]
    settings.GIT_ALLOWED_HOSTS = ["127.0.0.1", "localhost"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    repo = make_repo(tmp_path / "served", {"a.py": "secret = 1\n"}, name="shop.work")
    git(repo, "clone", "--quiet", "--bare", str(repo), str(tmp_path / "served/shop.git"))
    with serving(tmp_path / "served", {"git": TOKEN}) as server:
        yield server


def ssh_key() -> str:
    form, encryption = serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    return Ed25519PrivateKey.generate().private_bytes(serialization.Encoding.PEM, form, encryption).decode()


def add(user: User, url: str, token: str = "") -> Repository:
    secret = token_secret(token) if token else None
    source = allowed_source(url, from_staff=False, secret=secret)
    return register(source, owner=user, principal=Principal.of_user(user), secret=secret)[0]


def test_it_fetches_with_a_token_what_nobody_gets_without(server: GitServer, user: User) -> None:
    repository = add(user, server.url("shop"), TOKEN)
    ensure_mirror(repository.mirror)
    commit = resolve(repository.mirror.path, "", repository.mirror.default_branch)
    assert blob_at(repository.mirror.path, commit, b"a.py")
    assert remote_commit(repository.mirror, "") == commit
    assert probe(parse_source(server.url("shop"), from_staff=False), "", token_secret(TOKEN)) == "main"
    with pytest.raises(UnreachableSource, match="asks for a login"):
        probe(parse_source(server.url("shop"), from_staff=False))


def test_it_makes_private_what_needed_a_login(server: GitServer, user: User) -> None:
    assert add(user, server.url("shop"), TOKEN).visibility == Repository.Visibility.PRIVATE


def test_it_says_that_a_login_is_not_accepted_without_repeating_it(server: GitServer, user: User) -> None:
    repository = add(user, server.url("shop"), "wrong-token-4712")
    with pytest.raises(UnreachableSource, match="did not accept the login kept for") as error:
        ensure_mirror(repository.mirror)
    assert "4712" not in str(error.value)


def test_it_shows_the_token_to_nobody_but_the_host(
    server: GitServer, user: User, data_dir: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in arguments nor in the environment of Git, nor in a file, the database or a log."""
    caplog.set_level(logging.DEBUG)
    started: list[str] = []
    original = subprocess.Popen

    def watched(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        started.append(f"{command} {options}")
        return original(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", watched)
    repository = add(user, server.url("shop"), TOKEN)
    ensure_mirror(repository.mirror)
    assert "git" in server.logins
    assert started
    assert not [line for line in started if TOKEN in line]
    written = b"".join(file.read_bytes() for file in data_dir.rglob("*") if file.is_file())
    assert TOKEN.encode() not in written
    assert TOKEN not in Credential.objects.get().sealed + caplog.text + repr(secret_of(repository.mirror))


def test_it_shares_no_mirror_with_somebody_without_the_login(server: GitServer, user: User, other_user: User) -> None:
    mine = add(user, server.url("shop"), TOKEN)
    ensure_mirror(mine.mirror)
    for token in ("", "guessed"):
        theirs = add(other_user, server.url("shop"), token)
        assert theirs.mirror != mine.mirror
        with pytest.raises(UnreachableSource):
            ensure_mirror(theirs.mirror)
        assert not theirs.mirror.path.exists()
    assert Mirror.objects.count() == 3


def test_it_keeps_one_login_and_one_mirror_for_two_branches(server: GitServer, user: User) -> None:
    first = add(user, server.url("shop"), TOKEN)
    second, created = register(
        parse_source(server.url("shop"), from_staff=False),
        owner=user,
        principal=Principal.of_user(user),
        ref="other",
        secret=token_secret(TOKEN),
    )
    assert created
    assert first.mirror == second.mirror
    assert Credential.objects.count() == 1


def test_it_moves_to_a_mirror_of_its_own_when_it_gets_a_login(server: GitServer, user: User, other_user: User) -> None:
    mine = add(user, server.url("shop"))
    set_readers(mine, visibility="private")
    theirs = add(other_user, server.url("shop"))
    assert mine.mirror == theirs.mirror
    set_login(mine, token_secret(TOKEN))
    mine.refresh_from_db()
    assert mine.mirror != theirs.mirror
    ensure_mirror(mine.mirror)
    with pytest.raises(UnreachableSource):
        ensure_mirror(theirs.mirror)


def test_it_leaves_what_a_login_fetched_behind_when_it_is_forgotten(server: GitServer, user: User) -> None:
    repository = add(user, server.url("shop"), TOKEN)
    ensure_mirror(repository.mirror)
    before = repository.mirror
    set_login(repository, None)
    assert repository.mirror.path != before.path
    assert not Credential.objects.exists()
    assert Mirror.objects.get() == repository.mirror


def test_it_forgets_a_login_with_its_last_repository(server: GitServer, user: User) -> None:
    remove(add(user, server.url("shop"), TOKEN))
    assert not Credential.objects.exists()


def test_it_sends_a_login_to_no_other_host(server: GitServer, user: User) -> None:
    mirror = add(user, server.url("shop"), TOKEN).mirror
    mirror.url = f"http://localhost:{server.port}/shop"
    mirror.save(update_fields=["url"])
    with pytest.raises(InvalidLogin, match="is not sent to"):
        ensure_mirror(mirror)
    assert server.logins == []


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        ("Username for 'http://git.example:8080': ", ["git", ""]),
        ("Username for 'http://evil.example': ", ["", ""]),
        ("Username for 'http://proxy.example:3128': ", ["", ""]),
        ("Password for 'http://git@git.example:8080.evil.example': ", ["", ""]),
        ("Enter passphrase for key: ", ["", ""]),
    ],
)
def test_it_answers_only_what_the_source_itself_asks(question: str, answers: list[str]) -> None:
    script = Path(credentials.__file__).with_name("askpass.sh")
    reader, writer = os.pipe()
    os.write(writer, b"git\n" + TOKEN.encode() + b"\n")
    os.close(writer)
    environment = {"ASKPASS_FD": str(reader), "ASKPASS_SCHEME": "http", "ASKPASS_HOST": "git.example:8080"}
    said = [
        subprocess.run([script, asked], env=environment, pass_fds=[reader], capture_output=True, check=False, text=True)
        for asked in (question, question.replace("git.example:8080", "other.example"))
    ]
    os.close(reader)
    assert [done.stdout.strip() for done in said] == answers


def test_it_gives_ssh_the_key_alone_in_a_file_that_is_gone_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(
        f"#!{sys.executable}\nimport os, sys, pathlib\n"
        "key = pathlib.Path(sys.argv[sys.argv.index('-i') + 1])\n"
        f"pathlib.Path('{tmp_path}/seen').write_text('\\n'.join([*sys.argv, oct(key.stat().st_mode), "
        "oct(key.parent.stat().st_mode), key.read_text(), *map(str, os.environ.items())]))\n"
        "sys.stderr.write('git@localhost: Permission denied (publickey).')\nsys.exit(255)\n"
    )
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    key = ssh_key()
    secret = key_secret(key)
    with pytest.raises(UnreachableSource, match="did not accept the login"):
        probe(parse_source("git@localhost:acme/shop", from_staff=False), "", secret)
    seen = (tmp_path / "seen").read_text()
    path = Path(seen.splitlines()[seen.splitlines().index("-i") + 1])
    assert not path.parent.exists()
    assert "0o100600\n0o40700\n" in seen
    assert key in seen  # in the file that was read, and nowhere else:
    assert seen.count(key.splitlines()[1]) == 1
    for option in ("IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=accept-new", "BatchMode=yes"):
        assert option in seen.splitlines(), option
    assert "\n-F\n/dev/null\n" in seen
    assert "('SSH_AUTH_SOCK', '')" in seen


def test_it_knows_a_key_by_the_fingerprint_that_ssh_shows(tmp_path: Path) -> None:
    key = ssh_key()
    (tmp_path / "key").write_text(key)
    (tmp_path / "key").chmod(0o600)
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key"], capture_output=True, check=True, text=True).stdout
    assert key_secret(key).fingerprint == shown.split()[1]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: token_secret("two words"), "one word"),
        (lambda: token_secret("a\nb"), "one word"),
        (lambda: token_secret("t", "a\nb"), "one word"),
        (lambda: key_secret("ssh-ed25519 AAAA"), "not a private SSH key"),
        (lambda: token_secret("t").check_fits("ssh://git@git.example/a"), "https address"),
        (lambda: token_secret("t").check_fits("http://git.example/a"), "unencrypted"),
        (lambda: key_secret(ssh_key()).check_fits("https://git.example/a"), "SSH address"),
    ],
)
def test_it_refuses_what_git_could_not_use(make: object, reason: str) -> None:
    with pytest.raises(InvalidLogin, match=reason):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("kind", [["-t", "ed25519"], ["-t", "rsa", "-m", "PEM", "-b", "1024"]])
def test_it_refuses_a_key_with_a_passphrase_and_takes_one_without(tmp_path: Path, kind: list[str]) -> None:
    for name, passphrase in (("locked", "only for tests"), ("open", "")):
        subprocess.run(["ssh-keygen", "-q", *kind, "-N", passphrase, "-f", tmp_path / name], check=True)
    with pytest.raises(InvalidLogin, match="passphrase"):
        key_secret((tmp_path / "locked").read_text())
    assert key_secret((tmp_path / "open").read_text()).fingerprint.startswith("SHA256:")


def test_it_lets_nobody_but_staff_use_the_keys_of_the_server() -> None:
    with pytest.raises(InvalidSource, match="needs an SSH key"):
        allowed_source("git@localhost:acme/shop", from_staff=False)
    assert allowed_source("git@localhost:acme/shop", from_staff=True).kind == "remote"
    assert allowed_source("git@localhost:acme/shop", from_staff=False, secret=key_secret(ssh_key())).kind == "remote"


def test_it_reads_with_an_old_key_until_all_are_rotated(
    server: GitServer, user: User, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = add(user, server.url("shop"), TOKEN).mirror
    call_command("rotate_credentials", "--new-key")
    old, new = settings.CREDENTIALS_KEYS[0], capsys.readouterr().out.strip()
    settings.CREDENTIALS_KEYS = [new, old]
    assert secret_of(mirror) == token_secret(TOKEN)
    call_command("rotate_credentials")
    settings.CREDENTIALS_KEYS = [new]
    mirror.refresh_from_db()
    assert secret_of(mirror) == token_secret(TOKEN)
    settings.CREDENTIALS_KEYS = [old]
    mirror = Mirror.objects.get()
    with pytest.raises(InvalidLogin, match="CREDENTIALS_KEY does not have"):
        secret_of(mirror)
    with pytest.raises(CommandError, match="CREDENTIALS_KEY lacks"):
        call_command("rotate_credentials")


def test_it_keeps_no_login_without_a_key(settings: Settings, user: User) -> None:
    settings.CREDENTIALS_KEYS = []
    with pytest.raises(InvalidLogin, match="rotate_credentials --new-key"):
        add(user, "http://127.0.0.1:1/shop", TOKEN)
    assert not Repository.objects.exists()


@pytest.mark.parametrize("key", ["short", "not base64 !", "A" * 44])
def test_it_does_not_start_with_a_key_that_is_none(key: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import assistant.settings"],
        env={**os.environ, "CREDENTIALS_KEY": key},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode
    assert "Key 1 of CREDENTIALS_KEY is not valid" in done.stderr
    assert key not in done.stderr.rpartition("ImproperlyConfigured")[2]


def test_it_takes_a_token_in_the_form_and_never_shows_it(user_client: Client, server: GitServer) -> None:
    form = {"source": server.url("shop"), "access_token": TOKEN, "visibility": ""}
    assert user_client.post("/repositories/probe/", form).content.decode().count("Reachable") == 1
    assert user_client.post("/repositories/add/", form).status_code == 302
    repository = Repository.objects.get()
    assert repository.visibility == "private"
    pages = [user_client.get(page) for page in ("/repositories/", f"/repositories/{repository.pk}/settings/")]
    refused = user_client.post("/repositories/add/", form | {"source": "nonsense"})
    assert refused.status_code == 422
    for page in (*pages, refused):
        assert TOKEN not in page.content.decode()
    assert 'Access token of <span class="mono">git</span>' in pages[1].content.decode()
    assert AuditEvent.objects.filter(action="repository added").count() == 1


def test_it_replaces_and_forgets_a_login_on_the_page(user_client: Client, server: GitServer) -> None:
    user_client.post("/repositories/add/", {"source": server.url("shop"), "access_token": "old-token"})
    repository = Repository.objects.get()
    page = f"/repositories/{repository.pk}/settings/"
    unfit = user_client.post(page, {"visibility": "private", "ssh_key": ssh_key()})
    assert (unfit.status_code, "needs an SSH address" in unfit.content.decode()) == (422, True)
    assert user_client.post(page, {"visibility": "private", "access_token": TOKEN}).status_code == 302
    mirror = Mirror.objects.get()
    assert secret_of(mirror) == token_secret(TOKEN)
    user_client.post(page, {"visibility": "private", "login": "remove"})
    assert Mirror.objects.get().credential is None
    assert set(AuditEvent.objects.values_list("action", flat=True)) >= {"login replaced", "login removed"}


def test_it_shows_staff_of_the_admin_which_logins_there_are(staff_client: Client, user: User) -> None:
    key = ssh_key()
    add_with_key = register(
        parse_source("git@localhost:acme/shop", from_staff=False),
        owner=user,
        principal=Principal.of_user(user),
        secret=key_secret(key),
    )[0]
    page = staff_client.get("/admin/indexing/credential/").content.decode()
    assert key_secret(key).fingerprint.replace("+", "&#x2B;") in page or key_secret(key).fingerprint in page
    page += staff_client.get(f"/admin/indexing/credential/{Credential.objects.get().pk}/change/").content.decode()
    page += staff_client.get(f"/admin/indexing/repository/{add_with_key.pk}/change/").content.decode()
    assert key.splitlines()[1] not in page
    assert Credential.objects.get().sealed not in page


def test_it_takes_a_login_in_the_admin(staff_client: Client, server: GitServer) -> None:
    values = {"source": server.url("shop"), "visibility": "", "access_token": TOKEN}
    assert staff_client.post("/admin/indexing/repository/add/", values).status_code == 302
    repository = Repository.objects.get()
    assert (repository.visibility, secret_of(repository.mirror)) == ("private", token_secret(TOKEN))
    values = {"name": "shop", "visibility": "private", "access_token": "another"}
    page = f"/admin/indexing/repository/{repository.pk}/change/"
    assert staff_client.post(page, values).status_code == 302
    assert secret_of(Mirror.objects.get()) == token_secret("another")
    wrong = staff_client.post(page, values | {"access_token": "", "ssh_key": ssh_key()})
    assert "needs an SSH address" in wrong.content.decode()


def test_it_fetches_no_submodule_and_follows_no_redirect_with_a_login(server: GitServer, user: User) -> None:
    work = server.folder / "shop.work"
    with serving(server.folder, {"git": TOKEN}) as other:
        (work / ".gitmodules").write_text(f'[submodule "m"]\n\tpath = m\n\turl = {other.url("shop.git")}\n')
        git(work, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},m")
        git(work, "add", ".gitmodules")
        git(work, "commit", "--quiet", "-m", "submodule")
        git(work, "push", "--quiet", str(server.folder / "shop.git"), "main")
        ensure_mirror(add(user, server.url("shop"), TOKEN).mirror)
        assert other.logins == []


def test_it_masks_a_login_that_a_source_repeats() -> None:
    from indexing.git_process import Remote

    remote = Remote("https://git.example/a", "git.example", secret=token_secret(TOKEN))
    error = remote._error(f"fatal: something odd about {TOKEN}".encode())
    assert isinstance(error, GitError)
    assert TOKEN not in str(error)


def test_it_keeps_a_repository_of_a_person_who_is_gone(server: GitServer) -> None:
    person = make_user("gone")
    repository = add(person, server.url("shop"), TOKEN)
    person.delete()
    repository.refresh_from_db()
    ensure_mirror(repository.mirror)
    assert repository.owner is None
