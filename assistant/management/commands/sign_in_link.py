"""Print a link that signs one person in once."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError

from assistant.sign_in import ensure_operator, make_link_token


class Command(BaseCommand):
    help = "Print a sign-in link that works once, within 24 hours."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", default="", help="who it signs in; default: the operator")
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="where people reach the server")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, *args: Any, **options: Any) -> None:  # Any: Django passes what argparse parsed
        user = _active_user(options["user"]) if options["user"] else ensure_operator()
        link = f"{options['url'].rstrip('/')}/sign-in/{make_link_token(user)}/"
        self.stdout.write(json.dumps({"user": user.username, "link": link}) if options["json"] else link)


def _active_user(username: str) -> Any:  # Any: the user model is chosen in settings
    user = get_user_model().objects.filter(username=username, is_active=True).first()
    if user is None:
        raise CommandError(f"there is no active user {username!r}; make one in the admin, under Users")
    return user
