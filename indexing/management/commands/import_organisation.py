"""`manage.py import_organisation SITE NAME`: add an organisation's repositories and keep them in step with its list"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from indexing import hosting_api, organisations
from indexing.errors import HostingError
from indexing.models import Organisation


class Command(BaseCommand):
    help = "Add the repositories of an organisation of GitHub, GitLab or Gitea; run again, bring them in step"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("site", choices=Organisation.Site.values)
        parser.add_argument("name", help="as in its address, such as pallets, or group/subgroup")
        parser.add_argument("--include", help="patterns of names, with commas between; * is all")
        parser.add_argument("--exclude", help="patterns of names to leave out")
        parser.add_argument("--archived", action="store_true", default=None, help="also those that are archived")
        parser.add_argument("--force", action="store_true", help="remove what is gone, however much that is")
        parser.add_argument("--dry-run", action="store_true", help="list what would be added, and add nothing")

    def handle(self, *args: Any, **options: Any) -> None:  # Any: Django's own signature
        given = {"include": options["include"], "exclude": options["exclude"], "with_archived": options["archived"]}
        fields = {name: value for name, value in given.items() if value is not None}
        try:
            if options["dry_run"]:
                self._list(Organisation(site=options["site"], name=options["name"], **fields))
            else:
                self._import(options, fields)
        except HostingError as error:
            raise CommandError(str(error)) from error

    def _list(self, organisation: Organisation) -> None:
        listed = hosting_api.repositories_of(organisation.site, organisation.name)
        found = organisations.chosen(organisation, listed)
        for hosted in found:
            self.stdout.write(f"{hosted.name}{' (private)' if hosted.private else ''}")
        self.stdout.write(f"{len(found)} of {len(listed)} repositories match.")

    def _import(self, options: dict[str, Any], fields: dict[str, Any]) -> None:  # Any: as argparse has it
        organisation, _ = Organisation.objects.update_or_create(
            site=options["site"], name=options["name"], defaults=fields
        )
        outcome = organisations.synchronise(organisation, force=options["force"])
        for line in outcome.skipped:
            self.stderr.write(line)
        self.stdout.write(f"{organisation}: {outcome}. The worker indexes what is new, a few at a time.")
