"""The project about itself: its settings, its documents and its dependencies say the same thing."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from django.conf import settings

PROJECT = Path(settings.BASE_DIR)


def _names_in_settings() -> dict[str, str]:
    """Environment variable -> default as text, read from the source: `_number("LLM_CONTEXT_TOKENS", 8192)`."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse((PROJECT / "assistant/settings.py").read_text())):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        if node.func.id not in {"_text", "_bool", "_number", "_decimal", "_list"}:
            continue
        default = node.args[1] if len(node.args) > 1 else ast.Constant("")
        name = ast.literal_eval(node.args[0])
        found[name] = str(default.value) if isinstance(default, ast.Constant) else ""
    return found | {"SECRET_KEY": ""}


def _names_in_example() -> dict[str, str]:
    return dict(re.findall(r"^#([A-Z_]+)=(.*)$", (PROJECT / ".env.example").read_text(), flags=re.MULTILINE))


def test_it_lists_each_variable_of_the_settings_with_its_default() -> None:
    example = {name: value.lower() for name, value in _names_in_example().items()}
    assert example == {name: default.lower() for name, default in _names_in_settings().items()}


def test_it_shows_only_lines_that_can_be_uncommented_as_they_are() -> None:
    for line in (PROJECT / ".env.example").read_text().splitlines():
        assert not line or re.match(r"# |#[A-Z_]+=", line), line
