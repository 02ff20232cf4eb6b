"""`python -m indexing.segmenting`: write segments of ranges of a tree, for the build that started this process.

In: pickles on standard input, first the tree and a folder for notes, then (position, files) of a range at a time. Out:
for each range a pickled `Done` on standard output. It ends with its input, or of what a file does to its parser;
the build sees that and goes on alone. Publishes nothing.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import IO, TYPE_CHECKING

import django

if TYPE_CHECKING:
    from indexing.collecting_beside import Done, Tree
    from indexing.git import TreeEntry
    from indexing.suspects import Suspects


def main(requests: IO[bytes], answers: IO[bytes]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")
    django.setup()
    from indexing.suspects import Suspects

    tree, folder = pickle.load(requests)  # noqa: S301 (from the process that started this one)
    with Suspects(folder) as suspects:
        while True:
            try:
                position, entries = pickle.load(requests)  # noqa: S301
            except EOFError:
                return
            pickle.dump(_done(tree, entries, position=position, suspects=suspects), answers)
            answers.flush()


def _done(tree: Tree, entries: list[TreeEntry], *, position: int, suspects: Suspects) -> Done:
    from indexing.collecting import Collected
    from indexing.collecting_beside import Done, collect_range
    from indexing.walking import SkippedEntry, SourceFile

    done = Done(Collected())

    def on_entry(entry: SourceFile | SkippedEntry, _chunks: int) -> None:
        done.files += 1
        if isinstance(entry, SkippedEntry):
            done.skipped.append(entry)

    for done.collected in collect_range(tree, entries, position=position, suspects=suspects, on_entry=on_entry):
        pass
    return done


if __name__ == "__main__":
    channel = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed does not belong between pickles
    try:
        main(sys.stdin.buffer, channel)
    except BrokenPipeError:
        os._exit(1)  # the build is gone; what is still in the channel has no reader
