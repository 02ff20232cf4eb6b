"""Faults, injected into the real product while it works: `python -m tests.faults [NAME]...`; see docs/faults.md.

Each scenario starts web, workers and a scripted model as processes, breaks something, and then counts: every question
that was acknowledged has one answer, every repository is indexed and its files are whole, nothing ran twice. With
TEST_DATABASE_URL and TEST_BROKER_URL it runs on those services.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.milvus_server import MilvusProcess
from tests.milvus_server import installed as milvus_is_installed
from tests.stack import PROJECT, Stack, free_port
from tests.stub_llm_server import StubServer, serve

TERMINAL = ("done", "stopped", "error")
KEEP = "FAULTS_KEEP"  # in the environment: data and log of each scenario are left in its folder


def _git(repo: Path, *arguments: str) -> str:
    who = ["-c", "user.name=example", "-c", "user.email=example@localhost"]
    return subprocess.run(
        ["git", "-C", str(repo), *who, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def make_repo(folder: Path, name: str, files: int) -> Path:
    repo = folder / name
    repo.mkdir()
    _git(repo, "init", "--quiet", "--initial-branch=main")
    for number in range(files):
        text = f'def {name}_{number}(value):\n    """Number {number} of {name}."""\n    return value + {number}\n'
        (repo / f"m{number}.py").write_text(text)
    _git(repo, "add", "--all")
    _git(repo, "commit", "--quiet", "-m", "first")
    return repo


def push(repo: Path, number: int) -> None:
    (repo / f"late{number}.py").write_text(f"def late_{number}():\n    return {number}\n")
    _git(repo, "add", "--all")
    _git(repo, "commit", "--quiet", "-m", f"late {number}")


class Ledger:
    """What the product acknowledged: questions by message id, repositories by id."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.messages: dict[str, str] = {}  # message id -> idempotency key
        self.repositories: dict[int, Path] = {}
        self.refused = 0

    def ask(self, *, seconds: float = 20.0) -> str | None:
        key = uuid.uuid4().hex
        body = {"question": f"How is number {random.randrange(50)} made?", "wait": False}
        for _ in range(40):  # a client that gets no answer asks again with the same key, and is given the same one
            with suppress(OSError):
                message = self.stack.api("POST", "/ask", body, seconds=seconds, headers={"Idempotency-Key": key})
                self.messages[message["message_id"]] = key
                return str(message["message_id"])
            self.refused += 1
            time.sleep(0.5)
        return None

    def add(self, repo: Path) -> int:
        for _ in range(60):
            with suppress(OSError):
                repository_id = self.stack.add_repository(repo)
                self.repositories[repository_id] = repo
                return repository_id
            time.sleep(0.5)
        raise AssertionError("the repository was never taken")

    def settle(self, *, seconds: float = 900.0) -> float:
        """Until nothing is under way any more."""
        return self.stack.wait_for(self._is_settled, seconds=seconds)

    def _is_settled(self) -> bool:
        states = [self.stack.api("GET", f"/messages/{message}")["state"] for message in self.messages]
        builds = [self.stack.index_state(repository_id) for repository_id in self.repositories]
        return all(state in TERMINAL for state in states) and all(
            state not in ("queued", "building", "") for state in builds
        )

    def verdict(self) -> dict[str, int]:
        """Zeros, when nothing was lost, done twice or damaged."""
        rows = json.loads(self.stack.manage("shell", "--verbosity", "0", "--command", _COUNT))
        answered = {message: self.stack.api("GET", f"/messages/{message}") for message in self.messages}
        damaged = subprocess.run(
            [sys.executable, "manage.py", "verify_index"],
            cwd=PROJECT,
            env=self.stack.environment,
            capture_output=True,
            check=False,
        )
        stale = 0
        for repository_id, repo in self.repositories.items():
            current = self.stack.api("GET", f"/repositories/{repository_id}/status")["current"]
            stale += current is None or current["commit"] != _git(repo, "rev-parse", "HEAD")
        return {
            "lost messages": len(self.messages) - len(set(rows["messages"]) & set(self.messages)),
            "duplicate messages": rows["message_rows"] - len(set(rows["keys"])),
            "messages without an end": sum(message["state"] not in TERMINAL for message in answered.values()),
            "messages with two ends": rows["two_ends"],
            "jobs without an end": rows["open_jobs"],
            "repositories not at their newest commit": stale,
            "damaged indexes": int(damaged.returncode != 0),
        }


