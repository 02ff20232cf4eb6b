"""`python -m indexing.probing PATH < FILE`: parse one file as a build does, in a process that may die of it.

The exit status is 0 when the file was parsed, and not negative when it was refused in an orderly way. Writes nothing.
"""

from __future__ import annotations

import os
import sys

import django


def main(path: bytes, raw: bytes) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")
    django.setup()
    from indexing.collecting import prepare
    from indexing.context import embedded_texts, file_text
    from indexing.walking import SkippedEntry, source_of

    source = source_of(path, "", raw)
    if isinstance(source, SkippedEntry):
        return
    chunked, _ = prepare(source)
    embedded_texts(source, chunked, count_tokens=lambda text: len(text) // 3, max_tokens=256)
    file_text(source, chunked)


if __name__ == "__main__":
    main(os.fsencode(sys.argv[1]), sys.stdin.buffer.read())
