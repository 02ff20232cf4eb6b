from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant import supervising
from assistant.supervising import KeepsDying, Program, supervise

SLEEPS = "import os, time; print('pid', os.getpid()); time.sleep(60)"
IGNORES_TERM = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEPS


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "FIRST_BACKOFF_SECONDS", 0.01)
    monkeypatch.setattr(supervising, "POLL_SECONDS", 0.02)


def run(code: str, *, until: Callable[[list[str]], bool], **fields: object) -> list[str]:
    """Lines written by a supervised `python -c code`, stopped as soon as `until(lines)` holds."""
    lines: list[str] = []
    stop = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if until(lines):
            stop.set()

    guard = threading.Timer(20, stop.set)
    guard.start()
    try:
        supervise([Program("worker", [sys.executable, "-c", code], **fields)], write=write, stop=stop)  # type: ignore[arg-type]
    finally:
        guard.cancel()
    return lines


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def test_it_puts_the_name_before_each_line_and_ends_what_it_started() -> None:
    lines = run(SLEEPS, until=lambda lines: bool(lines))
    assert lines[0].startswith("worker | pid ")
    assert not alive(int(lines[0].split()[-1]))


def test_it_starts_again_what_was_killed() -> None:
    def kill_the_first(lines: list[str]) -> bool:
        pids = [int(line.split()[-1]) for line in lines if "pid" in line]
        if len(pids) == 1 and len(lines) == 1:
            os.kill(pids[0], signal.SIGKILL)
        return len(pids) == 2

    lines = run(SLEEPS, until=kill_the_first)
    assert lines[1] == "worker | was killed by signal 9; starting it again in 0.01 s"


def test_it_gives_up_on_what_keeps_dying() -> None:
    with pytest.raises(KeepsDying, match=r"^worker ended with status 3, 5 times within 30 seconds"):
        run("raise SystemExit(3)", until=lambda lines: False)


def test_it_kills_what_does_not_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "GRACE_SECONDS", 0.2)
    lines = run(IGNORES_TERM, until=lambda lines: bool(lines))
    assert lines[1:] == ["Stopping ...", "worker | did not end within 0 s and is killed"]
    assert not alive(int(lines[0].split()[-1]))


def test_it_passes_the_environment_and_yields_the_processor() -> None:
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.nice(0)); " + SLEEPS
    lines = run(code, until=lambda lines: bool(lines), environment={"OMP_NUM_THREADS": "3"}, niceness=5)
    assert lines[0] == f"worker | 3 {min(19, os.nice(0) + 5)}"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent died")
def test_it_leaves_nothing_behind_when_it_is_killed_itself(tmp_path: Path) -> None:
    code = (
        "import sys, threading; from assistant.supervising import Program, supervise\n"
        f"supervise([Program('worker', [sys.executable, '-c', {SLEEPS!r}])],"
        " write=lambda line: print(line, flush=True), stop=threading.Event())"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline().split()[-1])
    parent.kill()
    parent.wait()
    wait_until(lambda: not alive(child))
