"""A private repository behind a real SSH server: from a deploy key in the API to an index, and nowhere else."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.contrib.auth.models import User
from pytest_django import Settings

from indexing import embedding
from indexing.access import Principal
from indexing.building import build_now
from indexing.errors import UnreachableSource
from indexing.git import ensure_mirror, remote_commit
from indexing.models import AuditEvent, Credential, Repository
from search import pipeline
from tests.assistant.api_client import ApiClient
from tests.factories import commit_files, head, make_repo
from tests.indexing.stub_embedder import StubEmbedder
from tests.ssh_server import SshServer, make_key, needs_sshd, serving

pytestmark = [pytest.mark.django_db, needs_sshd]


@pytest.fixture(autouse=True)
def rules(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.CREDENTIALS_KEYS = [Fernet.generate_key().decode()]
    settings.GIT_ALLOWED_HOSTS = ["127.0.0.1"]
    monkeypatch.setattr(embedding, "get_embedder", StubEmbedder)


@pytest.fixture
def key(tmp_path: Path) -> str:
    return make_key(tmp_path / "deploy_key")


@pytest.fixture
def served(tmp_path: Path) -> Path:
    return make_repo(tmp_path, {"vault.py": "def unseal(box):\n    return box.contents\n"}, name="vault")


@pytest.fixture
def server(tmp_path: Path, key: str) -> Iterator[SshServer]:
    with serving(tmp_path / "sshd", (tmp_path / "deploy_key.pub").read_text()) as running:
        yield running


@pytest.fixture
def api(user: User) -> ApiClient:
    return ApiClient(user, ["read", "write"])


def add(api: ApiClient, server: SshServer, served: Path, key: str) -> Repository:
    body = {"source": server.url(served), "login": {"ssh_key": key}, "index": False}
    added = api.post("/repositories", body)
    assert added.status_code == 201, added.content
    return Repository.objects.get(pk=added.json()["id"])


def test_it_indexes_what_a_deploy_key_opens_and_goes_on_with_the_next_commit(
    api: ApiClient, server: SshServer, served: Path, key: str, user: User
) -> None:
    repository = add(api, server, served, key)
    assert repository.visibility == "private"
    build_now(repository)
    shown = api.get(f"/repositories/{repository.pk}").json()
    assert (shown["status"]["current"]["commit"], shown["login"]["kind"]) == (head(served), "key")
    found = pipeline.search("def unseal", principal=Principal.of_user(user), use_llm=False)
    assert found.hits[0].path == b"vault.py"
    commit_files(served, {"lid.py": "def lift(): pass\n"})
    assert remote_commit(repository.mirror, "") == head(served)
    assert server.log.count("Accepted publickey") >= 2


def test_it_shows_the_key_to_nobody(
    api: ApiClient,
    server: SshServer,
    served: Path,
    key: str,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither in arguments or variables of Git and ssh, nor in a file that stays, the database, a reply or a log."""
    caplog.set_level(logging.DEBUG)
    (tmp_path / "bin").mkdir()
    spy = tmp_path / "bin/ssh"
    spy.write_text(f'#!/bin/sh\n{{ echo "$0 $*"; env; }} >> {tmp_path}/seen\nexec {shutil.which("ssh")} "$@"\n')
    spy.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    monkeypatch.setenv("TMPDIR", str(tmp_path / "bin"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "bin"))
    started: list[str] = []
    original = subprocess.Popen

    def watched(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        started.append(f"{command} {options}")
        return original(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", watched)
    repository = add(api, server, served, key)
    ensure_mirror(repository.mirror)
    replies = [api.get("/repositories"), api.get(f"/repositories/{repository.pk}"), api.get("/health")]
    seen = (tmp_path / "seen").read_text()
    assert "git-upload-pack" in seen
    assert os.listdir(tmp_path / "bin") == ["ssh"]  # the file with the key is gone
    written = [file.read_text(errors="replace") for file in data_dir.rglob("*") if file.is_file()]
    rows = [str(list(model.objects.values())) for model in (Credential, AuditEvent, Repository)]
    for line in key.splitlines()[1:-1]:
        for place in (seen, *started, *written, *rows, caplog.text, *(reply.content.decode() for reply in replies)):
            assert line not in place
    assert Credential.objects.get().sealed.startswith("gAAAA")  # Fernet's first byte and the time


def test_it_says_that_another_key_is_not_accepted(
    api: ApiClient, server: SshServer, served: Path, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other_key")
    repository = add(api, server, served, other)
    with pytest.raises(UnreachableSource, match="did not accept the login kept for") as error:
        ensure_mirror(repository.mirror)
    assert not [line for line in other.splitlines() if line in str(error.value)]


def test_it_remembers_the_host_key_and_refuses_another_one(
    api: ApiClient, served: Path, key: str, tmp_path: Path, data_dir: Path
) -> None:
    public = (tmp_path / "deploy_key.pub").read_text()
    with serving(tmp_path / "first", public) as server:
        repository = add(api, server, served, key)
        ensure_mirror(repository.mirror)
    remembered = (data_dir / "known_hosts").read_text()
    assert remembered.startswith(f"[127.0.0.1]:{server.port} ssh-")
    commit_files(served, {"lid.py": "def lift(): pass\n"})
    with (
        serving(tmp_path / "second", public, port=server.port) as imposter,
        pytest.raises(UnreachableSource, match="shows another host key than before"),
    ):
        remote_commit(repository.mirror, "")
    assert "Accepted" not in imposter.log
    assert (data_dir / "known_hosts").read_text() == remembered


def test_it_believes_a_host_key_that_was_put_there_before(
    api: ApiClient, server: SshServer, served: Path, key: str, data_dir: Path, tmp_path: Path
) -> None:
    """Whoever does not trust the first use writes known_hosts; another key is refused from the first time on."""
    make_key(tmp_path / "right_key")
    right = (tmp_path / "right_key.pub").read_text()
    (data_dir / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {right}")
    repository = add(api, server, served, key)
    with pytest.raises(UnreachableSource, match="another host key"):
        ensure_mirror(repository.mirror)
    assert "Accepted" not in server.log
