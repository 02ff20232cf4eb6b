"""What holds for every file: primary chunks tile the non-blank bytes, bounds are trimmed, nothing raises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexing.chunking import ChunkedFile, chunk_file
from indexing.context import embedded_texts, file_text
from indexing.offsets import LineIndex
from indexing.walking import SourceFile
from tests.indexing.sources import make_any_source, make_source, primary, uncovered

SAMPLES = {
    "a.py": "@cached\nclass A(B):\n    '''Doc.'''\n    x = 1\n\n    def m(self, a):\n"
    "        if a:\n            return 1\n        else:\n            return 2\n",
    "a.js": "/** Doc. */\nexports.f = function (a, b) {\n  return a ? b : { c: [1, 2] };\n};\n",
    "a.tsx": "export const App = ({ a }: P) => {\n  return <div className='x'>{a}</div>;\n};\n",
    "A.java": "package p;\nimport q.R;\npublic class A {\n  @Override\n  public int f() { return 1; }\n}\n",
    "a.kt": "package p\n\n/** Doc. */\ndata class A(val x: Int) {\n  fun f() = x\n}\n",
    "a.cs": "namespace N {\n  [X] class A { int P { get; set; } void M() { } }\n}\n",
    "a.php": "<p>\n<?php\nnamespace N;\nclass A { function m() { return <<<X\n  text\n  X; } }\n",
    "a.go": 'package p\n\nimport "fmt"\n\n// F does.\nfunc (a *A) F() error {\n\treturn nil\n}\n',
    "a.rs": "/// Doc.\n#[derive(Debug)]\npub struct A { x: u8 }\nimpl A { fn f(&self) -> u8 { self.x } }\n",
    "a.c": "#include <a.h>\n#define X(a) \\\n  (a)\nstatic int f(int a)\n{\n  return a;\n}\n",
    "a.rb": "module M\n  class A\n    def f; <<~T\n      text\n    T\n    end\n  end\nend\n",
    "a.hs": "module A where\n\n-- | Doc.\nf :: Int -> Int\nf 0 = 1\nf n = n\n",
    "a.ex": 'defmodule A do\n  @doc """\n  Doc.\n  """\n  def f(x), do: x\nend\n',
    "a.sh": '#!/bin/sh\n# Doc.\nf() {\n  cat <<E\n  text\nE\n}\nf "$@"\n',
    "a.md": "# A\n\nText.\n\n```py\n# code\n```\n\n## B\n\n- item\n",
    "a.yaml": "a:\n  # about b\n  b: [1, 2]\n  c: |\n    text\nd: e\n",
    "a.json": '{"a": {"b": [1, 2, {"c": null}]}, "d": "é"}\n',
    "a.sql": "-- Doc.\nCREATE TABLE a (x int);\nSELECT 1;\n",
    "a.vue": "<template>\n  <p>{{ a }}</p>\n</template>\n<script>\nexport default { data() { return 1 } }\n</script>\n",
    "a.html": "<div>\n<p>é</p>\n<script>\nfunction f(a) {\n  return a + 'words and more words to be long enough';\n}"
    "\nlet g = (b) => { return b; };\n</script>\n</div>\n",
    "a.ipynb": '{"cells": [{"cell_type": "code", "outputs": [{"text": ["a\\n"]}],\n "source": ["x = 1\\n", "é"]}]}\n',
    "a.bats": '# Doc.\n@test "it runs" {\n  run it\n  [ "$status" -eq 0 ]\n}\n',
    "a.txt": "Plain words.\n\nMore of them.\n",
}
LIMITS = settings(max_examples=25, deadline=None, derandomize=True)
NOISE = st.text(alphabet=st.sampled_from("ab \n\t\r{}()[]\"'`#/*<>:;,.=@\\é日🙂\x00\x0c"), max_size=60)


def _check(source: SourceFile, chunked: ChunkedFile) -> None:
    lines = LineIndex(source.raw, source.encoding)
    assert uncovered(source.raw, chunked) == b""
    for item in chunked.chunks:
        text = source.raw[item.start_byte : item.end_byte]
        assert text
        assert item.role != "primary" or text == text.strip()
        assert (item.start_line, item.end_line) == lines.lines_of(item.start_byte, item.end_byte)
        assert item.kind == "endpoint" or len(text.decode()) <= 1500 or item.role == "outline"


@pytest.mark.parametrize("path", sorted(SAMPLES))
def test_it_tiles_repeated_samples(path: str) -> None:
    """Long enough that units have to be opened, split and merged."""
    for times in (1, 7, 60):
        source = make_source(path, SAMPLES[path] * times)
        chunked = chunk_file(source)
        _check(source, chunked)
        assert chunked == chunk_file(source)


@pytest.mark.parametrize("path", sorted(SAMPLES))
@LIMITS
@given(cuts=st.lists(st.tuples(st.integers(0, 4000), NOISE), min_size=1, max_size=4), tail=st.integers(0, 4000))
def test_it_tiles_damaged_files(path: str, cuts: list[tuple[int, str]], tail: int) -> None:
    """Random text in random places, cut off anywhere."""
    text = SAMPLES[path] * 20
    for position, noise in cuts:
        text = text[: position % len(text)] + noise + text[position % len(text) :]
    raw = text[: len(text) - tail % len(text)].encode()
    source = make_any_source(path, raw)
    _check(source, chunk_file(source))


@LIMITS
@given(text=st.text(max_size=400), path=st.sampled_from(sorted(SAMPLES)))
def test_it_tiles_any_text(text: str, path: str) -> None:
    source = make_any_source(path, text.encode("utf-8", "replace"))
    _check(source, chunk_file(source))


@pytest.mark.parametrize(
    "language", ["html", "css", "svelte", "xml", "nix", "ada", "vhdl", "cobol", "latex", "query", "org"]
)
def test_it_tiles_whatever_grammar_reads_it(language: str) -> None:
    source = replace(make_any_source("x", "\n".join(SAMPLES.values()).encode() * 3), language=language, route="code")
    _check(source, chunk_file(source))


@pytest.mark.parametrize("path", sorted(SAMPLES))
@pytest.mark.parametrize("max_tokens", [24, 256])
def test_it_never_embeds_more_than_the_window(path: str, max_tokens: int) -> None:
    source = make_source(path, SAMPLES[path] * 30)
    chunked = chunk_file(source)
    for texts in embedded_texts(source, chunked, count_tokens=_count, max_tokens=max_tokens):
        assert texts.rows
        assert all(row and _count(row) <= max_tokens for row in texts.rows)
        assert 0 < len(texts.description) <= 300
    assert 0 < len(file_text(source, chunked)) <= 900


def _count(text: str) -> int:
    """Two marks, and about three characters a token."""
    return 2 + (len(text) + 2) // 3


def test_it_embeds_every_word_of_a_file() -> None:
    words = [f"word{number}" for number in range(700)]
    content = "def f():\n" + "".join(f"    call({word!r}, 'filler filler filler')\n" for word in words)
    source = make_source("a.py", content)
    texts = embedded_texts(source, chunk_file(source), count_tokens=_count, max_tokens=64)
    embedded = "\n".join(row for text in texts for row in text.rows)
    assert [word for word in words if f"'{word}'" not in embedded] == []
    assert len(primary(chunk_file(source))) > 10
