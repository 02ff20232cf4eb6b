"""A suggested fix -> whether Git would apply it to the files it names, at the commit that the answer cites.

The files are written into an empty scratch folder and `git apply --check` reads the patch; nothing is changed, no other
file of the repository is there, and nothing from it is run. A patch that names a file outside of the cited repository,
or a path that leads out of the folder, does not apply.
"""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from assistant.citations import Evidence, answer_parser
from indexing import git
from indexing.errors import GitError
from indexing.git_process import git as run_git

logger = logging.getLogger(__name__)

LANGUAGES = ("diff", "patch")
MAX_PATCH_CHARS = 100_000
MAX_FILES = 20
MAX_FILE_BYTES = 2_000_000
_OLD_NAME = re.compile(r"^--- (?:a/)?([^\t\n]+)\n\+\+\+ ", flags=re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """`sentence` is short enough for the header of the patch."""

    applies: bool
    sentence: str


def check_patches(answer: str, evidence: Sequence[Evidence]) -> dict[str, Verdict]:
    """A verdict for the text of each diff fence of an answer."""
    tokens = answer_parser().parse(answer) if "```" in answer or "~~~" in answer else []
    fences = [token.content for token in tokens if token.type == "fence" and token.info.strip().lower() in LANGUAGES]
    return {text: _verdict(text, evidence) for text in fences}


def _verdict(text: str, evidence: Sequence[Evidence]) -> Verdict:
    names = tuple(dict.fromkeys(_OLD_NAME.findall(text)))
    wanted = [name for name in names if name != "/dev/null"]
    places = {
        (row.repository.mirror.path, row.commit): None
        for item in evidence
        if (row := item.citation) and row.repository and item.linkable and row.display_path in wanted
    }
    if not places:
        return Verdict(False, "Does not apply: it names no cited file")
    mirror_path, commit = next(iter(places))
    applies = len(text) <= MAX_PATCH_CHARS and _applies(text, tuple(wanted), mirror_path, commit)
    return Verdict(applies, f"{'Applies' if applies else 'Does not apply'} to {commit[:7]}")


@lru_cache(maxsize=512)
def _applies(text: str, names: tuple[str, ...], mirror_path: Path, commit: str) -> bool:
    if len(names) > MAX_FILES or not all(map(_is_safe, names)):
        return False
    paths = [name.encode() for name in names]
    try:
        blob_ids = git.blobs_at(mirror_path, commit, paths)
        if len(blob_ids) < len(set(paths)):
            return False
        with tempfile.TemporaryDirectory(prefix="patch-") as folder, git.BlobReader(mirror_path) as blobs:
            tree, patch = Path(folder) / "tree", Path(folder) / "patch"
            for path, blob_id in blob_ids.items():
                file = tree / path.decode()
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(next(blobs.read_many([blob_id], max_bytes=MAX_FILE_BYTES))[1])
            patch.write_text(text if text.endswith("\n") else f"{text}\n", newline="")
            options = ["--work-tree", str(tree), "-C", str(tree)]
            done = run_git(mirror_path, *options, "apply", "--check", "--", str(patch), check=False)
    except (GitError, OSError, ValueError) as error:
        logger.warning("a suggested fix was not checked: %s", type(error).__name__)
        return False
    return done.returncode == 0


def _is_safe(name: str) -> bool:
    parts = name.split("/")
    return not any(part in ("", ".", "..") or part.lower() == ".git" or "\0" in part for part in parts)
