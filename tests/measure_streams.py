"""What this program adds to a model's first token while many answers stream from one web process.

`python -m tests.measure_streams [STREAMS] [DATABASE_URL]` starts uvicorn and a scripted model, each a process of its
own, asks STREAMS questions within 10 s, and prints how late the model's first token reached its reader, beside
the same number of streams read from the model itself, in the same run. Once they have all begun, questions one after
another: from asking to the first token, without the model's own time. Every answer must be complete. What each of the
three processes used of the CPU says whether a figure is this program's, or that of its readers here.

Without a DATABASE_URL it is SQLite; for PostgreSQL name an empty database. Not a test: it says how it is here.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

import django
import httpx

from tests.load import cpu_seconds

PROJECT = Path(__file__).resolve().parents[1]
FIRST_TOKEN_SECONDS = 0.5
WORDS, WORD_SECONDS = 100, 0.2  # an answer streams for 20 s, so that all do at once
ASKED_WITHIN_SECONDS = 10.0
LATER_QUESTIONS = 8
MOST_SECONDS = 240.0  # for all answers
SENT = re.compile(r"<(\d{16,})>")  # the model's first word says when it was sent
QUESTION = {"question": "How is an order cancelled?"}


async def model(port: int) -> None:
    """An OpenAI-compatible server: plans and rankings at once, answers word by word."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(re.search(rb"content-length: (\d+)", head.lower()).group(1))
                request = json.loads(await reader.readexactly(length))
                await (_stream if request.get("stream") else _whole)(writer, request)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, backlog=1024)
    async with server:
        await server.serve_forever()


async def _whole(writer: asyncio.StreamWriter, request: dict) -> None:
    reply = '{"english_query": "cancel order", "ranking": []}'
    choice = {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
    body = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "stub", "choices": [choice]})
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
    writer.write(f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    await writer.drain()


async def _stream(writer: asyncio.StreamWriter, request: dict) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    await writer.drain()
    await asyncio.sleep(FIRST_TOKEN_SECONDS)
    for number in range(WORDS):
        await _send(writer, f"<{time.time_ns()}> " if number == 0 else f"word{number} ", None)
        await asyncio.sleep(WORD_SECONDS)
    await _send(writer, "[1].", "stop")
    writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    await writer.drain()


async def _send(writer: asyncio.StreamWriter, text: str, reason: str | None) -> None:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason}
    event = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [choice]}
    data = f"data: {json.dumps(event)}\n\n"
    writer.write(f"{len(data):x}\r\n{data}\r\n".encode())
    await writer.drain()


class Reading:
    """One stream: when its first token was sent and came, and whether it was read to its end."""

    def __init__(self, client: httpx.AsyncClient, url: str, body: dict, last: str) -> None:
        self.asked = time.time_ns()
        self.sent = self.came = 0
        self.complete = False
        self.begun = asyncio.Event()
        self.task = asyncio.create_task(self._read(client, url, body, last))

    async def _read(self, client: httpx.AsyncClient, url: str, body: dict, last: str) -> None:
        try:
            async with client.stream("POST", url, json=body) as response:
                async for line in response.aiter_lines():
                    if not self.sent and (found := SENT.search(line)):
                        self.sent, self.came = int(found.group(1)), time.time_ns()
                        self.begun.set()
                    self.complete = self.complete or last in line
        finally:
            self.begun.set()  # an answer without the model's words is over all the same

    @property
    def late(self) -> float:
        return (self.came - self.sent) / 1e6

    @property
    def added(self) -> float:
        return (self.came - self.asked) / 1e6 - 1000 * FIRST_TOKEN_SECONDS


async def read_together(client: httpx.AsyncClient, url: str, body: dict, last: str, streams: int) -> list[Reading]:
    readings = []
    for _ in range(streams):
        readings.append(Reading(client, url, body, last))
        await asyncio.sleep(ASKED_WITHIN_SECONDS / streams)
    return readings


