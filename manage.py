#!/usr/bin/env python
"""Command-line entry point; `manage.py help` lists the commands."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
