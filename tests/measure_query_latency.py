"""How long embedding a question takes while a build embeds on the same machine, against the same without the build.

`python -m tests.measure_query_latency [QUESTIONS]` starts a build with the real model in a process of its own, niced
as `manage.py up` does, waits until it embeds, and asks questions in blocks: by turns with the build stopped
(SIGSTOP) and with it running, so that whatever else the machine does falls on both. It prints p50 and p95 of each.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

import numpy as np

BLOCK = 25  # questions
SETTLE_SECONDS = 0.5  # after the build was stopped or let go on
FILES = 400
WORKER_NICENESS = 10


def _build(repo: str) -> None:
    """In a process of its own, until it is ended."""
    _set_up()
    from indexing.building import build_now
    from tests.factories import make_repository

    os.nice(WORKER_NICENESS)
    build_now(make_repository("example/built", url=repo), on_progress=lambda line: print(line, flush=True))


def _set_up() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "assistant.settings"
    import django

    django.setup()


def _ask(questions: list[str]) -> list[float]:
    """Milliseconds of each."""
    from indexing.embedding import get_embedder

    embedder, times = get_embedder(), []
    for question in questions:
        started = time.perf_counter()
        embedder.embed_queries([question])
        times.append(1000 * (time.perf_counter() - started))
    return times


def _question(number: int) -> str:
    return f"Where is the value of item {number} computed, and who handles order {number * 7}?"


def _measure(build: subprocess.Popen[str], count: int) -> tuple[list[float], list[float]]:
    """Without and with the build."""
    assert build.stdout is not None
    for line in build.stdout:
        if line.startswith("embedding") and " 0 per second" not in line:
            break
    alone: list[float] = []
    beside: list[float] = []
    numbers = iter(range(1, 10**6))
    _ask([_question(next(numbers)) for _ in range(BLOCK)])  # the first ones pay for memory and kernels
    while len(beside) < count:
        for times, what in ((alone, signal.SIGSTOP), (beside, signal.SIGCONT)):
            build.send_signal(what)
            time.sleep(SETTLE_SECONDS)
            times += _ask([_question(next(numbers)) for _ in range(BLOCK)])
        if build.poll() is not None:
            raise RuntimeError("the build ended too early: raise FILES")
    return alone, beside


def main(count: int = 300) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"DATA_DIR": f"{folder}/data", "LOCAL_REPOSITORY_ROOTS": folder, "LOG_LEVEL": "ERROR"}
        _set_up()
        from django.core.management import call_command

        from tests.factories import make_repo
        from tests.measure_updates import module_text

        repo = make_repo(Path(folder), {f"pkg/m{number}.py": module_text(number) for number in range(FILES)})
        call_command("migrate", verbosity=0)
        command = [sys.executable, "-m", "tests.measure_query_latency", "--build", str(repo)]
        build = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            alone, beside = _measure(build, count)
        finally:
            build.kill()
            build.wait()
    (p50, p95), (p50_beside, p95_beside) = (
        (float(np.median(times)), quantiles(times, n=20)[-1]) for times in (alone, beside)
    )
    print(f"without a build: p50 {p50:6.1f} ms, p95 {p95:6.1f} ms ({len(alone)} questions)")
    print(f"with a build:    p50 {p50_beside:6.1f} ms, p95 {p95_beside:6.1f} ms ({len(beside)} questions)")
    print(f"ratios:          p50 {p50_beside / p50:6.2f},    p95 {p95_beside / p95:6.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        _build(sys.argv[2])
    else:
        main(*map(int, sys.argv[1:]))
