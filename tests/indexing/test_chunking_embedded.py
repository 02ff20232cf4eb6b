from __future__ import annotations

import pytest

from indexing.chunk_checks import check_file
from indexing.chunking import chunk_file
from tests.indexing.sources import chunk, make_source, primary, symbols, texts, uncovered

ROWS = "    <p>Some words that fill a line of text in this page.</p>\n"
SCRIPT = """import { ref } from 'vue'

export function load(count: number) {
  const many = count + 1
  return fetch(`/items/${many}`).then((answer) => answer.json())
}

class Shop {
  open(at: Date) {
    return at.getHours() > 8 && at.getHours() < 20 ? 'open' : 'closed, come again'
  }
}
"""
STYLE = ".card { color: red; margin: 0 auto; }\n.card:hover { color: blue; }\n.card > p { padding: 3px 4px 5px 6px; }\n"
VUE = (
    f"<template>\n  <div>\n{ROWS * 8}  </div>\n</template>\n\n"
    f'<script lang="ts">\n{SCRIPT}</script>\n\n<style>\n{STYLE}</style>\n'
)
PLAIN = SCRIPT.replace(": number", "").replace(": Date", "")
HTML = f"<html>\n<body>\n{ROWS * 8}<script>\n{PLAIN}</script>\n{ROWS * 8}</body>\n</html>\n"


@pytest.mark.parametrize(("path", "content"), [("a.vue", VUE), ("a.svelte", VUE), ("a.html", HTML)])
def test_it_finds_the_definitions_of_a_script(path: str, content: str) -> None:
    chunked = chunk(path, content)
    assert {"load", "Shop", "Shop.open"} <= {d.qualified_name for d in chunked.parsed.definitions}
    [load] = [text for text in texts(content, chunked) if "function load" in text]
    assert "Shop" in " ".join(symbols(chunked))
    assert uncovered(content.encode(), chunked) == b""


@pytest.mark.parametrize(("path", "content"), [("a.vue", VUE * 3), ("a.svelte", VUE), ("a.html", HTML * 4)])
def test_it_keeps_the_tags_with_their_part(path: str, content: str) -> None:
    source = make_source(path, content)
    assert check_file(source, chunk_file(source), max_chars=1500) == []


def test_it_names_definitions_at_their_place_in_the_file() -> None:
    [load] = [d for d in chunk("a.vue", VUE).parsed.definitions if d.name == "load"]
    assert VUE.encode()[load.head_byte : load.end_byte].decode().startswith(("export function load", "function load"))
    assert VUE.splitlines()[load.start_line - 1].startswith("export function load")


def test_it_knows_what_a_script_imports() -> None:
    assert chunk("a.vue", VUE).parsed.imports == ("vue",)


def test_it_leaves_small_parts_and_unknown_languages_to_the_template() -> None:
    content = f"<html>\n<script>run()</script>\n<script type='text/x-template'>\n{ROWS * 3}</script>\n</html>\n"
    chunked = chunk("a.html", content)
    assert chunked.parsed.definitions == ()
    assert len(primary(chunked)) == 1


def test_it_leaves_no_closing_tag_without_its_part() -> None:
    content = f"<html>\n<head>\n<script>\n{PLAIN}</script>\n</head>\n<body>\n{ROWS}</body>\n</html>\n"
    assert not any(text.startswith("</") for text in texts(content, chunk("a.html", content)))
