from __future__ import annotations

import pytest
from pytest_django import Settings

from indexing.chunking import chunk_file, code
from tests.indexing.sources import chunk, make_source, primary, symbols, texts, uncovered

FILLER = "    value = compute(value, 'some words that fill a line of code')\n"
INNER = "    " + FILLER


def _function(name: str, lines: int) -> str:
    return f"def {name}(value):\n{FILLER * lines}    return value\n"


def _containing(content: str, path: str, needle: str) -> str:
    """Text of the one primary chunk that holds `needle`."""
    [found] = [text for text in texts(content, chunk(path, content)) if needle in text]
    return found


def test_it_gives_each_function_a_chunk_of_its_own() -> None:
    content = _function("first", 5) + "\n\n" + _function("second", 5)
    chunked = chunk("a.py", content)
    assert [(item.kind, item.symbol) for item in chunked.chunks] == [("function", "first"), ("function", "second")]
    assert texts(content, chunked)[1] == _function("second", 5).strip()


def test_it_keeps_a_function_up_to_the_ceiling_whole() -> None:
    content = _function("long", 20) + "\n\n" + _function("other", 5)
    assert len(_function("long", 20)) in range(1200, 1500)
    assert symbols(chunk("a.py", content)) == ["long", "other"]


def test_it_splits_a_larger_function_between_statements_and_keeps_its_name() -> None:
    content = _function("long", 60)
    chunked = chunk("a.py", content)
    assert set(symbols(chunked)) == {"long"}
    assert len(chunked.chunks) > 3
    assert all(len(text) <= 500 and text.endswith(")") for text in texts(content, chunked)[:-1])


def test_it_follows_the_settings(settings: Settings) -> None:
    settings.CHUNK_MAX_CHARS = 300
    settings.CHUNK_TARGET_CHARS = 100
    content = _function("long", 20)
    assert all(len(text) <= 300 for text in texts(content, chunk("a.py", content)))


def test_it_splits_a_class_into_methods_and_outlines_it() -> None:
    methods = "\n".join(f"    def m{i}(self):\n{INNER * 3}        return {i}\n" for i in range(4))
    chunked = chunk("a.py", f'class Shop:\n    """Sells."""\n\n{methods}')
    assert symbols(chunked) == ["Shop.m0", "Shop.m1", "Shop.m2", "Shop.m3"]
    [outline] = [item for item in chunked.chunks if item.role == "outline"]
    assert (outline.kind, outline.symbol, outline.start_line, outline.end_line) == ("outline", "Shop", 1, 1)


def test_it_keeps_a_small_class_whole_and_without_outline() -> None:
    chunked = chunk("a.py", "class Point:\n    def __init__(self, x):\n        self.x = x\n")
    assert [(item.role, item.kind, item.symbol) for item in chunked.chunks] == [("primary", "class", "Point")]


def test_it_merges_imports_and_constants_but_not_functions() -> None:
    content = "import os\nimport sys\n\nLIMIT = 3\n\n\n" + _function("run", 3)
    chunked = chunk("a.py", content)
    assert texts(content, chunked)[0] == "import os\nimport sys\n\nLIMIT = 3"
    assert [item.kind for item in chunked.chunks] == ["imports", "function"]


def test_it_merges_tiny_neighbours() -> None:
    getters = "".join(f"    int get{name}() {{ return {name}; }}\n" for name in "abcdefghijklmnop")
    chunked = chunk("A.java", f"class A {{\n{getters}}}\n")
    assert len(primary(chunked)) == 1


def test_it_leaves_closing_punctuation_with_what_it_closes() -> None:
    body = "        call(some, arguments, that, fill, the, line);\n" * 8
    content = f"class A {{\n  void a() {{\n{body}  }}\n\n  void b() {{\n{body}  }}\n}}\n"
    pieces = texts(content, chunk("A.java", content))
    assert [piece.splitlines()[-1].strip() for piece in pieces] == ["}", "}"]
    assert not any(piece.startswith(("}", ")", ";")) for piece in pieces)