_COUNT = """
import json
from collections import Counter
from assistant.models import AnswerEvent, Message
from indexing.models import Job
ends = AnswerEvent.objects.filter(name__in=["done", "stopped", "error"]).values_list("message_id", "attempt")
print(json.dumps({
    "messages": [str(pk) for pk in Message.objects.values_list("pk", flat=True)],
    "keys": [str(key) for key in Message.objects.values_list("request_id", flat=True)],
    "message_rows": Message.objects.count(),
    "two_ends": sum(number > 1 for number in Counter(ends).values()),
    "open_jobs": Job.objects.filter(state__in=["queued", "running"]).count(),
}))
"""


class Gate:
    """A door in front of a service: while it is shut, connections are cut and refused."""

    def __init__(self, url: str, default_port: int) -> None:
        there = urlsplit(url)
        self._target = (there.hostname or "127.0.0.1", there.port or default_port)
        self.port = free_port()
        user = there.netloc.rpartition("@")[0]
        self.url = there._replace(netloc=f"{user}{'@' if user else ''}127.0.0.1:{self.port}").geturl()
        self._sockets: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), reuse_port=True)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def shut(self) -> None:
        assert self._listener is not None
        for end in (self._listener, *self._sockets):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class World:
    """The product, what it acknowledged, and doors to its services where those are not embedded."""

    def __init__(self, stack: Stack, ledger: Ledger, model: StubServer, gates: dict[str, Gate]) -> None:
        self.stack, self.ledger, self.model, self.gates = stack, ledger, model, gates


