"""Embedding models that are swapped while somebody searches: does any query ever meet vectors of another model?

`python -m tests.measure_swaps [SWAPS]` indexes two repositories, lets another process search both without pause, by
turns with each of two models, and builds the repositories with the other model again and again. All vectors
carry a mark of their model, and every comparison of a query with vectors of an index is looked at. Half of the swaps
are between models of one size, half between two sizes. Exit status 1 when anything was mixed or not answered.
`tests/search/test_swapping.py` is the short form.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.indexing.stub_embedder import StubEmbedder

WAIT_SECONDS = 60.0
QUESTION = "Where is compute_3_1 used by handle_3_1?"


class MarkedEmbedder(StubEmbedder):
    """`mark` is the sign of the first component of every vector. Waits for `searches` searches in each batch."""

    def __init__(self, model_id: str, *, mark: int, dimensions: int = 64, report: Path | None = None) -> None:
        super().__init__()
        self.model_id, self.dimensions, self._mark, self._report = model_id, dimensions, mark, report

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        if self._report is not None:
            wait_for_searches(self._report, 2)  # so that some fall into each moment of the build
        return self._marked(super().embed_documents(texts))

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        return self._marked(super().embed_queries(texts))

    def _marked(self, rows: np.ndarray) -> np.ndarray:
        rows = np.hstack([rows] * (self.dimensions // 64))
        rows[:, 0] = 0.5 * self._mark
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def models(dimensions: int, report: Path | None = None) -> tuple[MarkedEmbedder, MarkedEmbedder]:
    """The second one has another name and so many dimensions."""
    return (
        MarkedEmbedder("first", mark=1, report=report),
        MarkedEmbedder("second", mark=-1, dimensions=dimensions, report=report),
    )


def searching(report: Path, dimensions: int) -> int:
    """A process that searches until it is ended, and writes after each search what it has seen; its id."""
    from django.db import connections

    connections.close_all()
    child = os.fork()
    if child:
        return child
    try:
        _search_on(report, dimensions)
    finally:
        os._exit(1)


def _search_on(report: Path, dimensions: int) -> None:
    from indexing import embedding
    from indexing.access import Principal
    from search.pipeline import search

    seen: Counter[str] = Counter()
    _watch(seen)
    asking = models(dimensions)
    while True:
        embedder = asking[seen["searches"] % 2]
        embedding.get_embedder = lambda embedder=embedder: embedder  # type: ignore[assignment,misc]
        try:
            hits = search(QUESTION, principal=Principal.operator(), use_llm=False).hits
            seen["unanswered"] += not hits
        except Exception as error:
            seen["unanswered"] += 1
            seen[f"error {error!r}"] += 1
        seen["searches"] += 1
        report.with_suffix(".tmp").write_text(json.dumps(seen))
        report.with_suffix(".tmp").replace(report)


def _watch(seen: Counter[str]) -> None:
    """Count comparisons: of rows with the signs, of rows with the floats, and of the centroids of repositories."""
    from search import retrieval
    from search.catalogue import Catalogue

    top_rows, cosines, centroids = retrieval.top_rows, retrieval.cosines, Catalogue._centroids
    nearness, asked = Catalogue.nearness, list[Any]()

    def note(query_mark: bool, query_size: int, marks: np.ndarray, size: int) -> None:
        if len(marks):
            same = query_size == size and bool((marks == query_mark).all())
            seen[("first" if query_mark else "second") if same else "mixed"] += 1

    def watched_top_rows(bits: np.ndarray, matrices: Sequence[np.ndarray], k: int) -> Any:
        for matrix in matrices:
            note(bool(bits[0] & 1), bits.size, (matrix[:, 0] & 1).astype(bool), matrix.shape[1])
        return top_rows(bits, matrices, k)

    def watched_cosines(query: np.ndarray, rows: np.ndarray) -> Any:
        note(bool(query[0] > 0), query.size, rows[:, 0] > 0, rows.shape[1])
        return cosines(query, rows)

    def watched_nearness(self: Any, vector: np.ndarray, *arguments: Any) -> Any:
        asked[:] = [vector]
        return nearness(self, vector, *arguments)

    def watched_centroids(self: Any, row: int) -> Any:
        found = centroids(self, row)
        note(bool(asked[0][0] > 0), asked[0].size, found[:, 0] > 0, found.shape[1])
        return found

    retrieval.top_rows, retrieval.cosines = watched_top_rows, watched_cosines
    Catalogue.nearness, Catalogue._centroids = watched_nearness, watched_centroids  # type: ignore[method-assign]


def read(report: Path) -> Counter[str]:
    return Counter(json.loads(report.read_text())) if report.exists() else Counter()


def wait_for_searches(report: Path, more: int) -> None:
    """Raises TimeoutError when the searching process does not get on."""
    wanted, deadline = read(report)["searches"] + more, time.monotonic() + WAIT_SECONDS
    while read(report)["searches"] < wanted:
        if time.monotonic() > deadline:
            raise TimeoutError("nobody searches")
        time.sleep(0.002)


def run(folder: Path, swaps: int, dimensions: int) -> Counter[str]:
    """What the searching process has seen, with the number of swaps and of the publications of each model."""
    from indexing import embedding
    from indexing.building import build_now
    from indexing.index_format import open_index
    from tests.factories import make_repo, make_repository
    from tests.measure_updates import module_text

    report = folder / f"seen-{dimensions}.json"
    building = models(dimensions, report)
    first, _ = models(dimensions)
    embedding.get_embedder = lambda: first  # type: ignore[assignment,return-value]
    repositories = []
    for name in ("one", "two"):
        modules = {f"pkg/m{number}.py": module_text(number) for number in range(6)}
        repo = make_repo(folder, modules, name=f"{name}-{dimensions}")
        repositories.append(make_repository(f"example/{name}-{dimensions}", url=str(repo)))
        build_now(repositories[-1])
    child, published = searching(report, dimensions), Counter[str]()
    try:
        wait_for_searches(report, 4)
        for swap in range(swaps):
            embedder = building[(swap + 1) % 2]
            embedding.get_embedder = lambda embedder=embedder: embedder  # type: ignore[assignment,misc]
            for repository in repositories:
                repository.refresh_from_db()
                build_now(repository)
                published[f"published {open_index(repository.index_path).manifest.model.id}"] += 1
                wait_for_searches(report, 4)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for repository in repositories:
            repository.delete()
    return read(report) + published


def main(swaps: int = 20) -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"DATA_DIR": str(folder / "data"), "LOCAL_REPOSITORY_ROOTS": name, "LOG_LEVEL": "ERROR"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "assistant.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        found = [run(folder, swaps // 2, dimensions) for dimensions in (64, 128)]
    for size, seen in zip(("one size", "two sizes"), found, strict=True):
        print(f"{size}: {dict(seen)}")
    return 1 if any(seen["mixed"] or seen["unanswered"] for seen in found) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
