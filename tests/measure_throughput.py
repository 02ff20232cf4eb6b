"""What the stages of a build cost, as ratios to the libraries below them in the same run.

`python -m tests.measure_throughput REPOSITORY [TEXTS]` reads the newest commit of a Git repository and prints: cutting
into chunks against tree-sitter's parsing of the same files alone; the whole lexical stage; and embedding as a build
does it against a bare `encode` of the same texts at the best of three batch sizes. The texts (600 unless told) are
embedded in blocks by turns, so that a busy moment falls on both. The first two columns are CPU and wall seconds.
Not a test: machines are shared, so compare the ratios of one run.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 3
BATCHES = (16, 32, 64)
BLOCKS = 3


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def _show(name: str, cost: tuple[float, float], base: float = 0.0, note: str = "") -> None:
    ratio = f"{cost[0] / base:6.2f} x" if base else ""
    print(f"{name:34} {cost[0]:8.2f} {cost[1]:8.2f} {ratio} {note}", flush=True)


def _lexical(mirror: Path, commit: str, folder: Path) -> list[str]:
    """Prints its costs; returns the texts that a build would embed, as they come."""
    from tree_sitter import Parser

    from indexing import parsing
    from indexing.chunking import chunk_file
    from indexing.collecting import collect
    from indexing.context import embedded_texts
    from indexing.embedding import get_embedder
    from indexing.suspects import Suspects
    from indexing.walking import SkippedEntry, walk

    entries = list(walk(mirror, commit, max_file_bytes=1_000_000))
    files = [entry for entry in entries if not isinstance(entry, SkippedEntry)]
    grammars = {file.language: parsing._grammar(file.language) for file in files}

    def parse() -> None:
        for file in files:
            grammar = grammars[file.language]
            if not isinstance(grammar, str) and file.route not in ("markdown", "text"):
                Parser(grammar.language).parse(file.text)

    def whole() -> None:
        with Suspects(folder) as suspects:
            walked = walk(mirror, commit, max_file_bytes=1_000_000)
            for found in collect(walked, directory=folder, index_id=1, suspects=suspects, on_entry=lambda *_: None):
                counted[0] = found.chunks

    def cut() -> None:
        for file in files:  # each result is dropped at once, as a build does
            chunk_file(file)

    counted = [0]
    base = min(_timed(parse) for _ in range(ROUNDS))
    _show("tree-sitter alone", base, note=f"{len(files)} files")
    _show("cutting into chunks", min(_timed(cut) for _ in range(ROUNDS)), base[0])
    _show("lexical stage, written", _timed(whole), base[0], f"{counted[0]} chunks")
    embedder = get_embedder()
    texts: list[str] = []
    for file in files[:: max(1, len(files) // 200)]:
        found = embedded_texts(
            file, chunk_file(file), count_tokens=embedder.count_tokens, max_tokens=embedder.max_tokens
        )
        texts += [row for one in found for row in one.rows]
    return texts


def _embedding(texts: list[str], folder: Path) -> None:
    from indexing.embedding import _threads, get_embedder
    from indexing.suspects import Suspects
    from indexing.vector_cache import VectorCache
    from indexing.vectorising import Vectoriser

    embedder = get_embedder()

    def bare(block: list[str], batch: int) -> None:
        embedder._use_threads(_threads())
        embedder._model.encode(block, batch_size=batch, show_progress_bar=False, convert_to_numpy=True)

    vectoriser = Vectoriser(
        lambda: embedder,
        VectorCache(folder / "cache", embedder.info, published=None),
        embedder.info,
        suspects=Suspects(folder / "suspects"),
        check=lambda: None,
        on_progress=lambda *_: None,
    )

    def ours(block: list[str]) -> None:
        for text in block:
            vectoriser.wait_for(text, path=b"")
        vectoriser.embed_waiting()

    embedder._model.encode(texts[:64], show_progress_bar=False)  # the first call pays for memory and kernels
    blocks = [texts[number::BLOCKS] for number in range(BLOCKS)]
    costs: dict[int, list[tuple[float, float]]] = {batch: [] for batch in (*BATCHES, 0)}  # 0: as a build does it
    for block in blocks:
        for batch in BATCHES:
            costs[batch].append(_timed(lambda texts=block, size=batch: bare(texts, size)))
        costs[0].append(_timed(lambda texts=block: ours(texts)))
    sums = {batch: (sum(cpu for cpu, _ in rows), sum(wall for _, wall in rows)) for batch, rows in costs.items()}
    best = min(BATCHES, key=lambda batch: sums[batch][1])
    rates = " and ".join(f"{sums[best][which] / sums[0][which]:.0%}" for which in (0, 1))
    _show(f"bare encode, {best} in a batch", sums[best], note=f"{len(texts)} texts")
    _show("embedding as a build does it", sums[0], sums[best][0], f"{rates} of the bare rate (CPU, wall)")


def main(repo: str, count: int = 600) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"DATA_DIR": str(folder / "data"), "LOCAL_REPOSITORY_ROOTS": "/", "LOG_LEVEL": "ERROR"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "assistant.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        from indexing.git import ensure_mirror, resolve
        from tests.factories import make_repository

        mirror = make_repository("example/measured", url=repo).mirror
        ensure_mirror(mirror)
        commit = resolve(mirror.path, "", mirror.default_branch)
        texts = _lexical(mirror.path, commit, folder / "lexical")
        _embedding(texts[:: max(1, len(texts) // count)][:count], folder)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
