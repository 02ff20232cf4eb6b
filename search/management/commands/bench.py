"""`manage.py bench`: what search costs on this machine, as ratios taken in one run.

Synthetic vectors for the Hamming part; the stages are timed on whatever is indexed. Machines are shared and noisy:
compare the columns of one run, not runs.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from django.core.management.base import BaseCommand

from indexing.access import Principal
from search.hamming import top_rows
from search.pipeline import search

WORDS = 6  # 384 bits
TOP = 100
REPEATS = 7
QUESTIONS = (
    "how are files skipped",
    "where is the answer streamed to the browser",
    "Repository",
    "who may read a repository",
    "how is a vector turned into bits",
)


class Command(BaseCommand):
    help = "Time Hamming search against reading the bytes, faiss and NumPy, and each stage of a search."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rows", type=int, default=1_000_000, help="vectors of 384 bits")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        with tempfile.TemporaryDirectory() as folder:
            self._hamming(Path(folder) / "bits.npy", options["rows"])
        self._stages()

    def _hamming(self, file: Path, rows: int) -> None:
        import faiss

        random = np.random.default_rng(1)
        np.save(file, random.integers(0, 2**63, size=(rows, WORDS), dtype=np.uint64))
        matrix = np.asarray(np.load(file, mmap_mode="r"))
        query = random.integers(0, 2**63, size=WORDS, dtype=np.uint64)
        faiss.omp_set_num_threads(1)
        flat = faiss.IndexBinaryFlat(WORDS * 64)
        flat.add(matrix.view(np.uint8))
        timings = {
            "reading the bytes": _milliseconds(lambda: np.bitwise_or.reduce(matrix, axis=None)),
            "top_rows": _milliseconds(lambda: top_rows(query, [matrix], TOP)),
            "faiss IndexBinaryFlat": _milliseconds(lambda: flat.search(query.reshape(1, -1).view(np.uint8), TOP)),
            "numpy": _milliseconds(lambda: _numpy_top(query, matrix)),
        }
        ours = timings["top_rows"]
        self.stdout.write(f"Hamming top {TOP} of {rows:,} x {WORDS * 64} bits, one thread, median of {REPEATS}")
        for name, milliseconds in timings.items():
            self.stdout.write(f"  {name:24} {milliseconds:9.2f} ms  {milliseconds / ours:6.2f} x")

    def _stages(self) -> None:
        times: dict[str, list[float]] = defaultdict(list)
        for _ in range(REPEATS):
            for question in QUESTIONS:
                result = search(question, principal=Principal.operator(), use_llm=False)
                for stage in result.trace.stages:
                    times[stage.name].append(stage.milliseconds)
        self.stdout.write(f"\nStages over {result.trace.readable_repositories} indexed repositories, p50")
        for name, values in times.items():
            self.stdout.write(f"  {name:24} {median(values):9.2f} ms")


def _milliseconds(call: Callable[[], object]) -> float:
    call()
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        call()
        times.append((time.perf_counter() - begun) * 1000)
    return median(times)


def _numpy_top(query: np.typing.NDArray[np.uint64], matrix: np.typing.NDArray[np.uint64]) -> object:
    distances = np.bitwise_count(matrix ^ query).sum(axis=1)
    return np.argpartition(distances, TOP)[:TOP]
