"""`manage.py map_readers SITE ORGANISATION`: who reads private code at the hosting site reads it here"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from assistant.reader_mapping import map_readers
from indexing.errors import HostingError
from indexing.models import Organisation


class Command(BaseCommand):
    help = "Give the private repositories of an imported organisation to the people who may read them at the site"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("site", choices=Organisation.Site.values)
        parser.add_argument("organisation")
        parser.add_argument("--dry-run", action="store_true", help="say what would change, and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:  # Any: Django's own signature
        organisation = Organisation.objects.filter(site=options["site"], name=options["organisation"]).first()
        if organisation is None:
            raise CommandError(f"{options['organisation']} was not imported. Run manage.py import_organisation first.")
        try:
            changed = map_readers(organisation, dry_run=options["dry_run"])
        except HostingError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("\n".join(changed) or "Nothing to change.")
