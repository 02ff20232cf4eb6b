"""`manage.py mcp`: the tools for coding agents over standard input and output, for agents on this machine."""

from __future__ import annotations

import asyncio
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from assistant import mcp, sign_in
from assistant.api import caller_of
from assistant.chat_api import TokenCaller
from indexing.access import Principal


class Command(BaseCommand):
    help = "Serve search_code, read_code, list_repositories and ask to an agent over stdio."

    def handle(self, *args: object, **options: Any) -> None:  # Any: argparse
        if not mcp.installed():
            raise CommandError(mcp.MISSING)
        mcp.current_caller.set(_caller())
        asyncio.run(mcp.make_server(settings.MCP_TOKEN).run_stdio_async())


def _caller() -> TokenCaller:
    """Whoever MCP_TOKEN belongs to; without one the operator, who is at this shell anyway."""
    if not settings.MCP_TOKEN:
        return TokenCaller(user=sign_in.ensure_operator(), principal=Principal.operator(), is_staff=True, token=None)
    caller = caller_of(settings.MCP_TOKEN)
    if caller is None:
        raise CommandError("MCP_TOKEN is not a valid token. Make one on the page /account/tokens/.")
    return caller
