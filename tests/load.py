"""Load on the real server: `make load ARGS="--minutes 10"`, or `python -m tests.load --url ... --token ...` on another.

Clients search, ask with a scripted model, follow streams, open pages and send webhooks at the same time. At the end:
latencies of each kind, errors, CPU of the web process, and whether the memory of any process grew. `--searches N` ends
after N searches instead of after some minutes and does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import http.cookiejar
import itertools
import json
import os
import random
import resource
import statistics
import tempfile
import threading
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.stack import PROJECT, Stack
from tests.stub_llm_server import serve

QUESTIONS = (
    *("how are sessions signed", "where is the retry with backoff", "parse command line arguments", "read a json file"),
    *("what does the router do", "close the database connection", "how is a request validated", "write a test client"),
    *("cancel a running task", "def main", "convert a colour", "cache with a time to live", "merge two dictionaries"),
)
ANSWER = "The value is made in one place [1] and checked in another [2]. " * 12
PAGES = ("/", "/search/?q=session", "/repositories/", "/account/tokens/")
_WEBHOOK = """
from indexing.models import Repository
repository = Repository.objects.order_by("pk").first()
print(repository.pk, repository.webhook_secret)
"""


class Load:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.times: dict[str, list[float]] = defaultdict(list)
        self.errors: dict[str, int] = defaultdict(int)
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.begun = time.monotonic()

    def run(self, kind: str, work: Callable[[], object], *, threads: int, pause: float = 0.0, most: int = 0) -> None:
        """`work` again and again in each of the threads, until the end or `most` times in all."""
        left = itertools.count(1)

        def loop() -> None:
            while not self.stopping.is_set() and not (most and next(left) > most):
                begun = time.perf_counter()
                try:
                    work()
                except Exception:
                    with self._lock:
                        self.errors[kind] += 1
                    time.sleep(0.1)
                else:
                    with self._lock:
                        self.times[kind].append(time.perf_counter() - begun)
                self.stopping.wait(pause)

        for _ in range(threads):
            self._threads.append(threading.Thread(target=loop, daemon=True))
            self._threads[-1].start()

    def join(self, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    # what clients do

    def search(self) -> None:
        self.stack.api("POST", "/search", {"question": random.choice(QUESTIONS), "limit": 10})

    def ask(self) -> None:
        assert self.stack.api("POST", "/ask", {"question": random.choice(QUESTIONS)}, seconds=120)["state"] == "done"

    def stream(self) -> None:
        headers = {"Accept": "text/event-stream"}
        body = {"question": random.choice(QUESTIONS)}
        begun = time.perf_counter()
        first, ended = 0.0, False
        with self.stack.open("POST", "/ask", body, seconds=300, headers=headers) as response:
            for line in response:
                if not first and line.startswith(b"event: evidence"):
                    first = time.perf_counter() - begun
                ended = ended or line.startswith(b"event: done")
        with self._lock:
            self.times["stream: first sources"].append(first)
        assert ended

    def report(self) -> dict[str, object]:
        seconds = time.monotonic() - self.begun
        rows = {}
        for kind, times in sorted(self.times.items()):
            ordered = sorted(times)
            rows[kind] = {
                "count": len(ordered),
                "per_second": round(len(ordered) / seconds, 2),
                **{
                    f"p{p}_ms": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * p // 100)])
                    for p in (50, 95, 99)
                },
                "errors": self.errors.get(kind, 0),
            }
        lost = {kind: count for kind, count in self.errors.items() if kind not in rows}
        return {"seconds": round(seconds, 1), "kinds": rows, "only errors": lost}


class Pages:
    """A person's browser: signs in by a link, then opens pages."""

    def __init__(self, stack: Stack, username: str) -> None:
        self._url = stack.url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        made = json.loads(stack.manage("sign_in_link", "--user", username, "--url", stack.url, "--json"))
        self._opener.open(made["link"], timeout=60).read()

    def open(self) -> None:
        self._opener.open(self._url + random.choice(PAGES), timeout=60).read()


