"""`manage.py search QUESTION`: ranked places in the code, for people or as JSON."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.access import Principal
from indexing.models import Repository
from search.errors import SearchError
from search.pipeline import search
from search.results import Hit, Scope


class Command(BaseCommand):
    help = "Search the indexed repositories. Exit status: 0 ok, 1 failed, 2 wrong use."
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("question")
        parser.add_argument("--repo", action="append", default=[], help="only here; may be given more than once")
        parser.add_argument("--path", default="", help="prefer this folder")
        parser.add_argument("--only-path", default="", help="search nothing but this folder")
        parser.add_argument("--limit", type=_at_least_one, default=10)
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        scope = Scope(
            repository_ids=repository_ids(options["repo"]), path=options["path"], path_filter=options["only_path"]
        )
        try:
            result = search(options["question"], principal=Principal.operator(), scope=scope, limit=options["limit"])
        except SearchError as error:
            raise CommandError(str(error), returncode=2) from error
        if options["json"]:
            document = {"hits": [hit.to_json() for hit in result.hits], "trace": result.trace.to_json()}
            self.stdout.write(json.dumps(document, ensure_ascii=False))
            return
        for notice in result.trace.notices:
            self.stderr.write(notice)
        for number, hit in enumerate(result.hits, 1):
            self.stdout.write(_line(number, hit))
        if not result.hits:
            self.stderr.write(f"Nothing found in {result.trace.readable_repositories} searchable repositories.")


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError("at least 1")
    return number


def repository_ids(names: list[str]) -> tuple[int, ...]:
    """Ids of the named repositories. Raises CommandError with status 2 for a name that is not indexed."""
    found = list(Repository.objects.searchable().filter(name__in=names).values_list("name", "pk"))
    unknown = sorted(set(names) - {name for name, _ in found})
    if unknown:
        known = ", ".join(Repository.objects.searchable().values_list("name", flat=True)[:20]) or "none yet"
        raise CommandError(f"No indexed repository is called {', '.join(unknown)}. Indexed: {known}.", returncode=2)
    return tuple(pk for _, pk in found)


def _line(number: int, hit: Hit) -> str:
    place = f"{hit.repository} {hit.display_path}:{hit.start_line}-{hit.end_line}"
    if sys.stdout.isatty():
        place = f"\033[1m{place}\033[0m"
    return f"{number:2}. {place}  {hit.symbol}  {hit.score:.2f}"
