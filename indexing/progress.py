"""How far a build is: written to its row about once a second, and handed as a line to whoever watches.

Counts things done and things known. The caller sets fields of the row; nothing else writes them meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from indexing.models import Index

WRITE_SECONDS = 1.0
FIELDS = (
    "commit",
    "step",
    "current_path",
    "files_done",
    "files_known",
    "chunks_done",
    "chunks_known",
    "descriptions_done",
    "descriptions_known",
    "chunks_per_second",
    "skipped",
    "warnings",
    "lexical_at",
    "vectors_at",
    "size_bytes",
)


class Progress:
    def __init__(self, index: Index, on_line: Callable[[str], None]) -> None:
        self.index = index
        self._on_line = on_line
        self._written_at = 0.0
        self._rated_since = 0.0
        self._rated_chunks = 0

    def start(self, step: Index.Step) -> None:
        self.index.step = step
        self.index.current_path = ""
        self._rated_since, self._rated_chunks = time.monotonic(), 0
        self.write()

    def at(self, path: str) -> None:
        """Something was done at this path."""
        self.index.current_path = path[:1000]
        if time.monotonic() - self._written_at >= WRITE_SECONDS:
            self.write()

    def embedded(self, chunks: int) -> None:
        """For the rate; chunks whose vectors were there already do not count."""
        self._rated_chunks += chunks
        self.index.chunks_per_second = self._rated_chunks / max(time.monotonic() - self._rated_since, 1e-6)

    def warn(self, sentence: str) -> None:
        self.index.warnings = [*self.index.warnings, sentence]

    def write(self) -> None:
        self._written_at = time.monotonic()
        Index.objects.filter(pk=self.index.pk).update(**{name: getattr(self.index, name) for name in FIELDS})
        self._on_line(self.line)

    @property
    def line(self) -> str:
        index = self.index
        label = Index.Step(index.step).label if index.step else "starting"
        if index.step == Index.Step.CHUNK:
            return f"{label}: {index.files_done} of {index.files_known} files"
        if index.step == Index.Step.EMBED:
            return (
                f"{label}: {index.chunks_done} of {index.chunks_known} chunks, {index.chunks_per_second:.0f} per second"
            )
        if index.step == Index.Step.DESCRIBE:
            return f"{label}: {index.descriptions_done} of {index.descriptions_known} chunks"
        return label
