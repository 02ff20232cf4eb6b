"""`manage.py schedule`: a scheduler as a process of its own; any number of them may run

Workers that take builds schedule as well. A process of its own goes on with it when all workers are away.
"""

from __future__ import annotations

import signal
from typing import Any

from django.core.management.base import BaseCommand

from assistant import scheduling


class Command(BaseCommand):
    help = "Recover interrupted builds, refresh repositories and remove what is past its time, until SIGTERM."

    def handle(self, *args: Any, **options: Any) -> None:  # Any: Django passes what argparse parsed
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: scheduling.stopping.set())
        threads = scheduling.start()
        self.stdout.write("Scheduling; stop with Ctrl-C or SIGTERM.")
        while not scheduling.stopping.wait(1.0):
            pass
        for thread in threads:
            thread.join(timeout=5.0)
