"""What a one-file commit costs in a small and in a ten times larger repository.

`python -m tests.measure_updates [FILES] [TIMES] [COMMITS]` makes both in a temporary folder, with about eleven chunks a
file and an embedder that costs nothing, and prints the CPU time of each update with its Git processes and the bytes
that it and they wrote. Not a test: it says how it is, on the machine it runs on.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

DIMENSIONS = 384


class FreeEmbedder:
    """Unit vectors from a hash of the text."""

    def __init__(self) -> None:
        from indexing.index_format import ModelInfo

        self.info = ModelInfo("free", "1", DIMENSIONS)
        self.max_tokens, self.too_long, self.texts = 256, 0, 0

    def count_tokens(self, text: str) -> int:
        return len(text) // 4

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        self.texts += len(texts)
        seeds = [int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts]
        rows = np.stack([np.random.default_rng(seed).standard_normal(DIMENSIONS) for seed in seeds]).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def module_text(number: int, change: str = "") -> str:
    functions = []
    for step in range(10):
        lines = "\n".join(f"    value_{i} = compute_{number}_{step}(order, {i}, 'item {i}')" for i in range(9))
        functions.append(
            f'def handle_{number}_{step}(order):\n    """Step {step}."""\n{lines}\n    return value_8{change}\n'
        )
    return f'"""Module {number}."""\nimport os\n\n\n' + "\n\n".join(functions)


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def _bytes_written() -> int:
    """By this process and the children it has waited for, in whole pages, as they go to the disk."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["write_bytes"])


def _measure(base: Path, files: int, commits: int, embedder: FreeEmbedder) -> list[tuple[float, int]]:
    from indexing.building import build_now
    from indexing.index_format import open_index
    from tests.factories import commit_files, make_repo, make_repository

    name = f"files-{files}"
    modules = {f"d{number // 100}/m{number}.py": module_text(number) for number in range(files)}
    repo = make_repo(base, modules, name=name)
    repository = make_repository(name, url=str(repo))
    build_now(repository)
    print(f"{name}: {open_index(repository.index_path).chunk_count} chunks")
    costs = []
    for step in range(commits):
        number = (step * 37) % files
        commit_files(repo, {f"d{number // 100}/m{number}.py": module_text(number, f" + {step}")})
        cpu, written, texts = _cpu_seconds(), _bytes_written(), embedder.texts
        build_now(repository)
        costs.append((_cpu_seconds() - cpu, _bytes_written() - written))
        print(f"  {costs[-1][0]:.3f} s of CPU, {costs[-1][1] / 1000:.0f} KB written, {embedder.texts - texts} embedded")
    return costs


def main(files: int = 900, times: int = 10, commits: int = 12) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        os.environ |= {"DATA_DIR": str(base / "data"), "LOCAL_REPOSITORY_ROOTS": folder, "LOG_LEVEL": "ERROR"}
        os.environ["DJANGO_SETTINGS_MODULE"] = "assistant.settings"
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)
        from indexing import embedding

        embedder = FreeEmbedder()
        embedding.get_embedder = lambda: embedder  # type: ignore[assignment,return-value]
        small, large = (_measure(base, count, commits, embedder)[2:] for count in (files, files * times))
    cpu = [sum(seconds for seconds, _ in costs) / len(costs) for costs in (small, large)]
    written = [max(size for _, size in costs) / 1000 for costs in (small, large)]
    print(f"CPU of an update: {cpu[0]:.3f} s and {cpu[1]:.3f} s, ratio {cpu[1] / cpu[0]:.2f}")
    print(f"most bytes written by an update: {written[0]:.0f} KB and {written[1]:.0f} KB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