@contextmanager
def product(**settings: str) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    database, broker = os.environ.get("TEST_DATABASE_URL", ""), os.environ.get("TEST_BROKER_URL", "")
    gates: dict[str, Gate] = {}
    if database:
        gates["database"] = Gate(database, 5432)
    if broker:
        gates["broker"] = Gate(broker, 5672 if broker.startswith("amqp") else 6379)
    try:
        with serve() as model:
            model.script, model.pause_seconds = [(200, {}, "It is made by adding [1]. " * 8)], 0.05
            gates["model"] = Gate(model.base, 80)
            llm = {"LLM_MODEL": "openai/stub", "LLM_API_BASE": gates["model"].url, "LLM_API_KEY": "none"}
            llm |= {"LLM_PLAN_TIMEOUT_SECONDS": "2", "LLM_RERANK_TIMEOUT_SECONDS": "2", "LLM_TIMEOUT_SECONDS": "10"}
            with Stack(
                folder,
                database_url=gates["database"].url if database else "",
                broker_url=gates["broker"].url if broker else "filesystem://",
                **(llm | settings),
            ) as stack:
                yield World(stack, Ledger(stack), model, gates)
    finally:
        if KEEP in os.environ:
            print(f"what it wrote, and its log: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


Outcome = tuple[dict[str, int], str]

# The scenarios. Each returns the verdict and what is worth a line in the table.


def kills(count: int = 50) -> Outcome:
    """kill -9 of a random process, `count` times, while people ask, add and push."""
    chance = random.Random(7)
    with product() as world:
        stack, ledger = world.stack, world.ledger
        repos = [make_repo(stack.folder, f"r{number}", 30) for number in range(4)]
        for repo in repos:
            ledger.add(repo)
        stopping = threading.Event()

        def ask() -> None:
            while not stopping.wait(0.5):
                ledger.ask()

        def push_now_and_then() -> None:
            for number in itertools.count():
                if stopping.wait(5.0):
                    return
                identity, repo = chance.choice(list(ledger.repositories.items()))
                push(repo, number)
                with suppress(OSError):
                    stack.api("POST", f"/repositories/{identity}/index")

        threads = [threading.Thread(target=work) for work in (ask, ask, ask, push_now_and_then)]
        for thread in threads:
            thread.start()
        for _ in range(count):
            time.sleep(chance.uniform(0.5, 4.0))
            name = chance.choice(["web", "builds", "answers"])
            stack.kill(name)
            stack.start(name)
            if name == "web":  # else it would be killed before it ever served
                stack.wait_for(lambda: stack.status("/healthz") == 200, seconds=120)
        stopping.set()
        for thread in threads:
            thread.join()
        stack.wait_until_ready()
        for identity in ledger.repositories:
            stack.wait_for(lambda identity=identity: stack.api("POST", f"/repositories/{identity}/index") is not None)
        seconds = ledger.settle()
        return ledger.verdict(), (
            f"{count} kills, {len(ledger.messages)} questions acknowledged, {ledger.refused} asked again; "
            f"settled {seconds:.0f} s after the last kill"
        )


def _away(name: str, seconds: float = 60.0) -> Outcome:
    """A service is gone for a minute, in the middle of a build and of answers."""
    with product() as world:
        stack, ledger = world.stack, world.ledger
        ledger.add(make_repo(stack.folder, "first", 20))
        ledger.settle()
        ledger.add(make_repo(stack.folder, "second", 200))
        for _ in range(3):
            ledger.ask()
        world.gates[name].shut()
        ends = time.monotonic() + seconds
        seen: set[int] = set()
        while time.monotonic() < ends:
            seen.add(stack.status("/healthz"))
            if name != "database":
                ledger.ask(seconds=10.0)
            time.sleep(3.0)
        ready = stack.status("/readyz", seconds=20.0)
        world.gates[name].open()
        for _ in range(3):
            ledger.ask()
        settled = ledger.settle()
        text = (
            f"away {seconds:.0f} s; meanwhile /healthz {sorted(seen)}, /readyz {ready}; settled {settled:.0f} s later"
        )
        return ledger.verdict(), text


def database() -> Outcome:
    return _away("database")


def broker() -> Outcome:
    return _away("broker")


def model() -> Outcome:
    return _away("model")


def _with_index_moved(change: Callable[[World, Path], str]) -> Outcome:
    """One indexed repository whose files are tampered with; a question must come back to its hits by itself."""
    with product() as world:
        stack, ledger = world.stack, world.ledger
        repository_id = ledger.add(make_repo(stack.folder, "first", 40))
        ledger.settle()
        before = hits(stack)
        text = change(world, Path(stack.environment["DATA_DIR"]) / "indexes" / str(repository_id))
        begun = time.monotonic()
        stack.wait_for(lambda: hits(stack) == before, seconds=180)
        text += f"; the same hits again after {time.monotonic() - begun:.0f} s"
        ledger.settle()
        return ledger.verdict(), text


def hits(stack: Stack) -> list[tuple[str, int]]:
    found = stack.api("POST", "/search", {"question": "number 7 of first", "limit": 10})["hits"]
    return [(hit["path"], hit["start_line"]) for hit in found]


def notices(stack: Stack) -> list[str]:
    trace = stack.api("POST", "/search", {"question": "number 7 of first", "trace": True})["trace"]
    return [str(notice) for notice in trace["notices"]]


def segment() -> Outcome:
    """Bytes of a published segment are overwritten, and the web process starts afresh."""

    def change(world: World, index: Path) -> str:
        for file in index.rglob("chunks*.npy"):
            file.write_bytes(b"garbage" * 10)
        world.stack.kill("web")
        world.stack.start("web")
        world.stack.wait_until_ready()
        return f"said: {notices(world.stack)[:1]}"

    return _with_index_moved(change)


def no_index_files() -> Outcome:
    """A restore without index files: they are made again from the mirrors by one command."""

    def change(world: World, index: Path) -> str:
        shutil.rmtree(index.parent)
        said = notices(world.stack)[:1]
        return f"said: {said}; " + world.stack.manage("rebuild_index", "--missing").strip()

    return _with_index_moved(change)


def restore() -> Outcome:
    """Backup while it runs, everything wiped, restore, rebuild: the same questions have the same hits."""
    with product() as world:
        stack, ledger = world.stack, world.ledger
        ledger.add(make_repo(stack.folder, "first", 40))
        ledger.settle()
        ledger.ask()
        ledger.settle()
        before = hits(stack)
        scripts = [str(PROJECT / "deploy" / name) for name in ("backup.sh", "restore.sh")]
        backup = str(stack.folder / "backup")
        subprocess.run([scripts[0], backup], env=stack.environment, check=True)
        for name in list(stack.processes):
            stack.stop(name)
        shutil.rmtree(stack.environment["DATA_DIR"])
        stack.empty_database()
        subprocess.run([scripts[1], backup], env=stack.environment, check=True)
        stack.manage("migrate", "--verbosity", "0")
        said = stack.manage("rebuild_index", "--missing").strip()
        for name in ("web", "builds", "answers"):
            stack.start(name)
        stack.wait_until_ready()
        verdict = ledger.verdict() | {"questions with other hits": int(hits(stack) != before)}
        return verdict, f"{len(before)} hits before and after; {said}"


def volume() -> Outcome:
    """The index volume is gone for half a minute and comes back."""

    def change(world: World, index: Path) -> str:
        aside = index.parent.with_name("indexes.away")
        index.parent.rename(aside)
        said = notices(world.stack)[:1]
        time.sleep(30.0)
        shutil.rmtree(index.parent, ignore_errors=True)
        aside.rename(index.parent)
        return f"said: {said}"

    return _with_index_moved(change)


def mirror() -> Outcome:
    """Objects of a mirror are lost; the next build clones it again."""

    def change(world: World, index: Path) -> str:
        for pack in (index.parents[1] / "mirrors").rglob("*.pack"):
            pack.write_bytes(b"garbage")
        repo = next(iter(world.ledger.repositories.values()))
        push(repo, 1)
        world.stack.api("POST", f"/repositories/{index.name}/index")
        world.ledger.settle()
        return "a push after that was indexed"

    return _with_index_moved(change)


def full_disk() -> Outcome:
    """The index volume is a file system of 3 MB that fills up; later it has room. Needs root for the mount."""
    with product() as world:
        stack, ledger = world.stack, world.ledger
        indexes = Path(stack.environment["DATA_DIR"]) / "indexes"
        indexes.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(indexes)], check=True)
        try:
            ledger.add(make_repo(stack.folder, "first", 20))
            ledger.settle()
            before = hits(stack)
            large = ledger.add(make_repo(stack.folder, "large", 3000))
            ledger.settle()
            error = stack.api("GET", f"/repositories/{large}/status")["latest"]["error"]
            kept = hits(stack)
            subprocess.run(["mount", "-o", "remount,size=300m", str(indexes)], check=True)
            stack.api("POST", f"/repositories/{large}/index")
            ledger.settle()
            text = f"said: {error!r}; the other repository answered all the time: {bool(before and kept)}"
            return ledger.verdict(), text
        finally:
            subprocess.run(["umount", "-l", str(indexes)], check=False)


