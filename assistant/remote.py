#!/usr/bin/env python3
"""Search and ask on another machine's server, from a terminal: one file, Python 3.9 or newer, nothing to install.

    export CODEBASE_SERVER=https://code.example.org CODEBASE_TOKEN=cba_...
    python3 codebase.py ask "How are sessions signed?" --repo pallets/flask
    python3 codebase.py search "signed cookie" --limit 5 --json

The server gives this file away at `/cli/codebase.py`; in a checkout it is `python -m assistant.remote`. It talks to the
JSON API, so the token needs the scopes `read` and `ask`. Exit status: 0 ok, 1 failed, 2 wrong use.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

FAILED, WRONG_USE = 1, 2
TIMEOUT_SECONDS = 120  # without a sign of life; the server sends one every ten seconds
RESUMES = 5  # of a stream that broke
WAIT_SECONDS = 1.0  # before the first; twice as long before each other one, so that a server may start again meanwhile
OTHER_SERVER = "The reply is none of the API. Is this the address of the server itself?"
MODES = ("explain", "how-to", "fix", "diagram")

Json = dict[str, Any]  # Any: JSON


class Failed(Exception):
    """Its text is for the person; the status is the program's."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


class Unreachable(Failed):
    """Nobody listens there, at the moment at least."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        server = _Server(options.server, options.token)
        return int(options.run(server, options))
    except Failed as error:
        print(error, file=sys.stderr)
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


class _Server:
    """The API below one address, with a token."""

    def __init__(self, address: str, token: str) -> None:
        if not address or not token:
            raise Failed("Set CODEBASE_SERVER and CODEBASE_TOKEN, or use --server and --token.", WRONG_USE)
        if not address.startswith(("http://", "https://")):
            raise Failed(f"The server is an address such as https://code.example.org, not {address!r}.", WRONG_USE)
        self._base = address.rstrip("/") + "/api/v1"
        self._token = token

    def post(self, path: str, body: Json) -> Json:
        try:
            with self._open("POST", path, body, {}) as reply:
                return _object(reply.read())
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"The connection broke ({type(error).__name__}).") from error
        except ValueError:
            raise Failed(OTHER_SERVER) from None

    def events(self, path: str, body: Json) -> Iterator[Json]:
        """The lines of a stream up to the whole answer, resumed where it broke."""
        headers = {"Accept": "application/jsonl", "Idempotency-Key": str(uuid.uuid4())}
        request: tuple[str, str, Json | None] = ("POST", path, body)
        sequence, name = 0, ""
        for attempt in range(RESUMES + 1):
            try:
                with self._open(*request, headers) as reply:
                    for event in _lines(reply):
                        sequence, name = event["sequence"], event["event"]
                        if name == "message":
                            path = f"/messages/{event['data']['message_id']}/events"
                        yield event
            except Unreachable:
                if attempt in (0, RESUMES):
                    raise
            except (OSError, http.client.HTTPException, ValueError) as error:
                if attempt == RESUMES:
                    raise Failed(f"The connection broke ({type(error).__name__}); the answer goes on there.") from error
            if name in ("answer", "error"):
                return
            if path.startswith("/messages/"):
                request = ("GET", f"{path}?after={sequence}", None)
            time.sleep(WAIT_SECONDS * 2**attempt)

    def _open(self, method: str, path: str, body: Json | None, headers: dict[str, str]) -> Any:  # Any: a response
        request = urllib.request.Request(  # noqa: S310  # the address was checked
            self._base + path,
            data=json.dumps(body).encode() if body is not None else None,
            method=method,
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token}", **headers},
        )
        try:
            return _opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            raise _refused(error) from None
        except urllib.error.URLError as error:
            raise Unreachable(f"The server cannot be reached: {error.reason}.") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another address."""

    def redirect_request(self, *_arguments: Any) -> None:  # Any: urllib's
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def ask(server: _Server, options: argparse.Namespace) -> int:
    body = {"question": options.question, "repositories": options.repo, "mode": options.mode}
    if options.conversation:
        body["conversation_id"] = options.conversation
    answer: Json = {}
    failure = ""
    for event in server.events("/ask", body):
        name, data = event["event"], event["data"]
        if name == "text" and not options.json:
            print(printable(data["text"]), end="", flush=True)
        elif name == "error":
            failure = printable(data["text"])
        elif name == "answer":
            answer = data
    if options.json and answer:
        print(json.dumps(answer, ensure_ascii=False, indent=2))
    elif answer:
        _print_sources(answer)
    if failure or not answer:
        raise Failed(failure or "The answer broke off.")
    return 0


