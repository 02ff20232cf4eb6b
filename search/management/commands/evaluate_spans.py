"""`manage.py evaluate_spans`: are functions found, and cited tightly, by the words of their own documentation?"""

from __future__ import annotations

import json
import os
import random
import tempfile
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from indexing.access import Principal
from indexing.building import build_now
from indexing.errors import IndexingError
from indexing.git_process import git
from indexing.models import Repository
from indexing.refreshing import repository_at
from indexing.registering import remove
from indexing.walking import SourceFile, walk
from search.pipeline import search
from search.results import Scope
from search.spans import DEPTH, Answer, Function, documented, judge, place_of, summary, without_documentation

_WHO = ("-c", "user.name=evaluation", "-c", "user.email=evaluation@localhost")


class Command(BaseCommand):
    help = "Measure how well functions are found and cited. Exit status: 0 ok, 1 failed, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--corpora", type=Path, required=True, help="folder with a Git repository per NAME")
        parser.add_argument("--repo", action="append", default=[], metavar="NAME", help="only this NAME; repeatable")
        parser.add_argument("--functions", type=int, default=300, metavar="N", help="how many are asked for")
        parser.add_argument("--seed", type=int, default=1, metavar="N", help="the same functions for the same number")
        parser.add_argument("--queries", action="store_true", help="the rank of each function as well, 0: not found")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        folder = options["corpora"]
        names = options["repo"] or sorted(path.name for path in folder.iterdir() if (path / ".git").is_dir())
        missing = [name for name in names if not (folder / name / ".git").is_dir()]
        if missing or not names:
            raise CommandError(f"{folder} has no Git repository {', '.join(missing) or 'at all'}.", returncode=2)
        try:
            trees = {name: folder / name for name in names}
            answers = self._answers(trees, options["functions"], options["seed"])
        except IndexingError as error:
            raise CommandError(str(error)) from error
        document = summary([answer for found in answers.values() for answer in found.values()])
        document["per_repository"] = {name: summary(list(found.values())) for name, found in answers.items()}
        if options["queries"]:
            document["queries"] = [_row(name, *pair) for name, found in answers.items() for pair in found.items()]
        self.stdout.write(json.dumps(document) if options["json"] else "\n".join(_lines(document)))

    def _answers(self, trees: dict[str, Path], wanted: int, seed: int) -> dict[str, dict[Function, Answer]]:
        known = [
            (name, function)
            for name, tree in trees.items()
            for source in _files(tree)
            for function in documented(source)
        ]
        chosen: dict[str, list[Function]] = defaultdict(list)
        for name, function in random.Random(seed).sample(known, min(wanted, len(known))):  # noqa: S311 (a sample)
            chosen[name].append(function)
        return {name: self._asked(name, trees[name], functions) for name, functions in sorted(chosen.items())}

    def _asked(self, name: str, tree: Path, functions: list[Function]) -> dict[Function, Answer]:
        with tempfile.TemporaryDirectory() as temporary:
            copy = Path(temporary) / name
            _copy_without_documentation(tree, copy, functions)
            with _indexed(copy, f"spans/{name}") as repository:
                self.stderr.write(f"{name}: asking for {len(functions)} functions")
                sources = {source.path: source for source in _files(copy)}
                places = {function: place_of(sources[function.path], function) for function in functions}
                known = {function: place for function, place in places.items() if place is not None}
                return {function: _ask(function, place, repository) for function, place in known.items()}


def _files(tree: Path) -> Iterator[SourceFile]:
    commit = git(tree / ".git", "rev-parse", "HEAD").stdout.decode().strip()
    for entry in walk(tree / ".git", commit, max_file_bytes=settings.MAX_FILE_BYTES):
        if isinstance(entry, SourceFile):
            yield entry


def _copy_without_documentation(tree: Path, copy: Path, functions: list[Function]) -> None:
    by_path: dict[bytes, list[Function]] = defaultdict(list)
    for function in functions:
        by_path[function.path].append(function)
    git(None, "init", "--quiet", str(copy))
    for source in _files(tree):
        if {part.lower() for part in source.path.split(b"/")} & {b"..", b".git"}:
            continue
        target = Path(os.fsdecode(os.path.join(os.fsencode(copy), source.path)))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(without_documentation(source, by_path[source.path]))
    work_tree = f"--work-tree={copy}"
    git(copy / ".git", work_tree, "add", "--all", "--force")
    git(copy / ".git", *_WHO, work_tree, "commit", "--quiet", "--message", "without documentation")


@contextmanager
def _indexed(copy: Path, name: str) -> Iterator[Repository]:
    """The copy as an indexed repository, which goes with it."""
    repository = repository_at(copy, name=name)
    try:
        build_now(repository)
        repository.refresh_from_db()
        yield repository
    finally:
        remove(repository)


def _ask(function: Function, place: tuple[int, int], repository: Repository) -> Answer:
    result = search(
        function.question,
        principal=Principal.operator(),
        scope=Scope(repository_ids=(repository.pk,)),
        limit=DEPTH,
        use_llm=False,
    )
    return judge(result.hits, function.path, place)


def _row(name: str, function: Function, answer: Answer) -> dict[str, Any]:  # Any: JSON
    path = function.path.decode("utf-8", "backslashreplace")
    return {"repository": name, "path": path, "function": function.name, "query": function.question} | asdict(answer)


def _lines(document: dict[str, Any]) -> list[str]:  # Any: JSON
    rows = {"all": document, **document["per_repository"]}
    lines = ["                         functions   top 10    first   span / function (median)"]
    for name, row in rows.items():
        ratio = "-" if row["median_span_ratio"] is None else f"{row['median_span_ratio']:.2f}"
        lines.append(f"{name:24} {row['functions']:9} {row['in_top_10']:8.1%} {row['first']:8.1%} {ratio:>10}")
    for row in document.get("queries", []):
        lines.append(f"{row['rank']:3} {row['repository']} {row['path']} {row['function']}")
    return lines
