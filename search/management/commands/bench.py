"""`manage.py bench`: what search costs on this machine, as ratios taken in one run.

Hamming search against reading the bytes, faiss and NumPy; then whole searches over synthetic repositories against bare
Hamming search and tantivy over the same words and bits: one list of each, and all seven lists that a search has.
Machines are shared and noisy: compare the columns of one run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from search.hamming import top_rows

WORDS = 6  # 384 bits
TOP = 100
ROUNDS = 15
WORLDS = ((10, 5_000), (1_000, 1_000))  # repositories, chunks of each
MOST_OF_FAISS = 1.2
MOST_OF_READING = 3.0
MOST_OF_BARE = 4.0
MOST_AFTER_RESTART_MS = 100.0


class Command(BaseCommand):
    help = "Time Hamming search, and each stage of a search over synthetic repositories, against the bare minimum."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=1_000_000, help="vectors of 384 bits")
        parser.add_argument("--worlds", type=int, default=len(WORLDS), help="0: no synthetic repositories; 1: few")
        parser.add_argument("--folder", type=Path, help="where 4 GB of synthetic index files have room for a while")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        if options["folder"] and not options["folder"].is_dir():
            raise CommandError(f"There is no folder {options['folder']}: make it first, or leave --folder out.")
        with tempfile.TemporaryDirectory() as folder:
            self._hamming(Path(folder) / "bits.npy", options["rows"])
        for repositories, chunks in WORLDS[: options["worlds"]]:
            with tempfile.TemporaryDirectory(dir=options["folder"]) as folder:
                self._world(Path(folder), repositories, chunks)

    def _hamming(self, file: Path, rows: int) -> None:
        import faiss

        random = np.random.default_rng(1)
        np.save(file, random.integers(0, 2**63, size=(rows, WORDS), dtype=np.uint64))
        matrix = np.asarray(np.load(file, mmap_mode="r"))
        query = random.integers(0, 2**63, size=WORDS, dtype=np.uint64)
        faiss.omp_set_num_threads(1)
        flat = faiss.IndexBinaryFlat(WORDS * 64)
        flat.add(matrix.view(np.uint8))
        timings = _milliseconds(
            {
                "reading the bytes": lambda: np.bitwise_or.reduce(matrix, axis=None),
                "top_rows": lambda: top_rows(query, [matrix], TOP),
                "faiss IndexBinaryFlat": lambda: flat.search(query.reshape(1, -1).view(np.uint8), TOP),
                "faiss knn_hamming": lambda: faiss.knn_hamming(
                    query.reshape(1, -1).view(np.uint8), matrix.view(np.uint8), TOP
                ),
                "numpy": lambda: _numpy_top(query, matrix),
            }
        )
        ours = timings["top_rows"]
        self.stdout.write(f"Hamming top {TOP} of {rows:,} x {WORDS * 64} bits, one thread, best of {ROUNDS}")
        for name, milliseconds in timings.items():
            self.stdout.write(f"  {name:24} {milliseconds:9.2f} ms  {milliseconds / ours:6.2f} x")
        fastest = min(timings["faiss IndexBinaryFlat"], timings["faiss knn_hamming"])
        self.stdout.write(_verdict("of the faster of faiss", ours / fastest, MOST_OF_FAISS))
        self.stdout.write(_verdict("of reading the bytes", ours / timings["reading the bytes"], MOST_OF_READING))

    def _world(self, folder: Path, repositories: int, chunks: int) -> None:
        self.stderr.write(f"making {repositories:,} repositories of {chunks:,} chunks ...")
        _manage(folder, "migrate", "--verbosity", "0")
        _manage(folder, "bench_world", "--make", str(repositories), str(chunks))
        _manage(folder, "bench_world")  # writes the catalogue, as any server that ran before
        found = json.loads(_manage(folder, "bench_world"))
        typical = found["typical"]
        self.stdout.write(
            f"\nSearch in {repositories * chunks:,} chunks of {repositories:,} repositories, embedding left out:"
            " CPU time, median of questions"
        )
        for name, milliseconds in typical.items():
            self.stdout.write(f"  {name:24} {milliseconds:9.2f} ms  {milliseconds / typical['bare']:6.2f} x")
        self.stdout.write(f"  {'first after a start':24} {found['first']:9.2f} ms")
        # A search has four lists of words and three of vectors, so it is held against as many bare ones; and against
        # one of each, the least that a search of words and vectors could be.
        for name in ("bare, all lists", "bare"):
            self.stdout.write(_verdict(f"search of {name}", typical["search"] / typical[name], MOST_OF_BARE))
        later = found["first"] - typical["search"]
        self.stdout.write(_verdict("first one later by, ms", later, MOST_AFTER_RESTART_MS))


def _verdict(name: str, value: float, most: float) -> str:
    return f"  {name:24} {value:9.2f}     at most {most:g}: {'ok' if value <= most else 'OVER'}"


def _manage(folder: Path, *arguments: str) -> str:
    """A command of this project in a process and a data folder of its own. Raises CalledProcessError."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    environment |= {"DATA_DIR": str(folder), "ENV_FILE": os.devnull}
    command = [sys.executable, str(Path(settings.BASE_DIR) / "manage.py"), *arguments]
    return subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def _milliseconds(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The best of some rounds, one call of each after the other: others use this machine too, and not evenly."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begun = time.thread_time()  # all of them are one thread
            call()
            times[name].append((time.thread_time() - begun) * 1000)
    return {name: min(values) for name, values in times.items()}


def _numpy_top(query: np.typing.NDArray[np.uint64], matrix: np.typing.NDArray[np.uint64]) -> object:
    distances = np.bitwise_count(matrix ^ query).sum(axis=1)
    return np.argpartition(distances, TOP)[:TOP]
