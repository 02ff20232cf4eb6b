"""`manage.py judge_chunks [REPO]`: review how files were cut, by automatic checks and a language model's marks."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.chunk_checks import CHECKS
from indexing.errors import IndexingError
from indexing.judging import judge_chunks
from indexing.models import ChunkReview, Repository

SHOWN_PLACES = 20
FILES_A_LINE = 500


class Command(BaseCommand):
    help = "Check all chunks, and let a model judge a sample. Exit status: 0 ok, 1 failed, 2 wrong use."
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("repository", metavar="REPO", nargs="?", help="name of a repository; all by default")
        parser.add_argument("--sample", type=int, default=0, metavar="N", help="chunks that the model judges")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
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

    def _progress(self, files: int) -> None:
        if files % FILES_A_LINE == 0 and sys.stderr.isatty():
            self.stderr.write(f"{files} files checked")


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
    for place in review.examples[:SHOWN_PLACES]:
        lines.append(f"  {place['path']}:{place['line']} {place['check']}: {place['detail']}")
    if review.score is not None:
        lines.append(f"  {review.model} gives {100 * review.score:.0f} % over {len(review.marked)} chunks")
    return lines + ([f"  {review.notice}"] if review.notice else [])


def _document(review: ChunkReview) -> dict[str, Any]:  # Any: JSON
    names = ("pk", "commit", "files", "chunks", "problems", "examples", "model", "score", "marked", "notice")
    return {"repository": review.repository.name} | {name: getattr(review, name) for name in names}