_SHIFTED_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long ahead(void) { const char *text = getenv("CLOCK_AHEAD_SECONDS"); return text ? atol(text) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += ahead();
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
"""


def _shifted_clock(folder: Path) -> str:
    """A library to preload, built with the machine's `cc`. libfaketime breaks sleeps when the clock is behind."""
    library = folder / "clock.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", str(library), "-", "-ldl"]
    subprocess.run(command, input=_SHIFTED_CLOCK.encode(), check=True)
    return str(library)


def clock() -> Outcome:
    """A worker whose clock is an hour ahead takes a build and is killed; the others have the right time."""
    with product() as world:
        stack, ledger = world.stack, world.ledger
        library = _shifted_clock(stack.folder)
        stack.stop("builds")
        stack.start("builds", LD_PRELOAD=library, CLOCK_AHEAD_SECONDS="3600")
        repository_id = ledger.add(make_repo(stack.folder, "first", 300))
        stack.wait_for(lambda: stack.index_state(repository_id) == "building", seconds=120)
        stack.kill("builds")
        stack.start("builds", LD_PRELOAD=library, CLOCK_AHEAD_SECONDS="-3600")
        settled = ledger.settle()
        return ledger.verdict(), f"one worker an hour ahead, the next an hour behind; settled {settled:.0f} s later"


