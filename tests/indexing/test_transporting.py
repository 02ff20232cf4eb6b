"""An index made on one machine and taken over by another, and everything that is refused on the way."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from pytest_django import Settings

from indexing import embedding
from indexing.access import Principal
from indexing.building import build_now, request_build
from indexing.errors import DamagedIndex, IndexingError
from indexing.index_checking import check_structure
from indexing.index_format import open_index, verify
from indexing.models import Index, Repository
from indexing.transporting import export_index, import_index
from search.pipeline import search
from tests.factories import commit_files, git, head, make_repo, make_repository
from tests.indexing.index_contents import contents
from tests.indexing.stub_embedder import StubEmbedder

pytestmark = pytest.mark.django_db

FILES: dict[str, str | bytes] = {
    "shop/orders.py": '"""Orders."""\nimport os\n\n\ndef cancel_order(number):\n    return number * 2\n',
    "README.md": "# Shop\n\nA small shop that keeps its orders in a file on disk.\n",
    "logo.png": b"\x89PNG\x00",
}
Members = dict[str, bytes]


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> StubEmbedder:
    stub = StubEmbedder()
    monkeypatch.setattr(embedding, "get_embedder", lambda: stub)
    return stub


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, FILES)


@pytest.fixture
def exported(tmp_path: Path, repo: Path) -> Path:
    """A file that a CI job made from its own clone, in its own data folder."""
    clone = tmp_path / "clone"
    git(repo, "clone", "--quiet", str(repo), str(clone))
    repository = make_repository("ci", url=str(clone))
    build_now(repository)
    repository.refresh_from_db()
    export_index(repository, tmp_path / "index.tar")
    return tmp_path / "index.tar"


@pytest.fixture
def server(repo: Path, exported: Path, settings: Settings, tmp_path: Path) -> Repository:
    """The same repository on a server that has not indexed it."""
    settings.DATA_DIR = tmp_path / "server"
    return make_repository("acme/shop", url=str(repo))


def _members(file: Path) -> Members:
    with tarfile.open(file) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def _write(file: Path, members: Members) -> None:
    with tarfile.open(file, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def _signed(members: Members) -> Members:
    """With the checksums of its heads made right again."""
    about = json.loads(members["export.json"])
    about["hashes"] = {name: hashlib.sha256(members[name]).hexdigest() for name in ("manifest.json", "skipped.json")}
    return members | {"export.json": json.dumps(about).encode()}


def test_it_gives_the_same_hits_on_another_machine(server: Repository, exported: Path) -> None:
    index = import_index(exported, name="acme/shop")
    assert index is not None
    server.refresh_from_db()
    made = Repository.objects.get(name="ci").current_index
    assert (server.current_index, index.status, index.commit) == (index, "ready", made.commit)
    assert (index.files_done, index.chunks_done, index.skipped) == (made.files_done, made.chunks_done, {"binary": 1})
    result = search("how is an order cancelled?", principal=Principal.operator())
    assert (result.hits[0].path, result.hits[0].repository_id) == (b"shop/orders.py", server.pk)


def test_it_carries_everything_over(server: Repository, exported: Path, settings: Settings, data_dir: Path) -> None:
    import_index(exported, name="acme/shop")
    found = verify(server.index_path)
    settings.DATA_DIR = data_dir
    expected = verify(Repository.objects.get(name="ci").index_path)
    assert contents(found) == contents(expected)
    assert found.manifest.profile.terms == expected.manifest.profile.terms
    assert found.profile is not None
    assert not set(found.manifest.folders()) & set(expected.manifest.folders())


def test_it_updates_an_imported_index_by_what_changed(
    server: Repository, exported: Path, repo: Path, embedder: StubEmbedder
) -> None:
    import_index(exported, name="acme/shop")
    commit_files(repo, {"logo.png": None})
    embedder.texts.clear()
    server.refresh_from_db()
    index = build_now(server)
    assert (embedder.texts, index.skipped, index.commit) == ([], {}, head(repo))


def test_it_writes_the_same_file_twice_and_no_source(exported: Path, tmp_path: Path, data_dir: Path) -> None:
    repository = Repository.objects.get(name="ci")
    export_index(repository, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    assert b"return number" not in exported.read_bytes()
    assert str(tmp_path).encode() not in exported.read_bytes()


def test_it_does_not_replace_a_later_commit(server: Repository, exported: Path, repo: Path) -> None:
    commit_files(repo, {"later.py": "x = 1\n"})
    build_now(server)
    server.refresh_from_db()
    later = server.current_index
    assert import_index(exported, name="acme/shop") is None
    server.refresh_from_db()
    assert server.current_index == later
    assert open_index(server.index_path).manifest.commit == head(repo)


def test_it_refuses_a_commit_that_the_server_cannot_read(server: Repository, exported: Path, tmp_path: Path) -> None:
    other = make_repository("acme/other", url=str(make_repo(tmp_path, {"b.py": "y = 1\n"}, name="other")))
    with pytest.raises(IndexingError, match=r"Commit .* is not in .* Push it first"):
        import_index(exported, name="acme/other")
    other.refresh_from_db()
    assert other.current_index is None


def test_it_refuses_files_that_are_not_in_the_commit(server: Repository, exported: Path, repo: Path) -> None:
    members = _members(exported)
    commit = commit_files(repo, {"shop/orders.py": "changed = 1\n"})
    for name in ("manifest.json", "export.json"):
        data = json.loads(members[name])
        members[name] = json.dumps(data | {"commit": commit}).encode()
    _write(exported, _signed(members))
    with pytest.raises(IndexingError, match="not in the commit it names"):
        import_index(exported, name="acme/shop")


def _other_part(members: Members) -> Members:
    name = next(name for name in members if name.endswith("chunks.npy"))
    return members | {name: members[name][:-1] + b"\x99"}


def _without_part(members: Members) -> Members:
    return {name: content for name, content in members.items() if not name.endswith("definitions.npy")}


def _renamed(members: Members) -> Members:
    manifest = members["manifest.json"].decode()
    segment = json.loads(manifest)["segments"][0]["id"]
    return _signed(members | {"manifest.json": manifest.replace(segment, "../../evil").encode()})


@pytest.mark.parametrize(
    "change",
    [
        _other_part,
        _without_part,
        _renamed,
        lambda members: members | {"../evil": b"x"},
        lambda members: members | {"/tmp/evil": b"x"},
        lambda members: members | {"segments/x/evil.npy": b"x"},
        lambda members: members | {"skipped.json": b"[1]"},
        lambda members: _signed(members | {"skipped.json": b"[1]"}),
        lambda members: _signed(
            members | {"manifest.json": members["manifest.json"].replace(b'"version": 1', b'"version": 9')}
        ),
        lambda members: members | {"export.json": b'{"format": 2}'},
        lambda members: {},
    ],
)
def test_it_refuses_a_file_that_was_tampered_with(
    server: Repository, exported: Path, tmp_path: Path, change: Callable[[Members], Members]
) -> None:
    _write(exported, change(_members(exported)))
    with pytest.raises(IndexingError):
        import_index(exported, name="acme/shop")
    assert not list(tmp_path.rglob("evil*"))
    assert not server.index_path.exists()
    assert not list((tmp_path / "server" / "indexes").iterdir())


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_it_refuses_members_that_are_no_files(server: Repository, exported: Path, kind: bytes) -> None:
    members = _members(exported)
    with tarfile.open(exported, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            if name.endswith("chunks.npy"):
                member.type, member.linkname = kind, "/etc/passwd"
            member.size = len(content) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(content))
    with pytest.raises(DamagedIndex):
        import_index(exported, name="acme/shop")


@pytest.mark.parametrize("content", [b"", b"not a tar file" * 100])
def test_it_refuses_what_is_no_export(server: Repository, exported: Path, content: bytes) -> None:
    exported.write_bytes(content)
    with pytest.raises(IndexingError):
        import_index(exported, name="acme/shop")


def test_it_does_not_disturb_a_build_that_runs(server: Repository, exported: Path) -> None:
    request_build(server)
    with pytest.raises(IndexingError, match="is being indexed"):
        import_index(exported, name="acme/shop")


def test_it_asks_which_repository_a_local_checkout_is_of(server: Repository, exported: Path) -> None:
    with pytest.raises(IndexingError, match="--name"):
        import_index(exported)
    with pytest.raises(IndexingError, match="No repository is called acme/none here"):
        import_index(exported, name="acme/none")


@pytest.mark.parametrize(
    ("part", "value"),
    [("file_chunks", 99), ("terms.code_stems.rows", 10_000), ("vectors.code.starts", 10_000), ("names.rows", 5000)],
)
def test_it_finds_row_numbers_that_lead_nowhere(exported: Path, data_dir: Path, part: str, value: int) -> None:
    repository = Repository.objects.get(name="ci")
    index = open_index(repository.index_path)
    check_structure(index)
    segment = index.segments[0]
    wrong = np.array(segment.array(part))
    wrong[-1] = value
    segment._arrays[part] = wrong
    for name in ("file_chunks",):
        segment.__dict__.pop(name, None)
    segment._postings.clear()
    segment._vectors.clear()
    with pytest.raises(DamagedIndex, match="does not hold together"):
        check_structure(index)


def test_its_commands_say_what_they_did(
    server: Repository, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("import_index", str(exported), name="acme/shop")
    call_command("export_index", "acme/shop", str(tmp_path / "copy.tar"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("acme/shop at ")
    assert lines[1].endswith(" MB")
    call_command("export_index", "acme/shop", str(tmp_path / "copy.tar"), json=True)
    assert json.loads(capsys.readouterr().out)["bytes"] == exported.stat().st_size
    call_command("import_index", str(exported), name="acme/shop", json=True)
    assert json.loads(capsys.readouterr().out)["imported"] is True
    with pytest.raises(CommandError, match="No indexed repository is called nobody") as raised:
        call_command("export_index", "nobody", str(tmp_path / "none.tar"))
    assert raised.value.returncode == 2
    with pytest.raises(CommandError, match="not an exported index"):
        call_command("import_index", str(tmp_path / "missing.tar"))


def test_it_rebuilds_an_index_by_command(server: Repository, capsys: pytest.CaptureFixture[str]) -> None:
    build_now(server)
    part = next(server.index_path.rglob("chunks.npy"))
    part.write_bytes(part.read_bytes()[:-1] + b"\x99")
    with pytest.raises(CommandError, match="rebuild_index"):
        call_command("verify_index", "acme/shop")
    call_command("rebuild_index", "acme/shop")
    assert "acme/shop: made anew" in capsys.readouterr().out
    verify(server.index_path)
    shutil.rmtree(server.mirror.url)
    with pytest.raises(CommandError, match="could not be made"):
        call_command("rebuild_index", "acme/shop")
    with pytest.raises(CommandError, match="No repository is called nobody"):
        call_command("rebuild_index", "nobody")
    assert Index.objects.filter(repository=server, status="failed").count() == 1
