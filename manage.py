#!/usr/bin/env python
"""Command-line entry point; `manage.py help` lists the commands."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")
    from django.core.management import execute_from_command_line
    from django.db.utils import OperationalError, ProgrammingError

    try:
        execute_from_command_line(sys.argv)
    except (OperationalError, ProgrammingError):
        if not _lacks_migrations():
            raise
        sys.exit("The database has no tables yet, or those of an older version: run `python manage.py migrate` first.")


def _lacks_migrations() -> bool:
    from django.db import connection
    from django.db.migrations.executor import MigrationExecutor
    from django.db.utils import DatabaseError

    try:
        executor = MigrationExecutor(connection)
        return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError:  # it cannot be reached at all
        return False


if __name__ == "__main__":
    main()
