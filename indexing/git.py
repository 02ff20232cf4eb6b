"""A bare mirror per source: bring it up to date, find commits in it, read their trees and blobs.

Nothing is ever checked out. Refs of a mirror: `refs/heads/*` and `refs/tags/*` follow the source, `refs/source/HEAD`
is a detached HEAD of the source, and `refs/keep/<commit>` pins what was indexed, so that old citations survive a
force-push. How Git is run, and what it may not do, is in `indexing/git_process.py`.
"""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from django.utils import timezone
from filelock import FileLock, Timeout

from indexing.credentials import Secret, secret_of
from indexing.errors import (
    EmptyRepository,
    GitError,
    InvalidSource,
    MissingObject,
    NotARepository,
    UnknownRef,
    UnreachableSource,
)
from indexing.git_process import DamagedMirror, Progress, Remote, git, running
from indexing.hosting import hosting_url
from indexing.models import Mirror
from indexing.sources import Source, check_ref, parse_source

__all__ = [
    "BlobReader",
    "FolderEntry",
    "Source",
    "TreeChange",
    "TreeEntry",
    "allowed_source",
    "blob_at",
    "blobs_at",
    "changed_files",
    "check_ref",
    "commits_between",
    "diff_blobs",
    "ensure_mirror",
    "hosting_url",
    "list_folder",
    "list_tree",
    "named_blobs",
    "parse_source",
    "pin",
    "probe",
    "remake_mirror",
    "remote_commit",
    "resolve",
]

_OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATED_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_LIKELY_BRANCHES = ("main", "master", "trunk", "develop")
_READ_BYTES = 1024 * 1024
_SUBMODULE_MODE = 0o160000
# Ids are written ahead of reading. 256 of them fit any pipe, so neither side can wait for the other.
logger = logging.getLogger(__name__)

MANY_PACKS, MANY_OBJECTS = 20, 2_000  # before a mirror is repacked
_IDS_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """One line of a tree listing. `size` is 0 for a submodule."""

    mode: int
    blob_id: str
    size: int
    path: bytes