def milvus() -> Outcome:
    """The Milvus server is killed while searches ask it, and started again. Needs `make milvus`."""
    port = free_port()
    with product(VECTOR_BACKEND="milvus", MILVUS_URL=f"http://127.0.0.1:{port}") as world:
        stack, ledger = world.stack, world.ledger
        with MilvusProcess(stack.folder, port) as server:
            ledger.add(make_repo(stack.folder, "first", 40))
            ledger.settle()
            stack.wait_for(lambda: not notices(stack), seconds=120)  # filled by a scheduler, if not by the build
            before = hits(stack)
            server.kill()
            begun = time.monotonic()
            said, meanwhile = notices(stack), hits(stack)
            took = time.monotonic() - begun
            server.start()
            seconds = stack.wait_for(lambda: not notices(stack) and hits(stack) == before, seconds=180)
        wrong = {"searches without a notice": int(not said), "searches without hits": int(not meanwhile)}
        text = f"two searches in {took:.1f} s by words said {said[:1]}; the same hits again after {seconds:.0f} s"
        return ledger.verdict() | wrong, text


def two_schedulers() -> Outcome:
    """Two more schedulers beside the worker's own, while sources move on."""
    with product(REFRESH_MINUTES="1") as world:
        stack, ledger = world.stack, world.ledger
        repos = [make_repo(stack.folder, f"r{number}", 5) for number in range(3)]
        for repo in repos:
            ledger.add(repo)
        ledger.settle()
        for name in ("schedule.1", "schedule.2"):
            stack.start(name)
        for repo in repos:
            push(repo, 1)
        stack.wait_for(lambda: not ledger.verdict()["repositories not at their newest commit"], seconds=240)
        time.sleep(70.0)
        count = "from indexing.models import Index; print(Index.objects.count())"
        builds = int(stack.manage("shell", "--verbosity", "0", "--command", count))
        return ledger.verdict() | {
            "builds too many": builds - 2 * len(repos)
        }, f"{builds} builds for 3 adds and 3 pushes"


SCENARIOS: dict[str, Callable[[], Outcome]] = {
    scenario.__name__: scenario
    for scenario in (
        *(kills, database, broker, model, segment, no_index_files, restore, volume, mirror, full_disk, clock),
        *(two_schedulers, milvus),
    )
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SCENARIOS, []], help="default: all")
    parser.add_argument("--kills", type=int, default=50, metavar="N", help="how many there are in `kills` (50)")
    options = parser.parse_args()
    scenarios = SCENARIOS | {"kills": lambda: kills(options.kills)}
    bad = 0
    for name in options.names or scenarios:
        if name in ("database", "broker") and not os.environ.get(f"TEST_{name.upper()}_URL"):
            print(f"{name}: left out, it is embedded", flush=True)
            continue
        if name == "milvus" and not milvus_is_installed():
            print(f"{name}: left out, its server is not installed (make milvus)", flush=True)
            continue
        verdict, text = scenarios[name]()
        wrong = {what: number for what, number in verdict.items() if number}
        bad += bool(wrong)
        print(f"{name}: {wrong or 'ok'}. {text}", flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
