"""`manage.py export_index NAME FILE`: the published index as one file, for another server."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.errors import IndexingError
from indexing.models import Repository
from indexing.transporting import export_index


class Command(BaseCommand):
    help = "Write a repository's index to a file. It holds no source code. Exit status: 0 ok, 1 failed, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", metavar="NAME", help="the repository")
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        repository = Repository.objects.searchable().filter(name=options["name"]).first()
        if repository is None:
            raise CommandError(f"No indexed repository is called {options['name']}.", returncode=2)
        try:
            manifest = export_index(repository, options["file"])
        except (IndexingError, OSError) as error:
            raise CommandError(f"{repository.name} was not exported: {error}") from error
        size = options["file"].stat().st_size
        if options["json"]:
            document = {
                "repository": repository.name,
                "commit": manifest.commit,
                "chunks": manifest.chunks,
                "bytes": size,
            }
            self.stdout.write(json.dumps(document))
        else:
            megabytes = f"{size / 1_000_000:.1f} MB"
            self.stdout.write(f"{repository.name} at {manifest.commit[:10]}: {manifest.chunks} chunks, {megabytes}")