@dataclass(frozen=True, slots=True)
class FolderEntry:
    """What is directly in a folder; neither `folder` nor `file`: a link or a submodule."""

    path: bytes
    folder: bool
    file: bool


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A path that differs between two commits, in content or mode; `entry` is None when the newer one lacks it."""

    path: bytes
    entry: TreeEntry | None


def allowed_source(text: str, *, from_staff: bool, secret: Secret | None = None) -> Source:
    """What a person typed, when this server may connect to it. Looks names up and connects to nothing.

    Without a key of their own, only staff name SSH addresses: the server's key may read more than the person may.
    A host without an address is let through: its build says so, and can be retried.
    Raises InvalidSource or InvalidLogin.
    """
    source = parse_source(text, from_staff=from_staff)
    if source.url.startswith("ssh:") and secret is None and not from_staff:
        raise InvalidSource(
            "An SSH address needs an SSH key that may read it. Give one under the login for a private repository, "
            "or type the https address of a public one."
        )
    if secret is not None and source.kind == Mirror.Kind.LOCAL:
        raise InvalidSource("A path on this server is read without a login. Leave the login empty.")
    with suppress(UnreachableSource):
        Remote.of(source.kind, source.url, secret)
    return source


def probe(source: Source, ref: str = "", secret: Secret | None = None) -> str:
    """Ask the source for its default branch ("" while it has no commit) and whether `ref` exists.

    A commit cannot be asked for; `resolve` finds it after the fetch.
    Raises UnreachableSource, NotARepository, UnknownRef or InvalidSource.
    """
    ref = check_ref(ref)
    remote = Remote.of(source.kind, source.url, secret)
    default_branch, _ = _remote_head(remote, None)
    if ref and not _ABBREVIATED_COMMIT.fullmatch(ref):
        names = (f"refs/heads/{ref}", f"refs/tags/{ref}", ref)
        if not _list_refs(remote, names, None):
            raise UnknownRef(f"{source.url} has no branch or tag {ref}. Check the spelling, or leave the ref empty.")
    return default_branch


def remote_commit(mirror: Mirror, ref: str) -> str:
    """The commit that the ref is at now, asked of the source and without fetching.

    "" for what cannot be asked or does not move: a commit id, a ref that is gone, a repository without commits.
    Raises a GitError whose text says what to do.
    """
    if ref.startswith("refs/"):
        names: tuple[str, ...] = (ref,)
    elif ref:
        names = (f"refs/heads/{ref}", f"refs/tags/{ref}^{{}}", f"refs/tags/{ref}")
    else:
        names = ("HEAD", f"refs/heads/{mirror.default_branch or _LIKELY_BRANCHES[0]}")
    lines = _list_refs(_remote(mirror), names, None)
    commits = {name: commit for commit, _, name in (line.partition("\t") for line in lines)}
    return next((commits[name] for name in names if _OBJECT_ID.fullmatch(commits.get(name, ""))), "")


def ensure_mirror(mirror: Mirror, *, on_progress: Progress | None = None) -> None:
    """Bring the mirror up to date, making it when it is missing or damaged, and note on its row what was learnt.

    `on_progress` gets a short text about once a second, also while waiting; what it raises ends the work.
    Raises a GitError whose text says what to do.
    """
    _update(mirror, on_progress, anew=False)


def remake_mirror(mirror: Mirror, *, on_progress: Progress | None = None) -> None:
    """Clone again, for a mirror in which an object turned out to be missing. Pinned commits are carried over."""
    _update(mirror, on_progress, anew=True)


def _update(mirror: Mirror, on_progress: Progress | None, *, anew: bool) -> None:
    try:
        with _locked(mirror.path, on_progress):
            remote = _remote(mirror)
            default_branch, detached = _remote_head(remote, on_progress)
            if anew or not _fetched(remote, mirror.path, detached, on_progress):
                _clone(remote, mirror.path, detached, on_progress)
            _tidy(mirror.path)
            target = f"refs/heads/{default_branch}" if default_branch else "refs/source/HEAD"
            git(mirror.path, "symbolic-ref", "HEAD", target)
            mirror.size_bytes = sum(file.stat().st_size for file in mirror.path.rglob("*") if file.is_file())
    except OSError as error:
        raise GitError(f"The mirror of {mirror.url} cannot be written: {error.strerror}. Check the disk.") from error
    mirror.default_branch = default_branch
    mirror.fetched_at = timezone.now()
    mirror.save(update_fields=["default_branch", "fetched_at", "size_bytes"])


def _tidy(path: Path) -> None:
    """Many small packs and single objects, as many fetches leave them, become few packs of growing size.

    Nothing is thrown away, pinned or not, and what grows large is not copied again each time. A reader that meets a
    pack that is gone looks for the new one; Git is made for that.
    """
    packs = sum(1 for _ in (path / "objects/pack").glob("*.pack"))
    single = sum(1 for _ in (path / "objects/17").glob("*")) * 256  # ids are even: Git's own gc counts this folder
    if packs <= MANY_PACKS and single <= MANY_OBJECTS:
        return
    done = git(path, "repack", "--geometric=2", "-d", "-q", check=False)
    if done.returncode:
        logger.warning("the mirror %s could not be repacked; it works as before", path.name)


def _remote(mirror: Mirror) -> Remote:
    return Remote.of(mirror.kind, mirror.url, secret_of(mirror))


@contextmanager
def _locked(path: Path, on_progress: Progress | None) -> Iterator[None]:
    """One process at a time; the system frees the lock of a process that died."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"))
    while True:
        try:
            lock.acquire(timeout=1)
            break
        except Timeout:
            if on_progress:
                on_progress("waiting for another fetch of this repository")
    try:
        yield
    finally:
        lock.release()


