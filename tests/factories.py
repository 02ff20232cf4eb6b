"""Small makers of what tests are about: real Git repositories on disk, and rows in the database.

Git: `make_repo(tmp_path, {"a.py": "x = 1\n"})` -> path of a work tree with one commit; `commit_files` adds another.
Rows: `make_user`, `make_mirror`, `make_repository`, `make_golden_set`, `make_index`, `make_conversation`,
`make_message`.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import uuid
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from assistant.models import Conversation, Message
from indexing.models import GoldenSet, Index, Mirror, Repository

COMMIT = "c" * 40
_numbers = itertools.count(1)

_GIT_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "example",
    "GIT_AUTHOR_EMAIL": "example@localhost",
    "GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "example",
    "GIT_COMMITTER_EMAIL": "example@localhost",
    "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z",
}


def git(repo: Path, *arguments: str, stdin: bytes | None = None) -> str:
    """Output of one Git command in `repo`, without the machine's configuration."""
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments],
        input=stdin,
        capture_output=True,
        env={**os.environ, **_GIT_ENVIRONMENT},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"git {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode(errors="replace").strip()


def make_repo(tmp_path: Path, files: dict[str, str | bytes], *, name: str = "example") -> Path:
    """A work tree `tmp_path/name` on branch `main` with one commit of `files`; none at all gives no commit."""
    repo = tmp_path / name
    repo.mkdir(parents=True)
    git(repo, "init", "--quiet", "--initial-branch=main")
    if files:
        commit_files(repo, files, message="first")
    return repo


def commit_files(repo: Path, files: dict[str, str | bytes | None], *, message: str = "change") -> str:
    """Write (None: delete) the files, commit everything, and return the commit."""
    for path, content in files.items():
        file = repo / path
        if content is None:
            file.unlink()
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    git(repo, "add", "--all", "--force")
    git(repo, "commit", "--quiet", "--allow-empty", "-m", message)
    return head(repo)


def head(repo: Path) -> str:
    return git(repo, "rev-parse", "HEAD")


def make_user(username: str = "", **fields: Any) -> User:
    return User.objects.create_user(username or f"user{next(_numbers)}", **fields)


def make_mirror(url: str = "", **fields: Any) -> Mirror:
    return Mirror.objects.create(url=url or f"https://git.example/example/web{next(_numbers)}.git", **fields)


def make_repository(name: str = "", *, url: str = "", **fields: Any) -> Repository:
    """Public unless told otherwise. `url` may be the path of a `make_repo` work tree."""
    if "mirror" not in fields:
        kind = Mirror.Kind.LOCAL if url.startswith("/") else Mirror.Kind.REMOTE
        fields["mirror"] = Mirror.objects.filter(url=url).first() or make_mirror(url, kind=kind)
    return Repository.objects.create(name=name or f"example/web{next(_numbers)}", **fields)


def make_golden_set(name: str, *members: Repository, **fields: Any) -> GoldenSet:
    row = GoldenSet.objects.create(name=name, **fields)
    row.repositories.set(members)
    return row


def make_index(repository: Repository | None = None, *, current: bool = False, **fields: Any) -> Index:
    """A row only, no files; `current` makes it the one that searches would use."""
    repository = repository or make_repository()
    index = Index.objects.create(repository=repository, **({"commit": COMMIT, "status": Index.Status.READY} | fields))
    if current:
        repository.current_index = index
        repository.save(update_fields=["current_index"])
    return index


def make_conversation(owner: User | None = None, **fields: Any) -> Conversation:
    return Conversation.objects.create(owner=owner or make_user(), **({"title": "How are sessions kept?"} | fields))


def make_message(conversation: Conversation | None = None, **fields: Any) -> Message:
    conversation = conversation or make_conversation()
    defaults = {
        "position": conversation.messages.count(),
        "request_id": uuid.uuid4(),
        "question": "How are sessions kept?",
    }
    return Message.objects.create(conversation=conversation, **(defaults | fields))