async def measure(web: str, stub: str, token: str, streams: int, pids: dict[str, int]) -> bool:
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    ask = (f"{web}/api/v1/ask", QUESTION, "event: answer")
    later: list[Reading] = []
    streaming, seconds = 0, MOST_SECONDS
    async with httpx.AsyncClient(timeout=600, limits=limits, headers=headers) as client:
        await client.post(ask[0], json=QUESTION)  # loads litellm and the embedding model
        direct = await read_together(client, stub, {"stream": True}, "[DONE]", streams)
        await asyncio.gather(*(one.task for one in direct))
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        together = await read_together(client, *ask, streams)
        all_asked = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS):
                await asyncio.gather(*(one.begun.wait() for one in together))
                streaming = sum(not one.task.done() for one in together)
                for _ in range(LATER_QUESTIONS):
                    later.append(Reading(client, *ask))
                    await later[-1].begun.wait()
                await asyncio.gather(*(one.task for one in together))
                seconds = time.monotonic() - all_asked
                await asyncio.gather(*(one.task for one in later))
    used = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    _print("read from the model itself, late", [one.late for one in direct])
    _print("read through this program, late", [one.late for one in together if one.sent])
    _print("asked together, from asking", [one.added for one in together if one.sent])
    _print(f"asked while {streaming} stream, late", [one.late for one in later if one.sent])
    _print(f"asked while {streaming} stream, from asking", [one.added for one in later if one.sent])
    print("CPU:", ", ".join(f"{name} {cpu:.1f} s" for name, cpu in used.items()))
    complete, asked = sum(one.complete for one in [*together, *later]), streams + LATER_QUESTIONS
    print(f"{complete} of {asked} answers complete; those asked together {seconds:.0f} s after the last was asked")
    return complete == asked


def _print(name: str, milliseconds: list[float]) -> None:
    if len(milliseconds) > 1:
        print(f"{name:40} p50 {median(milliseconds):7.1f} ms  p95 {quantiles(milliseconds, n=20)[-1]:7.1f} ms")


SETUP = """
from django.contrib.auth.models import User
from assistant import tokens
print("token:" + tokens.create(User.objects.create_superuser("reader"), "measure", scopes=["search", "ask"])[1])
"""


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> int:
    if sys.argv[1] == "model":
        asyncio.run(model(int(sys.argv[2])))
        return 0
    streams, database = int(sys.argv[1]), (sys.argv[2:] or [""])[0]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    with tempfile.TemporaryDirectory() as folder:
        web, stub = _free_port(), _free_port()
        environment = os.environ | {
            "DJANGO_SETTINGS_MODULE": "assistant.settings",
            "ENV_FILE": os.devnull,
            "DATA_DIR": f"{folder}/data",
            "DATABASE_URL": database,
            "LOCAL_REPOSITORY_ROOTS": folder,
            "LLM_MODEL": "openai/stub",
            "LLM_API_BASE": f"http://127.0.0.1:{stub}/v1",
            "LLM_API_KEY": "none",
            "API_REQUESTS_PER_MINUTE": "100000",
            "LOG_LEVEL": "WARNING",
        }
        from tests.factories import make_repo

        code = "def cancel_order(order):\n    '''Cancel an order.'''\n    order.state = 'cancelled'\n    return order\n"
        repository = make_repo(Path(folder), {f"shop/orders_{n}.py": code.replace("'c", f"'{n} c") for n in range(20)})
        manage = [sys.executable, "manage.py"]
        for arguments in (["migrate", "-v0"], ["index_repository", str(repository)]):
            subprocess.run([*manage, *arguments], cwd=PROJECT, env=environment, check=True, stdout=subprocess.DEVNULL)
        made = subprocess.run(
            [*manage, "shell", "-v0", "-c", SETUP], cwd=PROJECT, env=environment, check=True, stdout=subprocess.PIPE
        )
        token = made.stdout.decode().split("token:")[1].strip()
        server = ["uvicorn", "assistant.asgi:application", "--port", str(web), "--log-level", "warning"]
        commands = [["-m", "tests.measure_streams", "model", str(stub)], ["-m", *server]]
        processes = [subprocess.Popen([sys.executable, *command], cwd=PROJECT, env=environment) for command in commands]
        try:
            _wait_until_healthy(f"http://127.0.0.1:{web}/healthz")
            urls = (f"http://127.0.0.1:{web}", f"http://127.0.0.1:{stub}/v1/chat/completions")
            pids = {"readers": os.getpid()} | {
                name: one.pid for name, one in zip(("model", "web"), processes, strict=True)
            }
            return 0 if asyncio.run(measure(*urls, token, streams, pids)) else 1
        finally:
            for process in processes:
                process.terminate()
                process.wait()


def _wait_until_healthy(url: str) -> None:
    for _ in range(600):
        try:
            if httpx.get(url, timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit("the server did not become healthy")


if __name__ == "__main__":
    sys.exit(main())
