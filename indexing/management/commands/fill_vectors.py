"""`manage.py fill_vectors [NAME]...`: bring the vectors of published indexes into Milvus, where it lacks them."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing import milvus
from indexing.errors import IndexingError
from indexing.models import Repository
from indexing.vector_filling import fill_repository


class Command(BaseCommand):
    help = "Fill Milvus from the index files. Exit status: 0 ok, 1 failed, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("names", metavar="NAME", nargs="*", help="repositories; default: all")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        if not milvus.enabled():
            raise CommandError("VECTOR_BACKEND is not milvus; searches read the index files.", returncode=2)
        chosen = Repository.objects.searchable().order_by("name")
        if options["names"]:
            chosen = chosen.filter(name__in=options["names"])
            missing = set(options["names"]) - {repository.name for repository in chosen}
            if missing:
                raise CommandError(f"No searchable repository is called {', '.join(sorted(missing))}.", returncode=2)
        for repository in chosen:
            try:
                self.stdout.write(f"{repository.name}: {fill_repository(repository)} parts filled in")
            except IndexingError as error:
                raise CommandError(f"{repository.name}: {error}") from error
