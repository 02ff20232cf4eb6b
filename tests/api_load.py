"""`make load-api`: many searches by several clients against the real server, and whether limits hold exactly.

    python -m tests.api_load [--searches 10000] [--clients 8] [--data-dir DIR]

Indexes this checkout in a data folder of its own (or takes DIR with its indexes), starts uvicorn on loopback, and
prints one JSON document: errors, latencies, memory of the server along the way. Then two servers on one database share
a token that may send LIMIT requests a minute, and exactly LIMIT must be taken. Exit status 1 when something failed.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
LIMIT = 500
SMALLEST_LIMIT = 60
WARM_UP = 200
MEMORY_EVERY = 500
ALLOWED_GROWTH = 1.1  # of the memory after the first tenth
QUESTIONS = [
    *("How is a citation verified?", "where are tokens hashed", "parse a stack trace", "BM25 over postings"),
    *("refuse internal addresses", "def visible_to", "sign-in link that works once", "hamming distance of sign bits"),
    *("What happens when a webhook comes twice?", "rate limit of a token", "compact segments", "embedding batch size"),
    *("wie werden Berechtigungen geprüft?", "mask secrets in code", "lease of a build", "markdown to html"),
]


@dataclass
class Result:
    statuses: Counter[int] = field(default_factory=Counter)
    milliseconds: list[float] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def percentile(self, share: float) -> float:
        ordered = sorted(self.milliseconds)
        return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)


@contextlib.contextmanager
def server(environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    """(port, process id) of a uvicorn that answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "assistant.asgi:application", "--port", str(port), "--lifespan", "on"]
    with (Path(environment["DATA_DIR"]) / "server.log").open("ab") as log:
        process = subprocess.Popen([*command, "--log-level", "warning"], cwd=PROJECT, env=environment, stderr=log)
    try:
        wait_for(port, process)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait(20)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/healthz")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.2)
    raise SystemExit("The server did not start.")


def drive(ports: Sequence[int], secret: str, total: int, clients: int, body: Any, *, pid: int = 0) -> Result:
    """`body(number)` is what request `number` sends; requests are dealt to the clients as they come free."""
    result, lock, numbers = Result(), threading.Lock(), iter(range(total))

    def client(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            status, milliseconds = send(connection, secret, body(number))
            with lock:
                result.statuses[status] += 1
                result.milliseconds.append(milliseconds)
                if pid and len(result.milliseconds) % MEMORY_EVERY == 0:
                    result.megabytes.append(megabytes_of(pid))

    threads = [threading.Thread(target=client, args=(ports[number % len(ports)],)) for number in range(clients)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    result.seconds = time.perf_counter() - begun
    return result


def send(connection: http.client.HTTPConnection, secret: str, body: dict[str, Any]) -> tuple[int, float]:
    """Status (0 for a connection that broke) and milliseconds."""
    headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    begun = time.perf_counter()
    try:
        connection.request("POST", "/api/v1/search", json.dumps(body), headers)
        reply = connection.getresponse()
        reply.read()
        status = reply.status
    except (OSError, http.client.HTTPException):
        connection.close()
        status = 0
    return status, (time.perf_counter() - begun) * 1000


def megabytes_of(pid: int) -> float:
    """Resident memory of its own: what is mapped from index files and shared counts for nobody."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return round(int(status["RssAnon"].split()[0]) / 1024, 1)


def manage(environment: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=PROJECT, env=environment, check=True, stdout=subprocess.PIPE
    )
    return done.stdout.decode().strip().rpartition("\n")[2]


def make_token(environment: dict[str, str], limit: int) -> str:
    code = (
        "from assistant import sign_in, tokens; "
        "token, secret = tokens.create(sign_in.ensure_operator(), 'load', scopes=['read']); "
        f"token.requests_per_minute = token.requests_per_day = {limit}; token.save(); print(secret)"
    )
    return manage(environment, "shell", "--verbosity", "0", "--command", code)


def searches(environment: dict[str, str], total: int, clients: int) -> tuple[dict[str, Any], bool]:
    secret = make_token(environment, 10**8)
    with server(environment) as (port, pid):
        drive([port], secret, WARM_UP, clients, question)
        result = drive([port], secret, total, clients, question, pid=pid)
    early = max(result.megabytes[: max(1, len(result.megabytes) // 10)], default=0.0)
    flat = not result.megabytes or result.megabytes[-1] <= early * ALLOWED_GROWTH
    figures = {
        "searches": total,
        "clients": clients,
        "statuses": dict(result.statuses),
        "seconds": round(result.seconds, 1),
        "per_second": round(total / result.seconds, 1),
        "p50_ms": result.percentile(0.5),
        "p95_ms": result.percentile(0.95),
        "p99_ms": result.percentile(0.99),
        "megabytes": result.megabytes,
        "memory_is_flat": flat,
    }
    return figures, flat and set(result.statuses) == {200}


def question(number: int) -> dict[str, Any]:
    return {"question": QUESTIONS[number % len(QUESTIONS)], "limit": 10}


def limits(environment: dict[str, str], clients: int) -> tuple[dict[str, Any], bool]:
    """Two processes, one token, one minute: a request that fails its check is counted like any other.

    What a slow machine cannot send within a minute is measured again with half of it, so that a count is always exact.
    """
    limit = LIMIT
    with server(environment) as (first, _), server(environment) as (second, _):
        while True:
            secret = make_token(environment, limit)
            time.sleep(61 - time.time() % 60)  # all of them in one minute, from its beginning
            minute = int(time.time() // 60)
            result = drive([first, second], secret, limit * 7 // 5, clients, lambda number: {"question": ""})
            within = int(time.time() // 60) == minute
            if within or limit < SMALLEST_LIMIT * 2:
                break
            limit //= 2
    exact = within and result.statuses == {422: limit, 429: limit * 7 // 5 - limit}
    statuses = dict(result.statuses)
    figures = {"limit": limit, "processes": 2, "statuses": statuses, "seconds": round(result.seconds, 1)}
    return figures | {"within_a_minute": within, "exact": exact}, exact


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.api_load")
    parser.add_argument("--searches", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="api-load-") as temporary:
        data_dir = options.data_dir or Path(temporary)
        environment = os.environ | {"ENV_FILE": os.devnull, "DATA_DIR": str(data_dir), "OMP_NUM_THREADS": "1"}
        manage(environment, "migrate", "--verbosity", "0")
        if options.data_dir is None:
            manage(environment, "index_repository", str(PROJECT))
        searched, fine = searches(environment, options.searches, options.clients)
        limited, exact = limits(environment, options.clients)
    print(json.dumps({"search": searched, "limits": limited}, indent=2))
    return 0 if fine and exact else 1


if __name__ == "__main__":
    sys.exit(main())
