"""`manage.py rotate_credentials [--new-key]`: encrypt all kept logins with the first key; or make a key"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from indexing import credentials
from indexing.errors import InvalidLogin


class Command(BaseCommand):
    help = "Encrypt every kept login with the first key of CREDENTIALS_KEY, so that older keys can be removed"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--new-key", action="store_true", help="print a new key for CREDENTIALS_KEY and do no more")

    def handle(self, *args: Any, **options: Any) -> None:  # Any: Django's own signature
        if options["new_key"]:
            self.stdout.write(credentials.new_key())
            return
        try:
            done = credentials.rotate()
        except InvalidLogin as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{done} logins are encrypted with the first key; the others may be removed.")
