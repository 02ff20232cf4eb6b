"""`manage.py import_index FILE [--name NAME]`: take over an index that another machine made."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.errors import IndexingError
from indexing.transporting import import_index


class Command(BaseCommand):
    help = "Publish an exported index after checking it against the server's own mirror. Exit status: 0 ok, 1 refused."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path)
        parser.add_argument("--name", default="", help="the repository; without it the one with the URL of the export")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        try:
            index = import_index(options["file"], name=options["name"])
        except IndexingError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            found = {"repository": index.repository.name, "commit": index.commit} if index else {}
            self.stdout.write(json.dumps({"imported": index is not None, **found}))
        elif index is None:
            self.stdout.write("Nothing to do: the index of a later commit is published already.")
        else:
            self.stdout.write(f"{index.repository.name} at {index.commit[:10]}: {index.chunks_done} chunks")