@pytest.mark.parametrize(
    ("path", "content", "prefix", "declaration"),
    [
        ("a.py", '@app.route("/x")\n@login\ndef view():\n    return 1\n', "@app.route", "def view"),
        (
            "A.java",
            "class A {\n  @Transactional\n  @Path\n  public void save() { work(); }\n}\n",
            "@Trans",
            "void save",
        ),
        ("a.rs", "/// Doc.\n#[inline]\npub fn run() -> u8 { 1 }\n", "/// Doc", "pub fn run"),
        ("a.go", "package p\n\n// Run runs.\n// It is quick.\nfunc Run() int { return 1 }\n", "// Run", "func Run"),
        ("a.kt", "/** Doc. */\n@Composable\nfun screen() { draw() }\n", "/** Doc", "fun screen"),
        ("a.ts", "/** Doc. */\n@Injectable()\nexport class S { run() { return 1 } }\n", "/** Doc", "class S"),
        ("a.cs", "/// <summary>Doc</summary>\n[Obsolete]\nclass A { void M() { } }\n", "/// <sum", "class A"),
        ("a.php", "<?php\n/** Doc. */\n#[Pure]\nfunction run() { return 1; }\n", "/** Doc", "function run"),
        ("a.ex", 'defmodule A do\n  @doc "Doc."\n  @spec f(a) :: b\n  def f(a), do: a\nend\n', '@doc "', "def f"),
    ],
)
def test_it_moves_prefixes_with_their_definition(
    path: str, content: str, prefix: str, declaration: str, settings: Settings
) -> None:
    settings.CHUNK_TARGET_CHARS = 20
    assert prefix in _containing(content, path, declaration)


def test_it_never_parts_if_from_else_while_they_fit() -> None:
    branch = "        value = step(value, 'words that make this branch long')\n" * 8
    choice = f"    if value:\n{branch}    elif other:\n{branch}    else:\n        value = 0\n"
    content = _function("before", 1) + "\n\ndef decide(value, other):\n" + FILLER * 12 + choice + FILLER * 12
    piece = _containing(content, "a.py", "if value:")
    assert "elif other:" in piece
    assert "else:" in piece


def test_it_cuts_a_chain_that_does_not_fit_behind_its_braces() -> None:
    branch = "    value = step(value, 'words that make this branch long');\n" * 6
    chain = "".join(f" else if (value == {number}) {{\n{branch}  }}" for number in range(8))
    content = f"function decide(value) {{\n  if (value) {{\n{branch}  }}{chain}\n}}\n"
    pieces = texts(content, chunk("a.js", content))
    assert len(pieces) > 3
    assert all(piece.startswith("else if (value ==") for piece in pieces[1:])
    assert all(piece.endswith("}") for piece in pieces)


def test_it_keeps_the_signature_with_the_first_part() -> None:
    content = "def long(\n    value,\n    other,\n):\n" + FILLER * 60
    first = texts(content, chunk("a.py", content))[0]
    assert first.startswith("def long(\n    value,\n    other,\n):\n    value = compute")


def test_it_opens_a_small_function_under_long_documentation_at_its_body() -> None:
    doc = "/**\n" + " * A line of documentation that says something.\n" * 28 + " */\n"
    content = doc + "function f(a) {\n  var b = one(a)\n  var c = two(b)\n  return c\n}\n" + "\n// more\nvar x = 1\n"
    pieces = texts(content, chunk("a.js", content))
    assert pieces[0].startswith("/**")
    assert "function f(a) {" in pieces[0]


def test_it_cuts_a_function_without_split_points_by_lines() -> None:
    """4,000 lines inside one string: nothing to cut at but lines, and none of them is lost."""
    lines = "".join(f"line {number} of a very long text\n" for number in range(4000))
    content = f'def text():\n    return """\n{lines}"""\n'
    source = make_source("a.py", content)
    chunked = chunk_file(source)
    assert uncovered(source.raw, chunked) == b""
    assert all(len(piece) <= 1500 for piece in texts(content, chunked))
    assert set(symbols(chunked)) == {"text"}


def test_it_finds_the_last_line_of_a_long_method_and_names_siblings_right() -> None:
    work = "        total = total + compute(total)  # a line of work\n"
    content = (
        "package shop\n\nimport a.b.C\n\nclass Cls {\n    val field = 1\n\n"
        "    fun first(): Int {\n        return 1 + field + 0 + 0 + 0 + 0 + 0 + 0\n    }\n\n"
        f"    fun second(): Int {{\n{work.replace('#', '//') * 118}        return xylophone\n    }}\n\n"
        "    fun third(): Int {\n        return 3 + field + 0 + 0 + 0 + 0 + 0 + 0\n    }\n}\n"
    )
    source = make_source("Cls.kt", content)
    chunked = chunk_file(source)
    [holder] = [item for item in primary(chunked) if b"xylophone" in source.raw[item.start_byte : item.end_byte]]
    assert holder.symbol == "shop.Cls.second"
    assert {"shop.Cls.first", "shop.Cls.second", "shop.Cls.third"} <= set(symbols(chunked))
    assert uncovered(source.raw, chunked) == b""


def test_it_gives_byte_offsets_that_select_the_chunk_in_multi_byte_text() -> None:
    content = "# 日本語 🙂 é\n" + _function("first", 6) + "\n\n" + _function("zweite_größe", 6)
    source = make_source("a.py", content)
    chunked = chunk_file(source)
    assert [source.raw[item.start_byte : item.end_byte].decode() for item in chunked.chunks] == [
        ("# 日本語 🙂 é\n" + _function("first", 6)).strip(),
        _function("zweite_größe", 6).strip(),
    ]
    assert [item.start_line for item in chunked.chunks] == [1, 12]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "shift_jis", "cp1251"])
