"""Source files -> the same code in other encodings and with other line ends, with text that needs them."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from pathlib import PurePosixPath

COMMENTS = {
    **dict.fromkeys((".py", ".rb", ".sh", ".bash", ".ex", ".exs"), "#"),
    **dict.fromkeys(
        (".js", ".ts", ".go", ".rs", ".swift", ".kt", ".scala", ".cs", ".cpp", ".hpp", ".php", ".zig"), "//"
    ),
}
# name -> encoding, byte order mark, line end, words
KINDS = {
    "multibyte": ("utf-8", b"", "\n", "Größe 日本語 🙂 размер"),
    "crlf": ("utf-8", b"", "\r\n", "Größe 日本語 🙂 размер"),
    "bom": ("utf-8", codecs.BOM_UTF8, "\r\n", "Größe 日本語 🙂"),
    "utf16le": ("utf-16-le", codecs.BOM_UTF16_LE, "\n", "Größe 日本語 🙂"),
    "utf16be": ("utf-16-be", codecs.BOM_UTF16_BE, "\r\n", "Größe 日本語 🙂"),
    "cp1251": ("cp1251", b"", "\r\n", "Здесь считается размер заказа и его стоимость"),
    "shiftjis": ("shift_jis", b"", "\n", "ここで注文の金額を計算してから返します"),
}
EVERY = 4  # lines


def re_encoded(files: Mapping[str, str]) -> dict[str, bytes]:
    """Each file in each of KINDS, in a folder of that name; left out where its text does not fit the encoding."""
    found = {}
    for path, text in files.items():
        comment = COMMENTS[PurePosixPath(path).suffix]
        for kind, (encoding, mark, line_end, words) in KINDS.items():
            lines = text.split("\n")
            lines[::EVERY] = [f"{line}  {comment} {words}" if line.strip() else line for line in lines[::EVERY]]
            try:
                found[f"{kind}/{path}"] = mark + line_end.join([f"{comment} {words}", *lines]).encode(encoding)
            except UnicodeEncodeError:
                continue
    return found
