"""A pasted stack trace -> its frames and what went wrong: paths and names that say where to look.

Pure text work over Python, Java and Kotlin, JavaScript and TypeScript, Go, Rust and .NET. Paths come as they are
written, from any machine; only their last segments can be compared with a repository.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

MAX_FRAMES = 12  # nearest to the error; the others are the framework's
MAX_LINE_CHARS = 500
MAX_MESSAGE_CHARS = 300

_PYTHON = re.compile(r'^\s*File "(?P<path>[^"]+)", line (?P<line>\d+)(?:, in (?P<symbol>\S+))?')
_DOTNET = re.compile(r"^\s*at (?P<symbol>[\w.`<>\[\]|+]+)\(.*\) in (?P<path>.+):line (?P<line>\d+)\s*$")
_JAVA = re.compile(r"^\s*at (?:[\w.@-]+//?)?(?P<symbol>[\w.$<>]+)\((?P<path>[\w$-]+\.\w+):(?P<line>\d+)\)")
_JAVASCRIPT = re.compile(
    r"^\s*at (?:async )?(?:(?:new )?(?P<symbol>[\w.$<>]+)(?: \[as [^\]]+\])? \()?"
    r"(?:file://|webpack://|https?://[^/\s]+)?(?P<path>[^\s():][^()\s]*?):(?P<line>\d+):\d+\)?\s*$"
)
_FIREFOX = re.compile(r"^(?P<symbol>[\w.$]*)@(?:file://|https?://[^/\s]+)?(?P<path>[^\s@]+?):(?P<line>\d+):\d+$")
_PLACE = re.compile(r"^\s+(?:at )?(?P<path>\S+\.(?:go|rs)):(?P<line>\d+)(?::\d+)?(?: \+0x[0-9a-f]+)?\s*$")
_CALL_ABOVE = re.compile(r"^\s*(?:\d+:\s+(?:0x[0-9a-f]+ - )?)?(?P<symbol>[\w./:*()<>{}-]+?)(?:\([^()]*\))?\s*$")
_RUST_PANIC = re.compile(r"panicked at (?:'.*', )?(?P<path>\S+\.rs):(?P<line>\d+)")
_PATTERNS = (_PYTHON, _DOTNET, _JAVA, _JAVASCRIPT, _FIREFOX)

# A text box of one line drops the line ends of what is pasted, and leaves the indentation.
_INDENTATION = re.compile(r'\s{1,8}(?=File "[^"]{1,300}", line \d|at (?:async )?[^\s]{1,300}(?: \[as| \(|\(|:\d))')

_MESSAGE = re.compile(
    r"^(?:Caused by: |Exception in thread \"[^\"]*\" |Unhandled exception\. |Uncaught |panic: )?"
    r"(?:[\w.$]*(?:Error|Exception|Warning|Panic)\b.*|(?<=panic: ).*)$"
)


@dataclass(frozen=True, slots=True)
class Frame:
    path: str  # with /, as written
    line: int
    symbol: str  # the function's own name, without package and class; empty when it has none


@dataclass(frozen=True, slots=True)
class StackTrace:
    """`frames` begin where the error was raised."""

    frames: tuple[Frame, ...]
    message: str

    @property
    def query(self) -> str:
        """Words to search with: the message, then the names and files of the frames."""
        names = [f"{frame.symbol}()" for frame in self.frames if frame.symbol]
        files = [frame.path.rsplit("/", 1)[-1] for frame in self.frames]
        return " ".join(dict.fromkeys(part for part in (self.message, *names[:4], *files[:4]) if part))


def read_stack_trace(text: str) -> StackTrace | None:
    """None when the text has no frame."""
    text = text if "\n" in text else _INDENTATION.sub("\n", text)
    lines = [line[:MAX_LINE_CHARS] for line in text.splitlines()]
    found = [frame for above, line in pairwise(["", *lines]) if (frame := _frame(line, above)) is not None]
    if not found:
        return None
    if any(_PYTHON.match(line) for line in lines):
        found.reverse()  # the most recent call comes last
    messages = [line.strip() for line in lines if _MESSAGE.match(line.strip())]
    return StackTrace(tuple(dict.fromkeys(found))[:MAX_FRAMES], messages[-1][:MAX_MESSAGE_CHARS] if messages else "")


def _frame(line: str, above: str) -> Frame | None:
    if match := _PLACE.match(line):
        call = _CALL_ABOVE.match(above)
        return _made(match["path"], match["line"], call["symbol"] if call else "")
    for pattern in _PATTERNS:
        if match := pattern.match(line):
            return _made(match["path"], match["line"], match["symbol"] or "", is_java=pattern is _JAVA)
    if match := _RUST_PANIC.search(line):
        return _made(match["path"], match["line"], "")
    return None


def _made(path: str, line: str, symbol: str, *, is_java: bool = False) -> Frame:
    if is_java:  # the package is the folder
        package = symbol.split(".")[:-2]
        path = "/".join([*package, path])
    return Frame(path.replace("\\", "/").removeprefix("./"), int(line), _own_name(symbol))


def _own_name(symbol: str) -> str:
    """`main.(*Server).Serve`, `app::run::{{closure}}`, `Foo.<init>` -> Serve, run, Foo."""
    parts = [part for part in re.split(r"[.:/#]+", symbol) if re.fullmatch(r"[A-Za-z_$][\w$]*", part)]
    return parts[-1] if parts and parts[-1] != "module" else ""
