"""`manage.py verify_index [NAME]...`: compare index files with their checksums, byte by byte."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.errors import IndexFormatError
from indexing.index_format import verify
from indexing.models import Repository


class Command(BaseCommand):
    help = "Check index files. Exit status: 0 all are sound, 1 some are damaged, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("names", metavar="NAME", nargs="*", help="repositories; all of them without a name")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        repositories = Repository.objects.searchable()
        if options["names"]:
            repositories = repositories.filter(name__in=options["names"])
            missing = set(options["names"]) - {repository.name for repository in repositories}
            if missing:
                raise CommandError(f"No indexed repository is called {', '.join(sorted(missing))}.", returncode=2)
        problems = {repository.name: _problem(repository) for repository in repositories}
        if options["json"]:
            self.stdout.write(json.dumps({"repositories": problems}))
        else:
            for name, problem in problems.items():
                self.stdout.write(f"{name}: {problem or 'sound'}")
        if any(problems.values()):
            raise CommandError("Index files are damaged; run manage.py rebuild_index for these repositories.")


def _problem(repository: Repository) -> str:
    """Empty when every checksum holds."""
    try:
        verify(repository.index_path)
    except IndexFormatError as error:
        return str(error)
    return ""
