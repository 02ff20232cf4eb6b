"""Web, workers, database and broker as separate processes, on the services that TEST_DATABASE_URL and
TEST_BROKER_URL name: what is acknowledged is done once, whoever dies in between, and streams hold no connection.
"""

from __future__ import annotations

import shutil
import threading
import time
import urllib.request
from collections.abc import Iterator

import pytest

from assistant import answering
from tests.factories import commit_files, make_repo
from tests.stack import Stack, chosen_services, nginx
from tests.stub_llm_server import StubServer, serve

pytestmark = pytest.mark.services

POOL = 3
STREAMS = 30
WORDS = "A session is signed with the secret key [1]. " * 20


@pytest.fixture(scope="module")
def model() -> Iterator[StubServer]:
    with serve() as stub:
        yield stub


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, model: StubServer) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    settings = {"LLM_MODEL": "openai/stub", "LLM_API_BASE": model.base, "LLM_API_KEY": "none"}
    # Plans and ranks of the scripted model say nothing: nobody waits for them longer than this.
    settings |= {"LLM_PLAN_TIMEOUT_SECONDS": "1", "LLM_RERANK_TIMEOUT_SECONDS": "1"}
    with chosen_services(folder, DATABASE_POOL_SIZE=str(POOL), **settings) as stack:
        yield stack


@pytest.fixture(scope="module")
def repository(stack: Stack) -> int:
    source = make_repo(stack.folder, {"sessions.py": "def sign(session):\n    return secret_key + session\n"})
    repository_id = stack.add_repository(source)
    stack.wait_until_indexed(repository_id)
    return repository_id


def test_it_indexes_by_a_worker_and_answers(stack: Stack, repository: int) -> None:
    hits = stack.api("POST", "/search", {"question": "how is a session signed?"})["hits"]
    assert hits[0]["path"] == "sessions.py"
    assert stack.api("POST", "/ask", {"question": "How is a session signed?"})["state"] == "done"


def test_it_goes_on_with_a_build_whose_worker_was_killed(stack: Stack) -> None:
    files = {f"m{n}.py": f'def function_{n}():\n    """Number {n}."""\n    return {n}\n' for n in range(150)}
    source = make_repo(stack.folder, files, name="large")
    repository_id = stack.add_repository(source)
    stack.wait_for(lambda: stack.index_state(repository_id) == "building")
    stack.kill("builds")
    stack.start("builds")
    stack.wait_until_indexed(repository_id)
    latest = stack.api("GET", f"/repositories/{repository_id}/status")["latest"]
    assert latest["status"] == "ready"
    commit_files(source, {"late.py": "def late():\n    return 'late'\n"})
    stack.api("POST", f"/repositories/{repository_id}/index")
    stack.wait_for(lambda: stack.index_state(repository_id) == "ready")
    assert stack.api("POST", "/search", {"question": "late"})["hits"][0]["path"] == "late.py"


def test_it_serves_many_streams_with_few_connections(stack: Stack, model: StubServer, repository: int) -> None:
    model.script, model.pause_seconds = [(200, {}, WORDS)], 0.05
    ended: list[str] = []

    def follow() -> None:
        headers = {"Accept": "text/event-stream"}
        with stack.open("POST", "/ask", {"question": "How is a session signed?"}, headers=headers) as response:
            events = [line.split()[1] for line in response if line.startswith(b"event:")]
            ended.append(events[-2].decode())

    threads = [threading.Thread(target=follow) for _ in range(STREAMS)]
    for thread in threads:
        thread.start()
    stack.wait_for(lambda: "assistant_open_streams 30.0" in _metrics(stack))
    assert min(_seconds_of_healthz(stack) for _ in range(3)) < 1.0
    for thread in threads:
        thread.join(60)
    assert ended == ["done"] * STREAMS


@pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is not installed")
def test_it_streams_through_nginx_without_holding_anything_back(
    stack: Stack, model: StubServer, repository: int
) -> None:
    model.script, model.pause_seconds = [(200, {}, "Signed [1]. WAIT and done.")], 0.2
    model.go_on.clear()
    model.hang_seconds = 3.0
    seen: list[tuple[float, bytes]] = []
    headers = {"Accept": "text/event-stream"}
    with nginx(stack) as url, stack.at(url).open("POST", "/ask", {"question": "Signed?"}, headers=headers) as response:
        for line in response:
            if line.startswith(b"event:"):
                seen.append((time.monotonic(), line.split()[1]))
        assert response.headers["X-Request-ID"]
    first_text = next(at for at, name in seen if name == b"text")
    done = next(at for at, name in seen if name == b"done")
    assert done - first_text > 2.0  # the beginning was there while the model still wrote
    assert answering.HEARTBEAT_SECONDS <= 15


def _metrics(stack: Stack) -> str:
    with urllib.request.urlopen(f"{stack.url}/metrics", timeout=30) as response:
        return str(response.read().decode())


def _seconds_of_healthz(stack: Stack) -> float:
    begun = time.monotonic()
    assert stack.status("/healthz", seconds=30) == 200
    return time.monotonic() - begun


def test_it_hands_its_build_back_when_it_is_asked_to_end(stack: Stack) -> None:
    files = {f"n{n}.py": f'def other_{n}():\n    """Number {n}."""\n    return {n}\n' for n in range(150)}
    repository_id = stack.add_repository(make_repo(stack.folder, files, name="drained"))
    stack.wait_for(lambda: stack.index_state(repository_id) == "building")
    time.sleep(0.5)  # past Git, which is asked to end with its worker: such a build fails and has to be asked for again
    assert stack.stop("builds") == 0
    stack.start("builds")
    stack.wait_until_indexed(repository_id)
