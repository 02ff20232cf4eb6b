"""What a piece of work costs this process: wall time, CPU time and the most memory held meanwhile."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PROCESS = Path("/proc/self")
_RESET_PEAK = "5"  # proc(5), clear_refs: forget the peak so far


@dataclass(slots=True)
class Cost:
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_megabytes: float = 0.0

    def to_json(self) -> dict[str, float]:
        return {
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu_seconds, 2),
            "peak_megabytes": round(self.peak_megabytes, 1),
        }


@contextmanager
def measured() -> Iterator[Cost]:
    """The cost is filled in when the block ends. Without Linux's /proc the peak is that of the whole process."""
    cost = Cost()
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text(_RESET_PEAK)
    begun, cpu_begun = time.perf_counter(), time.process_time()
    yield cost
    cost.seconds = time.perf_counter() - begun
    cost.cpu_seconds = time.process_time() - cpu_begun
    cost.peak_megabytes = _peak_kilobytes() / 1024


def _peak_kilobytes() -> int:
    with suppress(OSError):
        for line in (_PROCESS / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