def search(server: _Server, options: argparse.Namespace) -> int:
    body = {
        "question": options.question,
        "repositories": options.repo,
        "path": options.path,
        "limit": options.limit,
        "snippets": options.code,
    }
    found = server.post("/search", body)
    if options.json:
        print(json.dumps(found, ensure_ascii=False, indent=2))
        return 0
    for hit in found["hits"]:
        print(printable(f"{hit['repository']} {hit['path']}:{hit['start_line']}-{hit['end_line']} {hit['symbol']}"))
        if hit["snippet"]:
            print(printable("    " + hit["snippet"].rstrip().replace("\n", "\n    ")) + "\n")
    for notice in found["notices"]:
        print(printable(notice), file=sys.stderr)
    return 0


def printable(text: str) -> str:
    """Without what a terminal would obey: names and code come from repositories."""
    return "".join(character if character in "\n\t" or character.isprintable() else "\ufffd" for character in text)


def _print_sources(answer: Json) -> None:
    print("\n")
    for item in answer["citations"]:
        if item["path"] and (item["cited"] or not answer["answered_by"]):
            place = f"{item['repository']} {item['path']}:{item['start_line']}-{item['end_line']}"
            print(printable(f"[{item['number']}] {place}  {item['url'] or ''}"))
    print(f"conversation {answer['conversation_id']}")
    for notice in answer["notices"]:
        print(printable(notice), file=sys.stderr)


def _refused(error: urllib.error.HTTPError) -> Failed:
    """What the server says, which names the way out; else its status."""
    try:
        said = json.loads(error.read(100_000))["error"]["message"]
    except (ValueError, KeyError, TypeError, OSError):
        said = "Is this the address of the server itself?"
    if error.code == 429 and (seconds := error.headers.get("Retry-After", "")):
        said = f"{said} Try again in {seconds} s."
    return Failed(printable(f"{error.code}: {said}"), WRONG_USE if error.code in (404, 422) else FAILED)


def _lines(reply: Iterable[bytes]) -> Iterator[Json]:
    """Empty lines are signs of life."""
    return (_object(line) for line in reply if line.strip())


def _object(line: bytes) -> Json:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise Failed(OTHER_SERVER)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="codebase", description="Search and ask about your organisation's code.")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("question")
    shared.add_argument("--repo", action="append", default=[], metavar="NAME", help="only this one; repeat for more")
    shared.add_argument("--json", action="store_true", help="one JSON document, as the API has it")
    shared.add_argument("--server", default=os.environ.get("CODEBASE_SERVER", ""), help="or CODEBASE_SERVER")
    shared.add_argument(
        "--token", default=os.environ.get("CODEBASE_TOKEN", ""), help="or CODEBASE_TOKEN, which is safer"
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    asking = commands.add_parser("ask", parents=[shared], help="an answer with its sources, as it is written")
    asking.add_argument("--mode", choices=MODES, default="explain")
    asking.add_argument("--conversation", default="", metavar="ID", help="follow up in this one")
    asking.set_defaults(run=ask)
    searching = commands.add_parser("search", parents=[shared], help="ranked places in the code")
    searching.add_argument("--path", default="", help="prefer this folder")
    searching.add_argument("--limit", type=int, default=10)
    searching.add_argument("--code", action="store_true", help="with the text of each place")
    searching.set_defaults(run=search)
    return parser


if __name__ == "__main__":
    sys.exit(main())
