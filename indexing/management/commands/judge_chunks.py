"""`manage.py judge_chunks [REPO | --path FOLDER]`: review how files were cut, by checks and a model's marks."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from indexing.chunk_checks import CHECKS
from indexing.embedding import get_embedder
from indexing.errors import IndexingError
from indexing.git import resolve
from indexing.judging import Checked, check_all, judge_chunks
from indexing.models import ChunkReview, Repository
from indexing.walking import walk

SHOWN_PLACES = 20
FILES_A_LINE = 500


class Command(BaseCommand):
    help = (
        "Check all chunks, and let a model judge a sample. Exit status: 0 ok, 1 failed, 2 wrong use; "
        "with --path, 1 as well when anything is wrong."
    )
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("repository", metavar="REPO", nargs="?", help="name of a repository; all by default")
        parser.add_argument("--sample", type=int, default=0, metavar="N", help="chunks that the model judges")
        parser.add_argument(
            "--path",
            type=Path,
            action="append",
            default=[],
            metavar="FOLDER",
            help="automatic checks alone, of a checkout that need not be indexed, or of all checkouts in a folder; "
            "looks at the embedded texts too, stores nothing; repeatable",
        )
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        if options["path"]:
            self._check_paths(options["path"], as_json=options["json"])
            return
        reviews = []
        for repository in _repositories(options["repository"]):
            try:
                review = judge_chunks(repository, sample=max(0, options["sample"]), on_file=self._progress)
            except IndexingError as error:
                raise CommandError(f"{repository.name}: {error}") from error
            reviews.append(review)
            if not options["json"]:
                self.stdout.write("\n".join(_lines(review)))
        if options["json"]:
            self.stdout.write(json.dumps({"reviews": [_document(review) for review in reviews]}))

    def _check_paths(self, paths: list[Path], *, as_json: bool) -> None:
        found: dict[str, Checked] = {}
        for checkout in _checkouts(paths):
            try:
                commit = resolve(checkout / ".git", "", "")
                entries = walk(checkout / ".git", commit, max_file_bytes=settings.MAX_FILE_BYTES)
                found[checkout.name] = check_all(entries, commit, on_file=self._progress, embedder=get_embedder())
            except IndexingError as error:
                raise CommandError(f"{checkout}: {error}") from error
            if not as_json:
                self.stdout.write("\n".join(_checked_lines(checkout.name, found[checkout.name])))
        total = sum((checked.problems for checked in found.values()), Counter())
        files, chunks = sum(item.files for item in found.values()), sum(item.chunks for item in found.values())
        if as_json:
            self.stdout.write(json.dumps({"checked": {name: _checked_document(item) for name, item in found.items()}}))
        else:
            self.stdout.write(f"{len(found)} checkouts, {files} files, {chunks} chunks, {total.total()} problems")
        if total:
            raise CommandError(", ".join(f"{count} {check}" for check, count in sorted(total.items())))

    def _progress(self, files: int) -> None:
        if files % FILES_A_LINE == 0 and sys.stderr.isatty():
            self.stderr.write(f"{files} files checked")


def _checkouts(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        inside = sorted(folder.parent for folder in path.glob("*/.git"))
        found += [path] if (path / ".git").is_dir() else inside
    if not found:
        raise CommandError(f"No Git checkout in {', '.join(map(str, paths))}.", returncode=2)
    return found


def _checked_document(checked: Checked) -> dict[str, Any]:  # Any: JSON
    problems = dict(sorted(checked.problems.items()))
    return {"files": checked.files, "chunks": checked.chunks, "problems": problems, "examples": checked.examples}


def _checked_lines(name: str, checked: Checked) -> list[str]:
    lines = [f"{name:24} {checked.files:6} files {checked.chunks:7} chunks {checked.problems.total():4} problems"]
    lines += [f"  {count:6} {CHECKS.get(check, check)}" for check, count in sorted(checked.problems.items())]
    return lines + [_example_line(place) for place in checked.examples[:SHOWN_PLACES]]


def _example_line(place: dict[str, Any]) -> str:  # Any: JSON
    return f"  {place['path']}:{place['line']} {place['check']}: {place['detail']}"


def _repositories(name: str | None) -> list[Repository]:
    indexed = Repository.objects.select_related("mirror", "current_index").exclude(current_index=None).order_by("name")
    found = list(indexed.filter(name=name) if name else indexed)
    if not found:
        known = ", ".join(indexed.values_list("name", flat=True)[:20]) or "none yet"
        wanted = f"No indexed repository is called {name}." if name else "No repository is indexed."
        raise CommandError(f"{wanted} Indexed: {known}.", returncode=2)
    return found


def _lines(review: ChunkReview) -> list[str]:
    lines = [f"{review}: {review.chunks} chunks of {review.files} files (review {review.pk})"]
    lines += [f"  {count:6} {CHECKS.get(check, check)}" for check, count in review.problems.items()]
    lines += ["  nothing to complain about"] if not review.problems else []
    lines += [_example_line(place) for place in review.examples[:SHOWN_PLACES]]
    if review.score is not None:
        lines.append(f"  {review.model} gives {100 * review.score:.0f} % over {len(review.marked)} chunks")
    return lines + ([f"  {review.notice}"] if review.notice else [])


def _document(review: ChunkReview) -> dict[str, Any]:  # Any: JSON
    names = ("pk", "commit", "files", "chunks", "problems", "examples", "model", "score", "marked", "notice")
    return {"repository": review.repository.name} | {name: getattr(review, name) for name in names}