def _fetched(remote: Remote, path: Path, detached: bool, on_progress: Progress | None) -> bool:
    """Whether the mirror is there and could be brought up to date; False means that it has to be made anew.

    A mirror only appears under its name when it is complete, so a folder that is no repository was damaged later.
    """
    if git(path, "rev-parse", "--is-bare-repository", check=False).stdout.strip() != b"true":
        return False
    try:
        _fetch(remote, path, detached, on_progress)
    except DamagedMirror:
        return False
    tips = git(path, "for-each-ref", "--format=%(objecttype)", "refs/heads", "refs/tags", check=False)
    return tips.returncode == 0


def _clone(remote: Remote, path: Path, detached: bool, on_progress: Progress | None) -> None:
    """Made beside its place and renamed, so that a killed clone leaves nothing that looks like a mirror."""
    for leftover in path.parent.glob(f"{path.stem}.new-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f"{path.stem}.new-", dir=path.parent))
    try:
        git(None, "init", "--quiet", "--bare", "--template=", "--", str(fresh))
        _fetch(remote, fresh, detached, on_progress)
        if path.exists():
            # What a damaged mirror can no longer give is lost: then there is nothing to carry over.
            git(fresh, "fetch", "--quiet", "--no-tags", "--", str(path), "refs/keep/*:refs/keep/*", check=False)
            path.rename(fresh / "replaced")
        fresh.rename(path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(path / "replaced", ignore_errors=True)


def _fetch(remote: Remote, path: Path, detached: bool, on_progress: Progress | None) -> None:
    """`--prune` removes only below the targets named here: refs/keep stays."""
    options = ["--progress", "--prune", "--force", "--no-tags", "--no-write-fetch-head", "--update-shallow"]
    refs = ["+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"]
    if detached:
        refs.append("+HEAD:refs/source/HEAD")
    remote.talk(path, lambda url: ["fetch", *options, "--", url, *refs], on_progress)


def _remote_head(remote: Remote, on_progress: Progress | None) -> tuple[str, bool]:
    """The default branch ("" when there is none), and whether HEAD is detached, as in a checkout made by a CI job.

    A bare repository whose HEAD names a branch that nobody pushed advertises no HEAD: take the likeliest branch.
    """
    lines = _list_refs(remote, ("HEAD",), on_progress)
    for line in lines:
        if line.startswith("ref: refs/heads/"):
            return line.removeprefix("ref: refs/heads/").partition("\t")[0], False
    if lines:
        return "", True
    branches = [line.partition("\trefs/heads/")[2] for line in _list_refs(remote, ("refs/heads/*",), on_progress)]
    if not branches and not remote.speaks_git():
        raise NotARepository(f"{remote.url} is not a Git repository but a web page. Check the address.")
    return next((name for name in _LIKELY_BRANCHES if name in branches), min(branches, default="")), False


def _list_refs(remote: Remote, patterns: tuple[str, ...], on_progress: Progress | None) -> list[str]:
    """Lines of ls-remote. Git takes a pattern for any ref that ends like it; here a name is the whole name."""
    listing = remote.talk(None, lambda url: ["ls-remote", "--symref", "--", url, *patterns], on_progress)
    lines = listing.decode(errors="surrogateescape").splitlines()
    return [line for line in lines if line.partition("\t")[2] in patterns or "refs/heads/*" in patterns]


def resolve(mirror_path: Path, ref: str, default_branch: str) -> str:
    """The full commit id of a branch, tag or commit, in this order; an empty ref is the default branch.

    Raises InvalidSource for a ref that cannot be a name, EmptyRepository and UnknownRef.
    """
    ref = check_ref(ref)
    if not ref:
        names = [*([f"refs/heads/{default_branch}"] if default_branch else []), "HEAD"]
    elif ref.startswith("refs/"):
        names = [ref]
    else:
        names = [f"refs/heads/{ref}", f"refs/tags/{ref}", *([ref] if _ABBREVIATED_COMMIT.fullmatch(ref) else [])]
    for name in names:
        if commit := _commit_of(mirror_path, name):
            return commit
    if not git(mirror_path, "for-each-ref", "--count=1", "refs/heads", "refs/tags").stdout:
        raise EmptyRepository("The repository has no commit yet. It is indexed when the first one arrives.")
    raise UnknownRef(f"There is no branch, tag or commit {ref or default_branch}. {_branches_sentence(mirror_path)}")


def _commit_of(mirror_path: Path, name: str) -> str:
    found = git(mirror_path, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", check=False)
    return found.stdout.decode().strip() if found.returncode == 0 else ""


def _branches_sentence(mirror_path: Path) -> str:
    listing = git(
        mirror_path, "for-each-ref", "--count=5", "--sort=-committerdate", "--format=%(refname)", "refs/heads"
    )
    names = [line.removeprefix("refs/heads/") for line in listing.stdout.decode(errors="replace").splitlines()]
    return f"The branches with the newest commits are: {', '.join(names) or 'none'}."


def pin(mirror_path: Path, commit: str) -> None:
    """Keep a commit readable whatever the source does. Raises MissingObject when the mirror does not have it."""
    _check_object_id(commit)
    if git(mirror_path, "update-ref", f"refs/keep/{commit}", commit, check=False).returncode:
        raise MissingObject(f"Commit {commit} is not in the mirror. Fetch the repository again.")


def list_tree(mirror_path: Path, commit: str) -> Iterator[TreeEntry]:
    """All tracked files of a commit, in Git's order, as they come. Raises MissingObject."""
    for record in _tree_records(mirror_path, commit, "-l"):
        about, _, path = record.partition(b"\t")
        mode, _, object_id, size = about.split()
        yield TreeEntry(int(mode, 8), object_id.decode(), 0 if size == b"-" else int(size), path)


def named_blobs(mirror_path: Path, commit: str, names: frozenset[bytes]) -> Iterator[tuple[bytes, str]]:
    """(path, blob id) of the files with one of these base names. Cheaper than `list_tree`: no size is looked up."""
    for record in _tree_records(mirror_path, commit):
        about, _, path = record.partition(b"\t")
        if path.rpartition(b"/")[2] in names:
            mode, kind, object_id = about.split()
            if kind == b"blob" and mode.startswith(b"100"):
                yield path, object_id.decode()


def changed_files(mirror_path: Path, old: str, new: str) -> list[TreeChange]:
    """What differs between the trees of two commits, in path order; costs what changed, not what is there.

    A file whose executable bit alone changed is the same file. Raises MissingObject when either commit is gone.
    """
    options = ("-r", "-z", "--raw", "--no-renames", "--no-abbrev", "--ignore-submodules=none")
    commits = (_check_object_id(old), _check_object_id(new))
    with running(mirror_path, "diff-tree", *options, *commits, "--") as process:
        assert process.stdout is not None
        fields = process.stdout.read().split(b"\0")
        if process.wait():
            raise MissingObject(f"Commit {old} or {new} is not in the mirror. Fetch the repository again.")
    found: list[tuple[bytes, int, str]] = []  # mode 0: deleted
    for about, path in zip(fields[::2], fields[1::2], strict=False):
        old_mode, mode, old_id, object_id, _ = about.removeprefix(b":").split()
        if not (old_id == object_id and old_mode.startswith(b"100") and mode.startswith(b"100")):
            found.append((path, int(mode, 8), object_id.decode()))
    sizes = _sizes(mirror_path, {object_id for _, mode, object_id in found if mode and mode != _SUBMODULE_MODE})
    return [
        TreeChange(path, TreeEntry(mode, object_id, sizes.get(object_id, 0), path) if mode else None)
        for path, mode, object_id in sorted(found)
    ]


def _sizes(mirror_path: Path, blob_ids: Iterable[str]) -> dict[str, int]:
    """Bytes of each blob, without reading one. Raises MissingObject."""
    remaining = iter(blob_ids)
    sizes: dict[str, int] = {}
    with running(mirror_path, "cat-file", "--batch-check=%(objectsize)") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while asked := list(islice(remaining, _IDS_IN_FLIGHT)):
            process.stdin.write("".join(f"{blob_id}\n" for blob_id in asked).encode())
            process.stdin.flush()
            for blob_id in asked:
                answer = process.stdout.readline().strip()
                if not answer.isdigit():
                    raise MissingObject(f"Blob {blob_id} is not in the mirror. Fetch the repository again.")
                sizes[blob_id] = int(answer)
    return sizes


def _tree_records(mirror_path: Path, commit: str, *options: str) -> Iterator[bytes]:
    _check_object_id(commit)
    with running(mirror_path, "ls-tree", "-r", "-z", "--full-tree", *options, commit) as process:
        assert process.stdout is not None
        rest = b""
        while received := process.stdout.read(_READ_BYTES):
            *records, rest = (rest + received).split(b"\0")
            yield from records
        if process.wait():
            raise MissingObject(f"Commit {commit} cannot be listed. Fetch the repository again.")


class BlobReader:
    """Reads blobs through one `git cat-file --batch`: thousands a second, against a hundred by a process each.

    >>> with BlobReader(mirror.path) as blobs:
    ...     text = blobs.read(blob_id)
    """

    def __init__(self, mirror_path: Path) -> None:
        self._mirror_path = mirror_path
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        process = self._exit.enter_context(running(self._mirror_path, "cat-file", "--batch"))
        assert process.stdin is not None
        assert process.stdout is not None
        self._requests: IO[bytes] = process.stdin
        self._answers: IO[bytes] = process.stdout
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def read(self, blob_id: str) -> bytes:
        """Raises MissingObject."""
        ((_, content),) = self.read_many([blob_id])
        return content

    def read_many(self, blob_ids: Iterable[str], *, max_bytes: int | None = None) -> Iterator[tuple[str, bytes]]:
        """(id, content) in the order asked for; a blob over `max_bytes` comes as b"".

        One blob is in memory at a time; ids are sent ahead. Raises MissingObject.
        """
        remaining = iter(blob_ids)
        asked: deque[str] = deque()
        try:
            while True:
                if len(asked) <= _IDS_IN_FLIGHT // 2:
                    asked.extend(self._ask(islice(remaining, _IDS_IN_FLIGHT - len(asked))))
                if not asked:
                    return
                blob_id = asked.popleft()
                yield blob_id, self._answer(blob_id, max_bytes)
        finally:
            if not self._answers.closed:
                for blob_id in asked:  # the caller stopped early: the next one must not get these answers
                    self._answer(blob_id, 0)

    def _ask(self, blob_ids: Iterable[str]) -> list[str]:
        asked = [_check_object_id(blob_id) for blob_id in blob_ids]
        try:
            self._requests.write("".join(f"{blob_id}\n" for blob_id in asked).encode())
            self._requests.flush()
        except BrokenPipeError as error:
            raise MissingObject("Git stopped reading the mirror. Fetch the repository again.") from error
        return asked

    def _answer(self, blob_id: str, max_bytes: int | None) -> bytes:
        header = self._answers.readline().split()
        if header[:1] != [blob_id.encode()] or header[1:2] != [b"blob"]:
            raise MissingObject(f"Blob {blob_id} is not in the mirror. Fetch the repository again.")
        size = int(header[2])
        wanted = max_bytes is None or size <= max_bytes
        content = self._answers.read(size + 1) if wanted else self._pass_over(size + 1)
        if content[-1:] != b"\n" or (wanted and len(content) != size + 1):
            raise MissingObject(f"Blob {blob_id} is damaged in the mirror. Fetch the repository again.")
        return content[:-1]

    def _pass_over(self, size: int) -> bytes:
        """The last byte of the next `size` ones."""
        last = b""
        while size > 0 and (received := self._answers.read(min(size, _READ_BYTES))):
            size -= len(received)
            last = received[-1:]
        return last


def blob_at(mirror_path: Path, commit: str, path: bytes) -> str | None:
    """The id of the file at `path`, or None when the commit has no file there."""
    _check_object_id(commit)
    if not path or b"\0" in path:
        return None
    listing = git(mirror_path, "ls-tree", "-z", "--full-tree", commit, "--", path, check=False).stdout
    for record in listing.split(b"\0"):
        about, _, found = record.partition(b"\t")
        if found == path and about.split()[1] == b"blob":
            return about.split()[2].decode()
    return None


def blobs_at(mirror_path: Path, commit: str, paths: Collection[bytes]) -> dict[bytes, str]:
    """The ids of those of the paths that are files of the commit, with one process for all of them."""
    _check_object_id(commit)
    asked = [path for path in paths if path and b"\0" not in path]
    if not asked:
        return {}
    listing = git(mirror_path, "ls-tree", "-z", "--full-tree", commit, "--", *asked, check=False).stdout
    records = (record.partition(b"\t") for record in listing.split(b"\0") if record)
    return {path: about.split()[2].decode() for about, _, path in records if about.split()[1] == b"blob"}


def objects_at(mirror_path: Path, commits: Collection[str], path: bytes) -> dict[str, str]:
    """Commit -> id of what it has at `path` ("" is the root); commits without anything there are missing."""
    if b"\0" in path or b"\n" in path:  # the protocol has one name a line
        return {}
    found: dict[str, str] = {}
    with running(mirror_path, "cat-file", "--batch-check=%(objectname)") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for commit in commits:
            process.stdin.write(_check_object_id(commit).encode() + b":" + path.strip(b"/") + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline().decode("ascii", "replace").strip()
            if _OBJECT_ID.fullmatch(answer):
                found[commit] = answer
    return found


def list_folder(mirror_path: Path, commit: str, folder: bytes) -> list[FolderEntry]:
    """What is directly in a folder ("" is the root), in Git's order; empty when there is no such folder."""
    _check_object_id(commit)
    if b"\0" in folder:
        return []
    inside = [folder.strip(b"/") + b"/"] if folder.strip(b"/") else []
    listing = git(mirror_path, "ls-tree", "-z", "--full-tree", commit, "--", *inside, check=False).stdout
    records = (record.partition(b"\t") for record in listing.split(b"\0") if record)
    return [FolderEntry(path, about.split()[1] == b"tree", about.startswith(b"100")) for about, _, path in records]


def commits_between(mirror_path: Path, old: str, new: str, *, path: bytes = b"") -> int:
    """How many commits `new` is ahead of `old`; with a path only those that touch it. Raises MissingObject."""
    span = f"{_check_object_id(old)}..{_check_object_id(new)}"
    counted = git(mirror_path, "rev-list", "--count", span, "--", *([path] if path else []), check=False)
    if counted.returncode:
        raise MissingObject(f"Commit {old} or {new} is not in the mirror. Fetch the repository again.")
    return int(counted.stdout)


def diff_blobs(mirror_path: Path, old: str, new: str, *, context_lines: int = 3) -> bytes:
    """The hunks of a unified diff between two blobs, without the lines that name files. Raises MissingObject."""
    options = ["--no-ext-diff", "--no-textconv", "--no-color", f"--unified={context_lines}"]
    done = git(mirror_path, "diff", *options, _check_object_id(old), _check_object_id(new), "--", check=False)
    if done.returncode:
        raise MissingObject(f"Blob {old} or {new} is not in the mirror. Fetch the repository again.")
    start = done.stdout.find(b"\n@@ ")
    return done.stdout[start + 1 :] if start >= 0 else b""


def _check_object_id(object_id: str) -> str:
    if not _OBJECT_ID.fullmatch(object_id):
        raise MissingObject(f"{object_id[:80]!r} is not the id of an object.")
    return object_id
