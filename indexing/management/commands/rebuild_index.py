"""`manage.py rebuild_index NAME... | --missing`: make indexes anew from the mirrors, whatever is published.

`--missing` is for after a restore: every repository that was searchable and whose index files are gone or damaged.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.building import build_now
from indexing.errors import IndexingError
from indexing.models import Repository
from indexing.updating import can_be_opened


class Command(BaseCommand):
    help = "Parse every file again; sound vectors are kept. Exit status: 0 ok, 1 failed, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("names", metavar="NAME", nargs="*", help="repositories")
        parser.add_argument("--missing", action="store_true", help="all whose index files are gone or cannot be opened")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        if bool(options["names"]) == options["missing"]:
            raise CommandError("Name repositories, or use --missing.", returncode=2)
        if options["missing"]:
            searchable = Repository.objects.searchable().order_by("name")
            repositories = [repository for repository in searchable if not can_be_opened(repository.index_path)]
        else:
            repositories = list(Repository.objects.filter(name__in=options["names"]))
        missing = set(options["names"]) - {repository.name for repository in repositories}
        if missing:
            raise CommandError(f"No repository is called {', '.join(sorted(missing))}.", returncode=2)
        problems = {}
        for repository in repositories:
            problems[repository.name] = problem = _rebuild(repository)
            if not options["json"]:  # each when it is over: after a restore there may be many
                self.stdout.write(f"{repository.name}: {problem or 'made anew'}")
        if options["json"]:
            self.stdout.write(json.dumps({"repositories": problems}))
        elif not problems:
            self.stdout.write("No index files are missing.")
        if any(problems.values()):
            raise CommandError("Some indexes could not be made; the published ones stay as they are.")


def _rebuild(repository: Repository) -> str:
    """Empty when it worked."""
    try:
        build_now(repository, rebuild=True)
    except IndexingError as error:
        return str(error)
    return ""
