"""A tiny OpenAI-compatible server on loopback, scripted to answer as real providers do when things go wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class StubServer:
    """`script` holds (status, headers, text) per request, the last one again and again; `requests` what came in.

    `text` is the model's reply; "HANG" keeps the client waiting for `hang_seconds`, "DRIP" as well but busy. A
    streamed reply is sent word by word, `pause_seconds` apart; the word "CUT" ends the connection there, "HANG"
    or "WAIT" holds the rest back until `go_on` is set, "ERROR:a_b" tells the error "a b" in place of a part.
    """

    def __init__(self, base: str) -> None:
        self.base = base
        self.script: list[tuple[int, dict[str, str], str]] = [(200, {}, "Hello there.")]
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.pause_seconds = 0.0
        self.hang_seconds = 6.0
        self.finish_reason = "stop"
        self.go_on = threading.Event()
        self.disconnected = threading.Event()

    def next(self) -> tuple[int, dict[str, str], str]:
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]


class _Handler(BaseHTTPRequestHandler):
    stub: StubServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.stub.requests.append(request)
        self.stub.keys.append(self.headers.get("Authorization", ""))
        status, headers, text = self.stub.next()
        try:
            if status != 200:
                self._send(status, headers, {"error": {"message": f"no: {self.headers['Authorization']}", "type": "x"}})
            elif request.get("stream"):
                self._stream(text)
            else:
                if text == "HANG":
                    self.stub.go_on.wait(self.stub.hang_seconds)
                if text == "DRIP":
                    self._drip()
                self._send(200, headers, _whole(text))
        except OSError:
            self.stub.disconnected.set()

    def _send(self, status: int, headers: dict[str, str], value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for name, content in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(body)

    def _drip(self) -> None:
        """A space at a time, so that no single read of the client takes long."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        for _ in range(int(self.stub.hang_seconds / 0.1)):
            self.wfile.write(b" ")
            self.wfile.flush()
            time.sleep(0.1)

    def _stream(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for word in text.split(" "):
            if word == "CUT":
                return
            if word.startswith("ERROR:"):
                self._event({"error": {"message": word.removeprefix("ERROR:").replace("_", " ")}})
                return
            if word in ("HANG", "WAIT"):
                self.stub.go_on.wait(self.stub.hang_seconds)
            time.sleep(self.stub.pause_seconds)
            self._event({"choices": [{"index": 0, "delta": {"content": word + " "}, "finish_reason": None}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": self.stub.finish_reason}]})
        self._event({"choices": [], "usage": {"prompt_tokens": 21, "completion_tokens": 5, "total_tokens": 26}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: dict[str, Any]) -> None:
        base = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "stub"}
        self.wfile.write(f"data: {json.dumps(base | value)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        pass


def _whole(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 21, "completion_tokens": 5, "total_tokens": 26}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "stub", "choices": [choice], "usage": usage}


@contextmanager
def serve() -> Iterator[StubServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    stub = StubServer(f"http://127.0.0.1:{server.server_port}/v1")
    server.RequestHandlerClass = type("Handler", (_Handler,), {"stub": stub})
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield stub
    finally:
        stub.go_on.set()
        server.shutdown()
        server.server_close()
