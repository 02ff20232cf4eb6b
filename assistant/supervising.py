"""Keep a few programs running: start them, prefix their lines, restart what dies, end all of them.

In: programs and an event that says stop. Out: their lines, one by one, through `write`; an error when one cannot be
kept alive. No knowledge of web servers or workers; nothing survives the process that supervises.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

MAX_DEATHS = 5
DEATHS_WITHIN_SECONDS = 30.0
FIRST_BACKOFF_SECONDS = 0.5  # doubles with each death in a row
POLL_SECONDS = 0.2
GRACE_SECONDS = 10.0  # from SIGTERM to SIGKILL; interrupted builds are resumed by their lease

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Looked up before any fork: loading a library in a forked child of a process with threads could wait for ever.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None


class KeepsDying(Exception):
    """A program ended too often in too short a time; restarting it again would not help."""


@dataclass(frozen=True, slots=True)
class Program:
    """`niceness` is added to the priority number: 10 leaves the processor to whoever else wants it."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    niceness: int = 0


def supervise(programs: Sequence[Program], *, write: Callable[[str], None], stop: threading.Event) -> None:
    """Blocks until `stop` is set. Must run in the main thread: Linux ties the children's lives to this thread.

    Raises KeepsDying. However it ends, no program is left running.
    """
    children = [_Child(program, write) for program in programs]
    try:
        for child in children:
            child.start()
        while not stop.wait(POLL_SECONDS):
            for child in children:
                child.revive()
    finally:
        write("Stopping ...")
        _end(children)


def _end(children: Sequence[_Child]) -> None:
    for child in children:
        child.signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    for child in children:
        child.wait(max(0.0, deadline - time.monotonic()))


class _Child:
    """One program and the process that runs it at the moment."""

    def __init__(self, program: Program, write: Callable[[str], None]) -> None:
        self._program = program
        self._write = write
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._deaths: deque[float] = deque(maxlen=MAX_DEATHS)
        self._start_at = 0.0

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._program.command,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **self._program.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C reaches only the supervisor, which ends everything in order
            preexec_fn=_tie_to_parent(os.getpid(), self._program.niceness),
        )
        self._reader = threading.Thread(target=self._forward_lines, args=(self._process,), daemon=True)
        self._reader.start()

    def _forward_lines(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line := line.rstrip():
                self._write(f"{self._program.name:<6} | {line}")

    def revive(self) -> None:
        """Notice a death, and start again once its pause is over. Raises KeepsDying."""
        if self._process is not None and self._process.poll() is not None:
            self._note_death(self._process.returncode)
        if self._process is None and time.monotonic() >= self._start_at:
            self.start()

    def _note_death(self, status: int) -> None:
        now = time.monotonic()
        self.signal(signal.SIGKILL)  # what it may have left in its session
        self._process = None
        self._deaths.append(now)
        recent = sum(now - death < DEATHS_WITHIN_SECONDS for death in self._deaths)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        if recent >= MAX_DEATHS:
            raise KeepsDying(
                f"{self._program.name} {how}, {recent} times within {DEATHS_WITHIN_SECONDS:.0f} seconds; "
                "its last lines above say why"
            )
        pause = FIRST_BACKOFF_SECONDS * 2 ** (recent - 1)
        self._start_at = now + pause
        self._write(f"{self._program.name:<6} | {how}; starting it again in {pause:g} s")

    def signal(self, number: signal.Signals) -> None:
        """To the whole session, so that helpers of the program (Git, for example) end too."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def wait(self, seconds: float) -> None:
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._write(f"{self._program.name:<6} | did not end within {GRACE_SECONDS:.0f} s and is killed")
        self.signal(signal.SIGKILL)
        self._process.wait()
        if self._reader is not None:
            self._reader.join(1.0)


def _tie_to_parent(parent: int, niceness: int) -> Callable[[], None]:
    """What a new child does first. Elsewhere than on Linux, only an orderly end of the parent ends it."""

    def prepare() -> None:
        os.nice(niceness)
        if _prctl is not None:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # the parent died before the line above
                os._exit(1)

    return prepare
