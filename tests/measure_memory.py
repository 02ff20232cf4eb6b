"""The most memory that a build holds for a small and for a ten times larger repository.

`python -m tests.measure_memory [CHUNKS] [TIMES]` makes both (about 11 chunks a file) in a temporary folder and builds
each in a process of its own, with an embedder that costs nothing. It prints the peak of each step (resident memory,
mapped files included) and the ratio of the two. Not a test: it says how it is, on the machine it runs on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.measure_updates import FreeEmbedder, module_text

CHUNKS_PER_FILE = 11
SAMPLE_SECONDS = 0.02


def make_large_repo(folder: Path, files: int) -> Path:
    """A bare repository with one commit, written by `git fast-import`: a work tree would take longer than the build."""
    repo = folder / f"files-{files}"
    subprocess.run(["git", "init", "--quiet", "--bare", "--initial-branch=main", str(repo)], check=True)
    with subprocess.Popen(["git", "-C", str(repo), "fast-import", "--quiet"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"commit refs/heads/main\ncommitter example <example@localhost> 0 +0000\ndata 1\nx")
        for number in range(files):
            text = module_text(number).encode()
            process.stdin.write(b"\nM 100644 inline d%d/m%d.py\ndata %d\n" % (number // 100, number, len(text)) + text)
        process.stdin.close()
    if process.returncode:
        raise RuntimeError("git fast-import failed")
    return repo


def _memory() -> dict[str, int]:
    """Kilobytes: resident in all, and of it what is mapped from files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[name].split()[0]) for name in ("VmRSS", "RssFile", "VmHWM")}


def _build(repo: Path, data: Path) -> None:
    """In a process of its own: prints one line of JSON."""
    os.environ |= {"DATA_DIR": str(data), "LOCAL_REPOSITORY_ROOTS": str(repo.parent), "LOG_LEVEL": "ERROR"}
    os.environ["DJANGO_SETTINGS_MODULE"] = "assistant.settings"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from indexing import embedding
    from indexing.building import build_index, open_build, run_under_lease
    from indexing.index_format import open_index
    from tests.factories import make_repository

    embedder = FreeEmbedder()
    embedding.get_embedder = lambda: embedder  # type: ignore[assignment,return-value]
    repository = make_repository("example/large", url=str(repo))
    index, _ = open_build(repository)
    peaks: dict[str, dict[str, int]] = {}
    step, ended = ["start"], threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            now, peak = _memory(), peaks.setdefault(step[0], {"VmRSS": 0, "RssFile": 0})
            for name in peak:
                peak[name] = max(peak[name], now[name])

    def on_progress(line: str) -> None:
        step[0] = line.partition(":")[0]

    def work(row: object, check: object) -> None:
        build_index(row, on_progress=on_progress, check=check)  # type: ignore[arg-type]

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    run_under_lease(index.pk, work)
    ended.set()
    watcher.join()
    index.refresh_from_db()
    if index.status != "ready":
        raise RuntimeError(index.error)
    found = open_index(repository.index_path)
    steps = {name: [round(kb / 1024) for kb in peak.values()] for name, peak in peaks.items()}
    print(
        json.dumps(
            {
                "chunks": found.chunk_count,
                "segments": len(found.segments),
                "peak_megabytes": round(_memory()["VmHWM"] / 1024, 1),
                "steps": steps,
                "cpu": round(sum(os.times()[:4]), 1),
            }
        )
    )


def _measured(folder: Path, chunks: int) -> float:
    repo = make_large_repo(folder, chunks // CHUNKS_PER_FILE)
    command = [sys.executable, "-m", "tests.measure_memory", "--build", str(repo), str(folder / f"data-{chunks}")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    found = json.loads(done.stdout.splitlines()[-1])
    peak, cpu = found["peak_megabytes"], found["cpu"]
    print(f"{found['chunks']} chunks, {found['segments']} segments: peak {peak} MB, {cpu} s of CPU")
    for step, (resident, mapped) in found["steps"].items():
        print(f"  {step:14} {resident:5} MB, of it {mapped:4} MB mapped files")
    return float(found["peak_megabytes"])


def main(chunks: int = 30_000, times: int = 10) -> None:
    with tempfile.TemporaryDirectory() as folder:
        small, large = (_measured(Path(folder), count) for count in (chunks, chunks * times))
    print(f"peak memory: {small:.0f} MB and {large:.0f} MB, ratio {large / small:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--build"]:
        _build(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main(*map(int, sys.argv[1:]))