def test_it_cites_the_original_bytes_of_other_encodings(encoding: str) -> None:
    word = "слово" if encoding == "cp1251" else "日本語"
    content = f"# {word} {word} {word} {word}\n" + _function("first", 6) + "\n\n" + _function("second", 6)
    source = make_source("a.py", content.encode(encoding))
    chunked = chunk_file(source)
    second = primary(chunked)[-1]
    assert source.raw[second.start_byte : second.end_byte].decode(source.encoding) == _function("second", 6).strip()
    assert (second.symbol, second.start_line) == ("second", 12)


def test_it_numbers_lines_of_crlf_files() -> None:
    content = (_function("first", 6) + "\n\n" + _function("second", 6)).replace("\n", "\r\n")
    assert [(item.start_line, item.end_line) for item in chunk("a.py", content).chunks] == [(1, 8), (11, 18)]


def test_it_lists_the_definitions_that_start_in_a_chunk() -> None:
    chunked = chunk("a.py", "LIMIT = 1\nOTHER = 2\n\n\n" + _function("run", 3))
    names = [[chunked.parsed.definitions[i].name for i in item.defines] for item in chunked.chunks]
    assert names == [["LIMIT", "OTHER"], ["run"]]


def test_it_cuts_one_long_line_inside() -> None:
    content = "x = [" + ", ".join(str(number) for number in range(2000)) + "]\n"
    source = make_source("a.py", content)
    chunked = chunk_file(source)
    assert uncovered(source.raw, chunked) == b""
    assert all(len(piece) <= 1500 for piece in texts(content, chunked))


def test_it_opens_a_body_whose_head_leaves_no_place_to_cut() -> None:
    """The body alone would fit, body and head together do not."""
    step = "        emit(value, 'words that make this line long enough to matter');\n"
    content = f"void f() {{\n  if (a &&\n      {'b' * 300}) {{\n{step * 18}  }}\n}}\n"
    pieces = texts(content, chunk("a.c", content))
    assert len(pieces) > 1
    assert all(piece.startswith("emit") for piece in pieces[1:])


def test_it_cuts_between_items_that_begin_behind_a_closer() -> None:
    item = '    name: "words that fill a line of text, and a few more of them",\n    args: [1, 2, 3],\n'
    content = "var cases = [{\n" + f"{item}  }}, {{\n" * 20 + f"{item}  }}];\n"
    pieces = texts(content, chunk("a.js", content))
    assert len(pieces) > 1
    assert all(piece.startswith("{") and piece.endswith(("},", "}];")) for piece in pieces[1:])


def test_it_cuts_a_chain_at_an_else_on_a_line_of_its_own() -> None:
    branch = "    work(value, 'words that make this branch long');\n" * 20
    content = f"void f() {{\n  if (a)\n  {{\n{branch}  }}\n  else\n  {{\n{branch}  }}\n}}\n"
    assert any(piece.startswith("else") for piece in texts(content, chunk("a.c", content)))


def test_it_leaves_closing_tags_with_what_they_close() -> None:
    row = "<p>Some words that fill a line of text in this page.</p>\n"
    content = f"<div>\n<div>\n{row * 40}</div>\n</div>\n" * 4
    assert not any(piece.startswith("</") for piece in texts(content, chunk("a.html", content)))


LINE = "total = total + step(total, 'words that fill a line')"


def _chunks_of(path: str, content: str) -> list[str]:
    return texts(content, chunk(path, content))


def test_it_begins_a_part_with_what_opens_it() -> None:
    cases = "".join(f"      case {number}:\n" + f"        {LINE};\n" * 6 for number in range(6))
    before = f"    {LINE};\n" * 7
    content = f"function f(total) {{\n{before}    switch (total) {{\n{cases}    }}\n}}\n"
    parts = _chunks_of("a.js", content)
    assert len(parts) > 2
    assert not any(part.endswith(("{", ":")) for part in parts)
    assert any(part.startswith("switch (total) {\n      case 0:") for part in parts)


def test_it_keeps_a_docstring_with_its_function() -> None:
    docstring = '"""Adds up.\n\n' + "    About the sum of what is there.\n" * 15 + '    """'
    content = f"def add(total):\n    {docstring}\n" + f"    {LINE}\n" * 20 + "    return total\n"
    first = _chunks_of("a.py", content)[0]
    assert first.startswith("def add(total):")
    assert first.endswith('"""')


