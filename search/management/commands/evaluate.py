"""`manage.py evaluate`: NDCG@10 over questions with known answers, without a language model."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.building import build_now
from indexing.errors import IndexingError
from indexing.models import Repository
from indexing.refreshing import repository_at
from search.errors import EvaluationError
from search.evaluation import per_query, read_questions, report, run
from search.models import EvaluationRun


class Command(BaseCommand):
    help = "Measure the ranking, indexing the corpora first. Exit status: 0 ok, 1 failed, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--annotations", type=Path, required=True, help="folder of NAME.json question lists")
        parser.add_argument("--corpora", type=Path, required=True, help="folder with a Git repository per NAME")
        parser.add_argument("--repo", action="append", default=[], help="only this NAME; may be given more than once")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
        parser.add_argument("--queries", action="store_true", help="add the figure of every question to the report")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        try:
            questions = read_questions(options["annotations"], options["repo"])
        except EvaluationError as error:
            raise CommandError(str(error), returncode=2) from error
        names = sorted({question.repository for question in questions})
        repositories = {name: self._indexed(options["corpora"] / name) for name in names}
        outcomes = run(questions, repositories, on_question=self._progress)
        document = report(outcomes)
        EvaluationRun.objects.create(
            options={"repo": options["repo"], "annotations": str(options["annotations"])},
            ndcg_at_10=document["overall"]["ndcg_at_10"],
            queries=document["overall"]["queries"],
            report={**document, "per_query": per_query(outcomes)},
        )
        if options["queries"]:
            document["per_query"] = per_query(outcomes)
        if options["json"]:
            self.stdout.write(json.dumps(document))
        else:
            self._print(document)

    def _indexed(self, corpus: Path) -> Repository:
        if not corpus.is_dir():
            raise CommandError(f"{corpus} is not there; --corpora needs a Git repository per NAME.", returncode=2)
        try:
            repository = repository_at(corpus, name=f"benchmark/{corpus.name}")
            build_now(repository, on_progress=lambda line: self.stderr.write(f"{corpus.name}: {line}"))
        except IndexingError as error:
            raise CommandError(f"{corpus.name}: {error}") from error
        repository.refresh_from_db()
        return repository

    def _progress(self, done: int, known: int) -> None:
        if sys.stderr.isatty():
            self.stderr.write(f"\r{done} of {known} questions", ending="\n" if done == known else "")

    def _print(self, document: dict[str, Any]) -> None:  # Any: JSON
        overall = document["overall"]
        self.stdout.write(f"NDCG@10 {overall['ndcg_at_10']:.4f} over {overall['queries']} questions")
        for group in ("per_repository", "per_category", "per_language"):
            self.stdout.write(f"\n{group.removeprefix('per_')}")
            for name, row in document[group].items():
                self.stdout.write(f"  {name:24} {row['ndcg_at_10']:.4f}  {row['queries']:4}")
        self.stdout.write("\nmilliseconds")
        for name, row in document["latency_ms"].items():
            self.stdout.write(f"  {name:24} p50 {row['p50']:8.2f}  p95 {row['p95']:8.2f}")
