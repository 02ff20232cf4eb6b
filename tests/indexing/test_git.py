"""Mirrors of real repositories: made, kept up to date, read, and made again when damaged."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from filelock import FileLock
from pytest_django import Settings

from indexing.errors import (
    EmptyRepository,
    GitError,
    InvalidSource,
    MissingObject,
    NotARepository,
    UnknownRef,
    UnreachableSource,
)
from indexing.git import (
    BlobReader,
    Source,
    blob_at,
    commits_between,
    ensure_mirror,
    list_tree,
    named_blobs,
    pin,
    probe,
    remake_mirror,
    resolve,
)
from indexing.git_process import _CONFIG
from indexing.models import Mirror
from tests.factories import commit_files, git, head, make_mirror, make_repo

pytestmark = pytest.mark.django_db


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repo(tmp_path, {"a.py": "x = 1\n", "src/b.py": "y = 2\n"}, name="shop")


@pytest.fixture
def mirror(repo: Path) -> Mirror:
    mirror = make_mirror(str(repo), kind=Mirror.Kind.LOCAL)
    ensure_mirror(mirror)
    return mirror


Serve = Callable[[type[BaseHTTPRequestHandler] | partial[SimpleHTTPRequestHandler]], str]


@pytest.fixture
def serve(settings: Settings) -> Iterator[Serve]:
    """Start a web server on a loopback port; gives its URL."""
    settings.GIT_ALLOWED_HOSTS = ["127.0.0.1"]
    servers: list[ThreadingHTTPServer] = []

    def start(handler: type[BaseHTTPRequestHandler] | partial[SimpleHTTPRequestHandler]) -> str:
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), handler))
        threading.Thread(target=servers[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


def answering(status: int, body: bytes = b"", **headers: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    return Handler


# Mirrors


def test_it_mirrors_a_local_repository(mirror: Mirror, repo: Path) -> None:
    mirror.refresh_from_db()
    assert mirror.default_branch == "main"
    assert mirror.fetched_at is not None
    assert mirror.size_bytes > 100
    assert resolve(mirror.path, "", mirror.default_branch) == head(repo)


def test_it_brings_a_mirror_up_to_date(mirror: Mirror, repo: Path) -> None:
    git(repo, "branch", "old")
    ensure_mirror(mirror)
    git(repo, "branch", "-D", "old")
    commit = commit_files(repo, {"a.py": "x = 2\n"})
    ensure_mirror(mirror)
    assert resolve(mirror.path, "", "main") == commit
    with pytest.raises(UnknownRef):
        resolve(mirror.path, "old", "main")


def test_it_keeps_pinned_commits_after_a_force_push(mirror: Mirror, repo: Path) -> None:
    first = head(repo)
    pin(mirror.path, first)
    git(repo, "checkout", "--quiet", "--orphan", "fresh")
    commit_files(repo, {"c.py": "z = 3\n"})
    git(repo, "branch", "--force", "main", "fresh")
    ensure_mirror(mirror)
    git(mirror.path, "gc", "--quiet", "--prune=now")
    assert [entry.path for entry in list_tree(mirror.path, first)] == [b"a.py", b"src/b.py"]


@pytest.mark.parametrize("damage", ["no HEAD", "empty packs", "not a folder of Git"])
def test_it_makes_a_damaged_mirror_anew(mirror: Mirror, repo: Path, damage: str) -> None:
    if damage == "no HEAD":
        (mirror.path / "HEAD").unlink()
    elif damage == "empty packs":
        for file in (mirror.path / "objects").rglob("*"):
            if file.is_file():
                file.chmod(0o644)
                file.write_bytes(b"")
    else:
        for file in mirror.path.rglob("*"):
            if file.is_file():
                file.unlink()
    ensure_mirror(mirror)
    with BlobReader(mirror.path) as blobs:
        assert blobs.read(str(blob_at(mirror.path, head(repo), b"a.py"))) == b"x = 1\n"
    assert [path.name for path in mirror.path.parent.glob("*.new-*")] == []


def test_it_carries_pinned_commits_over_when_it_clones_again(mirror: Mirror, repo: Path) -> None:
    first = head(repo)
    pin(mirror.path, first)
    git(repo, "commit", "--amend", "--quiet", "-m", "other")
    remake_mirror(mirror)
    assert commits_between(mirror.path, first, head(repo)) == 1


def test_it_leaves_nothing_behind_when_a_clone_is_stopped(repo: Path) -> None:
    mirror = make_mirror(str(repo), kind=Mirror.Kind.LOCAL)

    def stop(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_mirror(mirror, on_progress=stop)
    assert [path.suffix for path in mirror.path.parent.iterdir() if path.is_dir()] == []


def test_it_waits_for_another_fetch(mirror: Mirror) -> None:
    lock = FileLock(mirror.path.with_suffix(".lock"))
    said: list[str] = []

    def release(text: str) -> None:
        said.append(text)
        lock.release()

    lock.acquire()
    ensure_mirror(mirror, on_progress=release)
    assert said[0] == "waiting for another fetch of this repository"


def test_it_does_not_run_what_a_repository_configures(mirror: Mirror, repo: Path, tmp_path: Path) -> None:
    script = tmp_path / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    script.chmod(0o755)
    commit_files(repo, {"a.py": "x = 3\n"})
    for name in ("core.fsmonitor", "uploadpack.packObjectsHook", "core.sshCommand", "core.alternateRefsCommand"):
        git(repo, "config", name, str(script))
    ensure_mirror(mirror)
    assert not (tmp_path / "ran").exists()


def test_it_refuses_a_path_that_became_a_link(mirror: Mirror, repo: Path, tmp_path: Path) -> None:
    repo.rename(tmp_path / "moved")
    with pytest.raises(UnreachableSource, match="not on this server any more"):
        ensure_mirror(mirror)
    repo.symlink_to(tmp_path / "moved")
    with pytest.raises(InvalidSource, match="now a link"):
        ensure_mirror(mirror)


# Default branches and refs


def test_it_takes_a_detached_head(repo: Path) -> None:
    git(repo, "checkout", "--quiet", "--detach")
    commit = commit_files(repo, {"a.py": "x = 4\n"})
    mirror = make_mirror(str(repo), kind=Mirror.Kind.LOCAL)
    ensure_mirror(mirror)
    assert mirror.default_branch == ""
    assert resolve(mirror.path, "", "") == commit


def test_it_takes_a_shallow_checkout(repo: Path, tmp_path: Path) -> None:
    commit_files(repo, {"a.py": "x = 4\n"})
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repo}", "shallow")
    mirror = make_mirror(str(tmp_path / "shallow"), kind=Mirror.Kind.LOCAL)
    ensure_mirror(mirror)
    assert resolve(mirror.path, "", "main") == head(repo)


def test_it_guesses_the_branch_when_head_names_none(repo: Path) -> None:
    git(repo, "branch", "abc")
    git(repo, "symbolic-ref", "HEAD", "refs/heads/nobody-pushed-this")
    assert probe(Source(str(repo), "local", "shop")) == "main"


def test_it_tells_an_empty_repository_from_an_unknown_ref(tmp_path: Path) -> None:
    mirror = make_mirror(str(make_repo(tmp_path, {})), kind=Mirror.Kind.LOCAL)
    ensure_mirror(mirror)
    with pytest.raises(EmptyRepository):
        resolve(mirror.path, "", mirror.default_branch)
    commit = commit_files(Path(mirror.url), {"README.md": "# Shop\n"})
    ensure_mirror(mirror)
    assert resolve(mirror.path, "", mirror.default_branch) == commit


def test_it_resolves_branches_tags_and_commits(mirror: Mirror, repo: Path) -> None:
    first = head(repo)
    git(repo, "tag", "-a", "v1", "-m", "one")
    second = commit_files(repo, {"a.py": "x = 2\n"})
    git(repo, "branch", "topic/x")
    ensure_mirror(mirror)
    refs = ["v1", "refs/tags/v1", first, first[:10], "topic/x", "main"]
    assert [resolve(mirror.path, ref, "main") for ref in refs] == [first, first, first, first, second, second]


@pytest.mark.parametrize("ref", ["nowhere", "deadbeef", "src/b.py"])
def test_it_names_an_unknown_ref_and_the_branches(mirror: Mirror, ref: str) -> None:
    with pytest.raises(UnknownRef, match=f"{ref}.*main"):
        resolve(mirror.path, ref, "main")


@pytest.mark.parametrize("ref", ["--output=x", "main~0", "HEAD:a.py"])
def test_it_refuses_expressions_as_refs(mirror: Mirror, ref: str) -> None:
    with pytest.raises(InvalidSource):
        resolve(mirror.path, ref, "main")


# Reading


def test_it_lists_what_is_tracked(repo: Path, mirror: Mirror) -> None:
    (repo / "link").symlink_to("a.py")
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{head(repo)},lib")
    commit = commit_files(repo, {'odd \n"ü\t.py': "1"})
    ensure_mirror(mirror)
    entries = {entry.path: (entry.mode, entry.size) for entry in list_tree(mirror.path, commit)}
    assert entries[b"link"] == (0o120000, 4)
    assert entries['odd \n"ü\t.py'.encode()] == (0o100644, 1)
    assert list(entries)[0] == b"a.py"


def test_it_finds_files_by_name(mirror: Mirror, repo: Path) -> None:
    commit = commit_files(repo, {".gitattributes": "a", "x/.gitattributes": "b", "x/y.gitattributes": "c"})
    ensure_mirror(mirror)
    found = named_blobs(mirror.path, commit, frozenset({b".gitattributes"}))
    assert [path for path, _ in found] == [b".gitattributes", b"x/.gitattributes"]


def test_it_reads_many_blobs_in_order(mirror: Mirror, repo: Path) -> None:
    files = {f"{n:04}.txt": b"%d\n" % n * (n % 7) for n in range(700)} | {"big.bin": bytes(300_000)}
    commit = commit_files(repo, dict(files))
    ensure_mirror(mirror)
    entries = [entry for entry in list_tree(mirror.path, commit) if entry.path.decode() in files]
    with BlobReader(mirror.path) as blobs:
        contents = [content for _, content in blobs.read_many(entry.blob_id for entry in entries)]
        assert blobs.read(entries[5].blob_id) == files["0005.txt"]
    assert contents == [files[entry.path.decode()] for entry in entries]


def test_it_answers_the_next_question_when_a_reader_stopped_early(mirror: Mirror, repo: Path) -> None:
    commit = commit_files(repo, {f"{n:03}.txt": f"{n}\n" for n in range(50)})
    ensure_mirror(mirror)
    ids = [entry.blob_id for entry in list_tree(mirror.path, commit)]
    with BlobReader(mirror.path) as blobs:
        next(blobs.read_many(ids))
        assert blobs.read(ids[7]) == b"7\n"
        assert [content for _, content in blobs.read_many(ids[9:12], max_bytes=2)] == [b"9\n", b"", b""]


@pytest.mark.parametrize("blob_id", ["f" * 40, "HEAD:a.py", "a\nb", ""])
def test_it_says_which_blob_is_missing(mirror: Mirror, blob_id: str) -> None:
    with BlobReader(mirror.path) as blobs, pytest.raises(MissingObject):
        blobs.read(blob_id)


def test_it_says_so_when_the_mirror_is_gone(mirror: Mirror) -> None:
    shutil.rmtree(mirror.path)
    with pytest.raises(MissingObject), BlobReader(mirror.path) as blobs:
        blobs.read("0" * 40)


def test_it_finds_a_blob_by_path(mirror: Mirror, repo: Path) -> None:
    commit = commit_files(repo, {"*": "star\n", ":(glob)**": "magic\n"})
    ensure_mirror(mirror)
    with BlobReader(mirror.path) as blobs:
        assert blobs.read(str(blob_at(mirror.path, commit, b"*"))) == b"star\n"
        assert blobs.read(str(blob_at(mirror.path, commit, b":(glob)**"))) == b"magic\n"
    assert [blob_at(mirror.path, commit, path) for path in (b"", b"src", b"src/", b"nope", b"../a.py")] == [None] * 5


def test_it_counts_commits_between(mirror: Mirror, repo: Path) -> None:
    first = head(repo)
    for number in range(3):
        commit_files(repo, {"a.py": f"x = {number}\n"})
    ensure_mirror(mirror)
    assert commits_between(mirror.path, first, head(repo)) == 3
    with pytest.raises(MissingObject):
        commits_between(mirror.path, "f" * 40, first)


def test_it_refuses_to_pin_or_list_an_unknown_commit(mirror: Mirror) -> None:
    with pytest.raises(MissingObject):
        pin(mirror.path, "f" * 40)
    with pytest.raises(MissingObject):
        list(list_tree(mirror.path, "f" * 40))


# Talking to hosts


def test_it_mirrors_over_http_with_the_suffix_that_the_server_wants(serve: Serve, repo: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), "served/shop.git")
    git(tmp_path / "served/shop.git", "update-server-info")
    mirror = make_mirror(serve(partial(QuietFiles, directory=str(tmp_path / "served"))) + "/shop")
    ensure_mirror(mirror)
    assert resolve(mirror.path, "", mirror.default_branch) == head(repo)


def test_it_connects_to_the_address_that_was_checked(
    serve: Serve, repo: Path, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), "served/shop.git")
    git(tmp_path / "served/shop.git", "update-server-info")
    port = serve(partial(QuietFiles, directory=str(tmp_path / "served"))).rpartition(":")[2]
    settings.GIT_ALLOWED_HOSTS = ["pinned.invalid"]  # a name that no resolver knows
    answer = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", int(port)))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: answer)
    assert probe(Source(f"http://pinned.invalid:{port}/shop.git", "remote", "shop")) == "main"


@pytest.mark.parametrize(
    ("handler", "error", "words"),
    [
        (answering(404), UnreachableSource, "does not exist"),
        (answering(401), UnreachableSource, "asks for a login"),
        (answering(403), UnreachableSource, "asks for a login"),
        (answering(302, Location="http://169.254.169.254/"), UnreachableSource, "has moved"),
        (answering(200, b"<html>\n<p>Welcome</p>\n</html>\n"), NotARepository, "not a Git repository"),
        (answering(200, b"<html>Welcome</html>"), NotARepository, "web page"),
        (answering(500), GitError, "500"),
    ],
)
def test_it_explains_what_a_web_server_answers(
    serve: Serve, handler: type[BaseHTTPRequestHandler], error: type[GitError], words: str
) -> None:
    with pytest.raises(error, match=words):
        probe(Source(f"{serve(handler)}/a/b", "remote", "b"))


def test_it_takes_an_empty_repository_of_a_web_server_for_one(serve: Serve) -> None:
    first, capabilities = b"# service=git-upload-pack\n", b"0" * 40 + b" capabilities^{}\0agent=git/2\n"
    lines = b"".join(b"%04x%s" % (len(line) + 4, line) + b"0000" for line in (first, capabilities))
    handler = answering(200, lines, **{"Content-Type": "application/x-git-upload-pack-advertisement"})
    assert probe(Source(f"{serve(handler)}/a/b", "remote", "b")) == ""


def test_it_gives_up_on_a_silent_host(settings: Settings) -> None:
    settings.GIT_ALLOWED_HOSTS, settings.GIT_TIMEOUT_SECONDS = ["127.0.0.1"], 1
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        with pytest.raises(UnreachableSource, match="did not answer within 1 s. Check GIT_HTTP_PROXY, then retry."):
            probe(Source(f"http://127.0.0.1:{silent.getsockname()[1]}/a/b", "remote", "b"))
    assert time.monotonic() - started < 5


def test_it_says_that_nothing_listens(settings: Settings) -> None:
    settings.GIT_ALLOWED_HOSTS = ["127.0.0.1"]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(UnreachableSource, match="does not accept connections"):
        probe(Source(f"http://127.0.0.1:{port}/a/b", "remote", "b"))


@pytest.mark.parametrize("url", ["http://127.0.0.1/a", "http://[::1]/a", "ssh://git@localhost/a"])
def test_it_does_not_connect_to_internal_addresses(url: str) -> None:
    with pytest.raises(InvalidSource, match="internal address"):
        probe(Source(url, "remote", "a"))


def test_it_pins_ssh_and_checks_the_key_under_the_name(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\n'
        'echo "git@host: Permission denied (publickey)." >&2\nexit 255\n'
    )
    (tmp_path / "bin/ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=":")
    settings.GIT_ALLOWED_HOSTS = ["localhost"]
    with pytest.raises(UnreachableSource, match="deploy key"):
        probe(Source("ssh://git@localhost:2222/a/b.git", "remote", "a/b"))
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert {"BatchMode=yes", "HostName=127.0.0.1", "HostKeyAlias=[localhost]:2222"} <= set(arguments)


def test_it_says_that_a_folder_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(NotARepository, match="plain is not a Git repository"):
        probe(Source(str(tmp_path / "plain"), "local", "plain"))


def test_it_probes_refs(repo: Path) -> None:
    source = Source(str(repo), "local", "shop")
    git(repo, "tag", "v1")
    assert [probe(source, ref) for ref in ("main", "v1", head(repo))] == ["main"] * 3
    with pytest.raises(UnknownRef, match="ain"):
        probe(source, "ain")


def test_it_says_that_an_empty_repository_has_no_branch(tmp_path: Path) -> None:
    assert probe(Source(str(make_repo(tmp_path, {})), "local", "example")) == ""


def test_it_repacks_what_many_fetches_left_and_keeps_pinned_commits(
    mirror: Mirror, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = head(repo)
    pin(mirror.path, old)
    monkeypatch.setattr("indexing.git.MANY_PACKS", 2)
    monkeypatch.setattr("indexing.git_process._CONFIG", {**_CONFIG, "fetch.unpackLimit": "1"})
    with BlobReader(mirror.path) as blobs:
        blobs.read(_blob_of(mirror, old))
        for number in range(5):
            git(repo, "commit", "--quiet", "--allow-empty", "--amend", "-m", f"rewritten {number}")
            commit_files(repo, {"a.py": f"x = {number}\n"})
            ensure_mirror(mirror)
        assert len(list((mirror.path / "objects/pack").glob("*.pack"))) <= 3
        assert blobs.read(_blob_of(mirror, old)) == b"x = 1\n"
        assert blobs.read(_blob_of(mirror, head(repo))) == b"x = 4\n"


def _blob_of(mirror: Mirror, commit: str) -> str:
    blob_id = blob_at(mirror.path, commit, b"a.py")
    assert blob_id is not None
    return blob_id
