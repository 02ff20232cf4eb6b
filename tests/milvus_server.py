"""A real Milvus server on loopback, from the package `milvus` in a virtual environment of its own.

Its dependencies contradict ours, so it is started as a program: `python -m tests.milvus_server FOLDER PORT` with the
Python of that environment, which `make milvus` makes and MILVUS_PYTHON names. It takes about 25 s to start.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

PYTHON = Path(os.environ.get("MILVUS_PYTHON", "") or Path(__file__).resolve().parents[1] / ".venv-milvus/bin/python")
STARTED_WITHIN_SECONDS = 180.0


def installed() -> bool:
    return PYTHON.exists()


class MilvusProcess:
    """`with MilvusProcess(folder, port) as server`: its address is `url`; `kill` and `start` for a day when it dies."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MilvusProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        self._wait_for_port()
        log = self.folder / "milvus.log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(PYTHON), __file__, str(self.folder / "milvus"), str(self.port)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        deadline = time.monotonic() + STARTED_WITHIN_SECONDS
        while b"started" not in log.read_bytes():
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)

    def _wait_for_port(self) -> None:
        """Connections of a killed server linger for a minute, and the package would take the next port instead."""
        deadline = time.monotonic() + STARTED_WITHIN_SECONDS
        while True:
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", self.port))
                except OSError:
                    assert time.monotonic() < deadline, f"port {self.port} stays taken"
                    time.sleep(0.5)
                else:
                    return

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _serve(folder: str, port: int) -> None:
    from milvus import MilvusServer  # the other environment's

    server = MilvusServer()
    server.set_base_dir(folder)
    server.listen_port = port
    server.start()
    print("started", flush=True)
    signal.pause()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