class Webhooks:
    def __init__(self, stack: Stack) -> None:
        repository_id, self._secret = stack.manage("shell", "--verbosity", "0", "--command", _WEBHOOK).split()
        self._address = f"{stack.url}/webhooks/{repository_id}/"

    def send(self) -> None:
        """Pushes to a branch that is not followed: checked and read like any, but nothing is built."""
        body = json.dumps({"ref": "refs/heads/elsewhere", "after": uuid.uuid4().hex}).encode()
        headers = {
            "Content-Type": "application/json",
            "X-GitHub-Event": "push",
            "X-GitHub-Delivery": str(uuid.uuid4()),
            "X-Hub-Signature-256": f"sha256={hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()}",
        }
        urllib.request.urlopen(urllib.request.Request(self._address, data=body, headers=headers), timeout=60).read()


def memory_mb(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in text.splitlines() if line.startswith("RssAnon")).split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def by_quarter(values: list[float]) -> list[int]:
    quarter = len(values) // 4
    return [round(statistics.fmean(values[start : start + quarter])) for start in range(0, 4 * quarter, quarter or 1)]


def drive(stack: Stack, options: argparse.Namespace) -> dict[str, object]:
    load = Load(stack)
    web = stack.processes.get("web")
    for _ in range(3):  # the model and the indexes are open when counting begins
        with suppress(OSError):
            load.search()
    load.begun = time.monotonic()
    cpu = cpu_seconds(web.pid) if web else 0.0
    memory: dict[str, list[float]] = defaultdict(list)
    if options.searches:
        load.run("search", load.search, threads=options.clients, most=options.searches)
        load.join(seconds=3600)
    else:
        load.run("search", load.search, threads=options.clients, pause=options.pause)
        load.run("ask", load.ask, threads=options.asks, pause=1.0)
        load.run("stream", load.stream, threads=options.streams)
        if not options.url:
            load.run("page", Pages(stack, "lead").open, threads=2, pause=0.5)
            load.run("webhook", Webhooks(stack).send, threads=1, pause=1.0)
        load.run("healthz", lambda: stack.status("/healthz", seconds=30), threads=1, pause=1.0)
        ends = time.monotonic() + 60 * options.minutes
        while time.monotonic() < ends:
            for name, process in stack.processes.items():
                memory[name].append(memory_mb(process.pid))
            time.sleep(5.0)
        load.stopping.set()
        load.join()
    report = load.report()
    if web:
        report["web CPU seconds"] = round(cpu_seconds(web.pid) - cpu, 1)
    report["memory by quarter, MB"] = {name: by_quarter(values) for name, values in memory.items()}
    report["load average"] = os.getloadavg()[0]
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--clients", type=int, default=8, help="that search, one request after the other")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds between two searches of a client")
    parser.add_argument("--asks", type=int, default=1)
    parser.add_argument("--streams", type=int, default=20, help="readers that follow an answer all the time")
    parser.add_argument("--searches", type=int, default=0, help="only so many searches, without a time")
    parser.add_argument("--data", type=Path, help="a data folder with a SQLite database, such as one of `simulate`")
    parser.add_argument("--repository", type=Path, default=PROJECT, help="indexed first, unless --data is given")
    parser.add_argument("--url", default="", help="of a server that runs already")
    parser.add_argument("--token", default="", help="for that server, with the scopes read and ask")
    parser.add_argument("--word-seconds", type=float, default=0.1, help="between two words of the scripted model")
    options = parser.parse_args()
    _allow_many_files()
    if options.url:
        stack = Stack(Path(tempfile.mkdtemp()))
        stack.url, stack.token = options.url, options.token
        print(json.dumps(drive(stack, options), indent=1))
        return
    with tempfile.TemporaryDirectory() as folder, serve() as model:
        model.script, model.pause_seconds = [(200, {}, ANSWER)], options.word_seconds
        settings = {"LLM_MODEL": "openai/stub", "LLM_API_BASE": model.base, "LLM_API_KEY": "none"}
        settings |= {"LLM_PLAN_TIMEOUT_SECONDS": "2", "LLM_RERANK_TIMEOUT_SECONDS": "2", "REFRESH_MINUTES": "0"}
        if options.data:
            settings["DATA_DIR"] = str(options.data.resolve())
        database, broker = os.environ.get("TEST_DATABASE_URL", ""), os.environ.get("TEST_BROKER_URL", "")
        with Stack(Path(folder), database_url=database, broker_url=broker or "filesystem://", **settings) as stack:
            if not options.data:
                stack.manage("index_repository", str(options.repository))
            print(json.dumps(drive(stack, options), indent=1))


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard > 0 else 65_536, hard))


if __name__ == "__main__":
    main()
