"""Builds and updates that are killed with -9 at random moments, and what is left of them.

`python -m tests.measure_kills [KILLS] [FILES]` commits a change (or asks for a first build or a rebuild), starts the
build in a process of its own, kills that process, lets another one go on, and compares the index with that of a clean
build: paths, coordinates, terms, hashes of the embedded texts, and the vectors. Some kills come exactly between the two
stores: index files are published, the database does not know yet. Somebody searches all the while. It prints what was
found; the exit status is 1 when anything differed or a search was not answered. `tests/indexing/test_kills.py` is the
short form.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from indexing.index_format import OpenIndex
    from indexing.models import Repository

SEARCH_SECONDS = 0.1  # between two searches
LEAST_COSINE = 0.99


@dataclass(slots=True)
class Found:
    """What one kill led to. `after` is how long the build had run, or the publication after which it died."""

    kind: str
    after: str
    killed: bool
    searches: int = 0
    unanswered: int = 0
    differs: list[str] = field(default_factory=list)


def killed_build(
    repository: Repository, *, seconds: float = 0.0, publication: int = 0, rebuild: bool = False, must_answer: bool
) -> Found:
    """Build in a forked process that is killed after some seconds, or right after it has published so many times."""
    from django.db import connections

    found = Found("", f"publication {publication}" if publication else f"{seconds:.2f} s", killed=False)
    connections.close_all()
    child = os.fork()
    if child == 0:
        _build_and_exit(repository, publication=publication, rebuild=rebuild)
    deadline = time.monotonic() + seconds if seconds else float("inf")
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            found.killed = os.WIFSIGNALED(status)
            break
        _search(found, must_answer)
        time.sleep(min(SEARCH_SECONDS, max(0.0, deadline - time.monotonic())))
    found.killed = found.killed or bool(publication)
    _search(found, must_answer)
    return found


def _build_and_exit(repository: Repository, *, publication: int, rebuild: bool) -> None:
    from indexing import building

    if publication:
        real, count = building.publish, [0]

        def publish(*arguments: object) -> None:
            real(*arguments)  # type: ignore[arg-type]
            count[0] += 1
            if count[0] == publication:
                os.kill(os.getpid(), signal.SIGKILL)

        building.publish = publish  # type: ignore[assignment]
    try:
        building.build_now(repository, rebuild=rebuild)
    finally:
        os._exit(0)


def _search(found: Found, must_answer: bool) -> None:
    """Anything that is raised is not an answer; without hits it is one only while nothing was ever published."""
    from indexing.access import Principal
    from search.pipeline import search

    found.searches += 1
    try:
        hits = search("handle an order step", principal=Principal.operator(), use_llm=False).hits
        found.unanswered += must_answer and not hits
    except Exception as error:
        found.unanswered += 1
        found.differs.append(f"search: {error!r}")


def go_on(repository: Repository) -> None:
    """As a worker that starts: what was interrupted is built to its end, or built again when it had ended."""
    from indexing.building import build_now
    from indexing.tasks import recover_jobs

    recover_jobs()
    build_now(repository)


def differences(repository: Repository, clean: Repository) -> list[str]:
    """What two indexes of one commit do not have in common."""
    from indexing.index_format import verify
    from tests.indexing.index_contents import contents

    found, expected = verify(repository.index_path), verify(clean.index_path)
    mine, theirs = contents(found), contents(expected)
    differs = [f"path {path!r} in one only" for path in sorted(set(mine) ^ set(theirs))]
    for path in sorted(set(mine) & set(theirs)):
        differs += [f"{name} of {path!r}" for name, value in mine[path].items() if value != theirs[path][name]]
    if found.manifest.coverage != expected.manifest.coverage:
        differs.append(f"coverage {found.manifest.coverage}")
    repository.refresh_from_db()
    if repository.current_index_id != found.manifest.index_id:
        differs.append("the database names another build than the files")
    return differs + _vector_differences(found, expected)


def _vector_differences(found: OpenIndex, expected: OpenIndex) -> list[str]:
    mine, theirs = _vectors(found), _vectors(expected)
    cosines = [float(mine[key] @ theirs[key]) for key in mine.keys() & theirs.keys()]
    if mine.keys() != theirs.keys() or not cosines or min(cosines) < LEAST_COSINE:
        return [f"vectors: {len(mine)} and {len(theirs)} texts, least cosine {min(cosines, default=0):.3f}"]
    return []


def _vectors(index: OpenIndex) -> dict[bytes, np.ndarray]:
    from indexing.index_format import VECTOR_LISTS

    found: dict[bytes, np.ndarray] = {}
    for segment in index.segments:
        for name in VECTOR_LISTS:
            vectors = segment.vectors(name)
            assert vectors is not None
            live = segment.live_files if name == "files" else segment.live_chunks
            owners = vectors.owners(np.arange(len(vectors.floats)))
            for row in np.flatnonzero(np.ones(len(owners), bool) if live is None else live[owners]):
                found[vectors.hashes[row].tobytes()] = vectors.floats[row].astype(np.float32)
    return found


def change(repo: Path, files: int, step: int, rng: random.Random) -> None:
    """Some files get another text, some go, and one comes."""
    from tests.factories import commit_files
    from tests.measure_updates import module_text

    changed: dict[str, str | bytes | None] = {}
    for number in rng.sample(range(files), max(3, files // 20)):
        path = f"pkg/m{number}.py"
        changed[path] = None if (repo / path).exists() and rng.random() < 0.3 else module_text(number, f" + {step}")
    changed[f"new/n{step}.py"] = module_text(10_000 + step)
    commit_files(repo, changed)


def clean_build(repo: Path, name: str) -> tuple[Repository, float]:
    """A repository that was never killed, and how long its first build took."""
    from indexing.building import build_now
    from tests.factories import make_repository

    clean, started = make_repository(name, url=str(repo)), time.monotonic()
    build_now(clean)
    return clean, time.monotonic() - started


def remove(repository: Repository) -> None:
    shutil.rmtree(repository.index_path, ignore_errors=True)
    repository.delete()


def run(folder: Path, kills: int, files: int, seed: int, report: Callable[[Found], None]) -> bool:
    """Whether all went well. Every fourth build is a first one, every fourth a rebuild, the others are updates."""
    from tests.factories import make_repo, make_repository
    from tests.measure_updates import module_text

    rng = random.Random(seed)  # noqa: S311
    repo = make_repo(folder, {f"pkg/m{number}.py": module_text(number) for number in range(files)}, name="kills")
    live, whole_seconds = clean_build(repo, "example/live")
    good = True
    for step in range(kills):
        kind = ("first build", "update", "rebuild", "update")[step % 4]
        if kind == "update":
            change(repo, files, step, rng)
        repository = make_repository(f"example/first-{step}", url=str(repo)) if kind == "first build" else live
        lasts = whole_seconds * (0.3 if kind == "update" else 1.0)
        publication = 1 + step // 5 % 2 if step % 5 == 4 else 0
        found = killed_build(
            repository,
            seconds=0.0 if publication else rng.uniform(0.02, lasts),
            publication=publication,
            rebuild=kind == "rebuild",
            must_answer=True,
        )
        found.kind = kind
        go_on(repository)
        clean, whole_seconds = clean_build(repo, f"example/clean-{step}")
        found.differs += differences(repository, clean)
        remove(clean)
        if kind == "first build":
            remove(repository)
        report(found)
        good = good and not found.differs and not found.unanswered
    return good


def main(kills: int = 20, files: int = 150) -> int:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        os.environ |= {"DATA_DIR": str(base / "data"), "LOCAL_REPOSITORY_ROOTS": folder, "LOG_LEVEL": "CRITICAL"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "assistant.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        from indexing import embedding, tasks
        from tests.indexing.stub_embedder import StubEmbedder

        embedder = StubEmbedder()
        embedding.get_embedder = lambda: embedder  # type: ignore[assignment,return-value]
        tasks._send = lambda _queue: None
        seed, totals = random.randrange(1_000_000), [0, 0, 0]

        def report(found: Found) -> None:
            fate = "killed" if found.killed else "had ended"
            print(
                f"{found.kind:12} {fate} after {found.after:14} {found.searches:4} searches, "
                f"{found.unanswered} unanswered, {'; '.join(found.differs[:3]) or 'equals a clean build'}",
                flush=True,
            )
            for position, value in enumerate((found.killed, found.searches, found.unanswered)):
                totals[position] += value

        good = run(base, kills, files, seed, report)
        print(f"seed {seed}: {totals[0]} of {kills} killed, {totals[1]} searches, {totals[2]} unanswered")
        print("all equal a clean build" if good else "SOMETHING DIFFERS")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
