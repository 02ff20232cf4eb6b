"""What happens without anybody asking: interrupted builds go on, sources are asked for news, old rows go.

Each kind of work has a thread, because one may wait for a host. Schedulers need not know of each other: whatever they
do is claimed by one conditional update of a row, so two of them do nothing twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from django.db import close_old_connections

RECOVERY_SECONDS = 15.0
REFRESH_SECONDS = 20.0
FILL_SECONDS = 30.0
RETENTION_SECONDS = 3600.0

log = logging.getLogger(__name__)
stopping = threading.Event()


Round = tuple[Callable[[], object], float]  # what is done, and the seconds between two times


def start() -> list[threading.Thread]:
    """In the background, until `stopping` is set."""
    from assistant.conversations import end_forgotten
    from assistant.retention import remove_old
    from assistant.tasks import recover_answers
    from indexing.organisations import keep_in_step
    from indexing.refreshing import refresh_due
    from indexing.tasks import recover_jobs
    from indexing.vector_filling import fill_all

    rounds = (
        (recover_jobs, RECOVERY_SECONDS),
        (recover_answers, RECOVERY_SECONDS),
        (end_forgotten, RECOVERY_SECONDS),
        (refresh_due, REFRESH_SECONDS),
        (keep_in_step, REFRESH_SECONDS),
        (fill_all, FILL_SECONDS),
        (remove_old, RETENTION_SECONDS),
    )
    return _started(rounds)


def start_for_answers() -> list[threading.Thread]:
    """Only what brings answers to Slack and to programs again, for a worker that does nothing else."""
    from assistant.tasks import recover_answers

    return _started([(recover_answers, RECOVERY_SECONDS)])


def _started(rounds: Sequence[Round]) -> list[threading.Thread]:
    threads = [threading.Thread(target=_repeat, args=work, daemon=True) for work in rounds]
    for thread in threads:
        thread.start()
    return threads


def _repeat(work: Callable[[], object], seconds: float) -> None:
    """Whatever goes wrong once, the next round may go well."""
    while True:
        try:
            work()
        except Exception:
            log.exception("%r failed; trying again in %.0f s", work, seconds)
        close_old_connections()
        if stopping.wait(seconds):
            return
