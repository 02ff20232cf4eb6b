from __future__ import annotations

import json

from indexing.chunk_checks import check_file
from indexing.chunking import chunk_file
from indexing.chunking.notebook import source_of_cell
from indexing.context import embedded_texts
from tests.indexing.sources import chunk, make_source, primary, uncovered


def _notebook(*cells: tuple[str, str], output: str = "") -> str:
    outputs = [{"output_type": "stream", "text": [output]}] if output else []
    documents = [
        {"cell_type": kind, "metadata": {}, "outputs": outputs, "source": source.splitlines(keepends=True)}
        for kind, source in cells
    ]
    return json.dumps({"cells": documents, "metadata": {}, "nbformat": 4}, indent=1)


CONTENT = _notebook(("markdown", '# Training\n\nWith a "loss".'), ("code", "import os\n\nprint('größe')\n"))


def test_it_makes_a_chunk_of_each_cell_under_its_heading() -> None:
    chunked = chunk("a.ipynb", CONTENT)
    cells = [item for item in primary(chunked) if item.kind == "cell"]
    assert [item.symbol for item in cells] == ["Training > cell 1", "Training > cell 2"]
    assert uncovered(CONTENT.encode(), chunked) == b""


def test_it_embeds_what_a_person_wrote_and_not_its_json() -> None:
    source = make_source("a.ipynb", CONTENT)
    rows = embedded_texts(source, chunk_file(source), count_tokens=len, max_tokens=1000)
    assert rows[-1].rows == ("a.ipynb\nTraining > cell 2\nimport os\nprint('größe')",)


def test_it_keeps_a_source_apart_from_outputs_that_are_too_large() -> None:
    content = _notebook(("code", "total = add(1, 2)\n"), output="word " * 2000)
    chunked = chunk("a.ipynb", content)
    *outputs, cell = [item for item in primary(chunked) if item.kind in ("cell", "output")]
    assert len(outputs) > 1
    assert content.encode()[cell.start_byte :].startswith(b'"source"')
    assert uncovered(content.encode(), chunked) == b""


def test_it_reads_a_source_in_every_shape() -> None:
    assert source_of_cell('{"source": "a = 1\\nb = 2"}') == "a = 1\nb = 2"
    assert source_of_cell('{"source": ["a\\n", "b"], "id": "x"}') == "a\nb"
    assert source_of_cell('"later line\\n",\n "last"\n]}') == "later line\nlast"
    assert source_of_cell('{"id": "x"}') == ""


def test_it_treats_other_json_as_configuration() -> None:
    assert [item.kind for item in chunk("a.ipynb", '{"a": 1}').chunks] == ["section"]


def test_it_passes_the_checks() -> None:
    cells = [("code", f"value_{n} = compute({n})  # some words\n" * 8) for n in range(30)]
    source = make_source("a.ipynb", _notebook(*cells, output="text"))
    assert check_file(source, chunk_file(source), max_chars=1500) == []