def test_it_cuts_too_many_decorators_between_them() -> None:
    decorators = "".join(
        f'@click.option(\n    "--name-{number}",\n    help="What this option is for, in some words.",\n)\n'
        for number in range(20)
    )
    parts = _chunks_of("a.py", f"{decorators}def run(total):\n    return total\n")
    assert len(parts) > 1
    assert all(part.startswith("@click.option(") for part in parts)
    assert parts[-1].endswith("return total")


def test_it_cuts_a_decorator_that_is_too_large_between_its_arguments() -> None:
    cases = "".join(
        f"        case(\n            {{'total': {number}, 'words': 'that fill a line'}},\n        ),\n"
        for number in range(40)
    )
    decorator = f'@parametrize(\n    "total",\n    [\n{cases}    ],\n)\n'
    parts = _chunks_of("a.py", f"{decorator}def test_run(total):\n    assert run(total)\n")
    assert len(parts) > 2
    assert all(part.startswith(("@parametrize(", "case(")) for part in parts)
    assert parts[-1].endswith("assert run(total)")


def test_it_parts_a_long_comment_from_what_it_is_about_before_it_cuts_it() -> None:
    lines = "".join(f"   * {number}: some words about what is computed here\n" for number in range(28))
    comment = f"/**\n{lines}   *\n   * Returns something\n   */"
    words = ", 'words that fill a line'" * 6
    call = f"var result = create(function(total) {{ return total + 1; }}{words});"
    parts = _chunks_of("a.js", f"function all() {{\n  {comment}\n  {call}\n  return result;\n}}\n")
    assert any(part.endswith(comment) for part in parts)
    assert any(part.startswith(call) for part in parts)


def test_it_cuts_a_chain_of_calls_at_a_call() -> None:
    calls = "".join(f"    .step{number}(() => {{\n" + f"      {LINE};\n" * 5 + "    })\n" for number in range(6))
    parts = _chunks_of("a.js", f"function f(total) {{\n  return start(total)\n{calls}    .end();\n}}\n")
    assert len(parts) > 2
    assert all(part.startswith((".step", "function")) for part in parts)


def test_it_cuts_between_the_clauses_of_a_function() -> None:
    clauses = "\n".join(
        f"f {number} total =\n  result\n  where\n    result = " + " ++ ".join([f'"words {number}"'] * 20)
        for number in range(8)
    )
    parts = _chunks_of("A.hs", f"module A where\n\n{clauses}\n")
    assert len(parts) > 2
    assert all(part.startswith(("f ", "module")) for part in parts)


def test_it_cuts_macros_of_rust_behind_their_items() -> None:
    items = "".join(
        f"    impl<T> Read for Kind{number}<T>\n    where\n        T: Clone,\n    {{\n"
        + f"        fn read(&self) {{ {LINE}; }}\n" * 5
        + "    }\n"
        for number in range(6)
    )
    parts = _chunks_of("a.rs", f"make_all! {{\n{items}}}\n")
    assert len(parts) > 1
    assert all(part.startswith(("impl<T>", "make_all!")) for part in parts)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.py", "def huge():\n" + "".join(f"    value_{n} = compute({n})\n" for n in range(4000))),
        ("b.py", "def huge(x):\n    return [\n" + "".join(f"        {n},\n" for n in range(4000)) + "    ]\n"),
    ],
)
def test_it_splits_a_function_of_four_thousand_lines(path: str, content: str) -> None:
    chunked = chunk(path, content)
    assert uncovered(content.encode(), chunked) == b""
    assert max(item.end_byte - item.start_byte for item in primary(chunked)) <= 1500
    assert {item.symbol.rpartition(".")[2] for item in primary(chunked)} == {"huge"}


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
def test_it_counts_lines_that_end_with_a_carriage_return(newline: str) -> None:
    content = newline.join(["# one", "def total():", "    return 1", "", "", "def other():", "    return 2", ""])
    chunked = chunk("a.py", content)
    raw = content.encode()
    other = next(item for item in primary(chunked) if b"def other" in raw[item.start_byte : item.end_byte])
    assert other.end_line == 7
    assert uncovered(raw, chunked) == b""


def test_it_opens_a_long_chain_of_terms_in_steps_that_grow_with_its_length(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    """`a + b + c` is a node in a node in a node: starting from the outermost for each term took a minute for 4,000."""
    steps = []
    part_cuts = code._part_cuts
    monkeypatch.setattr(code, "_part_cuts", lambda node, data: steps.append(node.id) or part_cuts(node, data))
    content = "int f(int a) {\n    return " + "\n    + ".join(f"term_{n} * {n}" for n in range(800)) + ";\n}\n"
    chunked = chunk("a.c", content)
    assert all(len(text) <= settings.CHUNK_MAX_CHARS for text in texts(content, chunked))
    assert len(steps) < 2 * 800
