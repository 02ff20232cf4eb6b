"""`deploy/backup.sh` and `deploy/restore.sh` on SQLite; with everything running, on any service: `tests/faults.py`."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """The data folder of a server with one row, and no mirror yet."""
    data = tmp_path / "served"
    data.mkdir()
    with sqlite3.connect(data / "db.sqlite3") as database:
        database.execute("CREATE TABLE kept (name TEXT)")
        database.execute("INSERT INTO kept VALUES ('a question')")
    (data / "secret_key").write_text("key")
    (data / "known_hosts").write_text("git.example ssh-ed25519 AAAA")
    return data


def run(script: str, folder: Path, data: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DATABASE_URL": "", "DATA_DIR": str(data), "PATH": f"{path}:{os.environ['PATH']}"}
    return subprocess.run([DEPLOY / script, folder], env=environment, capture_output=True, text=True, check=False)


def test_it_brings_back_rows_keys_and_trusted_hosts(served: Path, tmp_path: Path) -> None:
    restored = tmp_path / "restored"
    assert run("backup.sh", tmp_path / "backup", served).returncode == 0
    assert run("restore.sh", tmp_path / "backup", restored).returncode == 0
    with sqlite3.connect(restored / "db.sqlite3") as database:
        assert database.execute("SELECT name FROM kept").fetchall() == [("a question",)]
    assert (restored / "secret_key").read_text() == "key"
    assert (restored / "known_hosts").read_text() == "git.example ssh-ed25519 AAAA"
    assert (restored / "mirrors").is_dir()


def test_it_restores_over_no_mirrors(served: Path, tmp_path: Path) -> None:
    (served / "mirrors/1.git").mkdir(parents=True)
    run("backup.sh", tmp_path / "backup", served)
    refused = run("restore.sh", tmp_path / "backup", served)
    assert (refused.returncode, "is not empty" in refused.stderr) == (1, True)


@pytest.mark.parametrize(("status", "ends"), [(1, 0), (2, 1)])
def test_it_goes_on_when_a_fetch_changes_a_mirror_meanwhile(
    status: int, ends: int, served: Path, tmp_path: Path
) -> None:
    """tar ends with 1 when a file changed as it was read, with 2 when it could not do its work."""
    (tmp_path / "bin").mkdir()
    tar = tmp_path / "bin/tar"
    tar.write_text(f"#!/bin/sh\nexit {status}\n")
    tar.chmod(0o755)
    done = run("backup.sh", tmp_path / "backup", served, path=str(tmp_path / "bin"))
    assert done.returncode == ends
    assert (tmp_path / "backup/secret_key").exists() == (ends == 0)
