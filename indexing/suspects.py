"""Files that ended the process which read them: noted before a file is read, so that the next attempt knows.

A parser is native code. When it crashes, or does not come back, nothing in its process can answer for it: the process
dies (a watchdog in C ends one that hangs), its lease brings another one, and that finds the note. A file that was
noted once is tried in a process of its own first; one that does not survive that, or was noted twice, is left out.
See docs/decisions/0015-files-that-kill-their-parser.md.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from django.conf import settings

from indexing.walking import SourceFile

FILE_SECONDS = 120.0  # parsing gives up after 10 s by itself; this is for what cannot be interrupted
PROBE = (sys.executable, "-m", "indexing.probing")
PROBE_SECONDS = 60.0
ARM_SECONDS = 1.0  # between two times the watchdog is set: it costs a thread
DEATHS = 2
PARDONS = 20  # so many different files may end a build's process without being counted as attempts
RECORD_BYTES = 64
NOTE = "reading"

log = logging.getLogger(__name__)


class Suspects:
    """Use as a context manager around everything that parses; leaving it in order forgets the last note.

    `is_new`: the attempt before this one died at a file that had not been noted before.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._list = folder / "suspects"
        self._note = folder / NOTE
        self._armed_at = 0.0
        died_at = self._noted(self._note)
        self._deaths = Counter(self._list.read_text().split() if self._list.exists() else ())
        self.is_new = bool(died_at) and self._deaths[died_at] == 1 and len(self._deaths) <= PARDONS
        self._descriptor = os.open(self._note, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def blame(self, note: Path) -> None:
        """Another process that parsed for the same build has ended: the file that it noted is suspect as well."""
        if died_at := self._noted(note):
            self._deaths[died_at] += 1

    def _noted(self, note: Path) -> str:
        """The file in a note, which is added to the list; empty when nothing was being read."""
        died_at = note.read_text(errors="replace").strip() if note.exists() else ""
        if died_at:
            with self._list.open("a") as file:
                file.write(f"{died_at}\n")
        return died_at

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        faulthandler.cancel_dump_traceback_later()
        os.close(self._descriptor)
        self._note.unlink(missing_ok=True)

    def reading(self, blob_id: str) -> None:
        """From now on it is this file that is to blame. In the system's cache: a kill does not lose it."""
        os.pwrite(self._descriptor, f"{blob_id:{RECORD_BYTES}}".encode(), 0)
        now = time.monotonic()
        if now - self._armed_at >= ARM_SECONDS:
            self._armed_at = now
            faulthandler.dump_traceback_later(FILE_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr)

    def done(self) -> None:
        """The file was read: whatever ends the process now, it is not to blame."""
        os.pwrite(self._descriptor, b" " * RECORD_BYTES, 0)

    def rest(self) -> None:
        """Nothing is parsed for a while, and what is done instead may take its time."""
        faulthandler.cancel_dump_traceback_later()
        self._armed_at = 0.0

    def must_be_left_out(self, source: SourceFile) -> bool:
        deaths = self._deaths[source.blob_id]
        if not deaths:
            return False
        if deaths < DEATHS and _survives(source):
            return False
        log.warning("blob %s ended the process that parsed it %d times and is left out", source.blob_id, deaths)
        return True


def _survives(source: SourceFile) -> bool:
    """An orderly failure is survival as well: the build answers for that in its own process."""
    command = [*PROBE, os.fsdecode(source.path)]
    try:
        done = subprocess.run(
            command, input=source.raw, timeout=PROBE_SECONDS, cwd=settings.BASE_DIR, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode >= 0
