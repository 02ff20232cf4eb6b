from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator

import pytest
from tree_sitter import Query
from tree_sitter_language_pack import get_language

from indexing import parsing
from indexing.parsing import Definition, grammar_problem, parse
from indexing.tags import TAGS
from tests.indexing.sources import chunk


@pytest.fixture
def fresh_grammars() -> Iterator[None]:
    parsing._grammar.cache_clear()
    yield
    parsing._grammar.cache_clear()


def _definitions(language: str, text: str) -> list[Definition]:
    return list(parse(text.encode(), language).parsed.definitions)


def _names(language: str, text: str) -> list[tuple[str, str]]:
    return [(definition.kind, definition.qualified_name) for definition in _definitions(language, text)]


def _text(definition: Definition, text: str) -> str:
    return text.encode()[definition.start_byte : definition.end_byte].decode()


@pytest.mark.parametrize("language", sorted(TAGS))
def test_it_has_a_query_that_its_grammar_accepts(language: str) -> None:
    assert grammar_problem(language) == ""
    assert Query(get_language(language), "\n".join(parsing._written_patterns(TAGS[language]))).pattern_count > 0


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "class A:\n    x = 1\n    def m(self): pass\n", "class A, field A.x, method A.m"),
        ("kotlin", "class A { fun m() = 1 }\nval top = 2\n", "class A, method A.m, constant top"),
        ("java", "class A { int f; A() {} void m() {} }", "class A, field A.f, method A.A, method A.m"),
        ("javascript", "exports.x = function () {}\n", "function x"),
        ("javascript", "res.cookie = function (a) {}\n", "method res.cookie"),
        ("javascript", "Foo.prototype.bar = function () {}\n", "method Foo.bar"),
        ("javascript", "const f = () => 1\n", "function f"),
        ("typescript", "export interface I { m(): void }\n", "interface I, method I.m"),
        ("tsx", "export const App = () => <div/>\n", "function App"),
        (
            "csharp",
            "namespace N { class A { int P { get; set; } void M() {} } }",
            "module N, class N.A, field N.A.P, method N.A.M",
        ),
        ("php", "<?php class A { private $x = 1; function m() {} }", "class A, field A.x, method A.m"),
        ("go", "package p\nfunc (c *Command) Run() {}\n", "method Command.Run"),
        ("go", "package p\ntype T struct{ A int }\n", "struct T"),
        ("rust", "impl<T> Display for Foo<T> { fn fmt(&self) {} }", "impl Foo, method Foo.fmt"),
        ("c", "static char *name(int x) { return 0; }\n", "function name"),
        ("cpp", "void Foo<T>::bar(int x) {}\n", "method Foo.bar"),
        ("ruby", "module M\n  class A\n    def self.go?; end\n  end\nend\n", "module M, class M.A, method M.A.go?"),
        ("swift", "extension Foo { func bar() -> Int { 1 } }", "extension Foo, method Foo.bar"),
        ("scala", "object O { def f(x: Int) = x }\n", "object O, method O.f"),
        ("haskell", "module A where\nf :: Int -> Int\nf 0 = 1\nf n = n\n", "function f"),
        (
            "elixir",
            "defmodule A.B do\n  def run(x) when x > 1, do: x\n  defmacrop m(x), do: x\nend\n",
            "module A.B, function A.B.run, macro A.B.m",
        ),
        (
            "lua",
            "local M = {}\nfunction M.foo() end\nM.bar = function() end\n",
            "constant M, method M.foo, method M.bar",
        ),
        ("bash", "function foo { :; }\nbar() { :; }\n", "function foo, function bar"),
        (
            "zig",
            "pub fn add() void {}\nconst S = struct { pub fn init() void {} };\n",
            "function add, struct S, method S.init",
        ),
        ("dart", "class A { A.named(); int get x => 1; }", "class A, method A.named, method A.x"),
        ("julia", "function add(a, b)\n  a + b\nend\ng(x) = x\n", "function add, function g"),
        ("r", "add <- function(a, b) a + b\n", "function add"),
        ("perl", "package P;\nsub run { 1 }\n", "function run"),
        ("ocaml", "let add a b = a + b\nmodule M = struct let y = 1 end\n", "function add, module M, constant M.y"),
        ("clojure", "(ns a.b)\n(defn f [x] x)\n(defmacro m [x] x)\n", "function f, macro m"),
    ],
)
def test_it_finds_the_definitions_of(language: str, text: str, expected: str) -> None:
    assert ", ".join(f"{kind} {name}" for kind, name in _names(language, text)) == expected


def test_it_finds_definitions_of_a_grammar_that_has_no_entry_by_the_generic_rule() -> None:
    assert "solidity" not in TAGS
    names = _names("solidity", "contract C { function pay() public {} }")
    assert ("class", "C") in names
    assert ("method", "C.pay") in names


@pytest.mark.parametrize(
    ("language", "text", "start"),
    [
        ("python", '@app.route("/x")\ndef view(): pass\n', "@app"),
        ("java", "class A {\n  /** Doc. */\n  @Deprecated\n  public void m() {}\n}", "/** Doc"),
        ("rust", "/// Doc.\n#[derive(Debug)]\npub struct S { x: i32 }\n", "/// Doc"),
        ("go", "package p\n\n// Run runs.\nfunc Run() {}\n", "// Run"),
        ("kotlin", "import a.b\n\n/** Doc. */\n@Anno\nfun f() = 1\n", "/** Doc"),
        ("typescript", "/** Doc. */\n@Injectable()\nexport class S {}\n", "/** Doc"),
        ("csharp", "/// <summary>Doc</summary>\n[Obsolete]\npublic class A {}\n", "/// <sum"),
        ("php", "<?php\n/** Doc. */\n#[Attr]\nfinal class A {}\n", "/** Doc"),
        ("zig", "/// Doc.\npub fn f() void {}\n", "/// Doc"),
        ("elixir", 'defmodule A do\n  @doc "Doc."\n  @spec f(a) :: b\n  def f(a), do: a\nend\n', '@doc "Doc'),
        ("haskell", "module A where\n-- | Doc.\nf :: Int\nf = 1\n", "-- | Doc"),
        ("cpp", "/// Doc.\ntemplate <typename T>\nclass A {};\n", "/// Doc"),
        ("cpp", "/*!\n@brief Doc.\n*/\nint f(int a) { return a; }\n", "/*!"),
        ("kotlin", "val a = 1\n\n@OptIn(X::class)\nprivate suspend fun A.f() { }\n", "@OptIn"),
        ("julia", '"""\nDoc.\n"""\nfunction f(x)\n  x\nend\n', '"""\nDoc'),
    ],
)
def test_it_begins_a_definition_at_its_documentation_and_decorators(language: str, text: str, start: str) -> None:
    last = _definitions(language, text)[-1]
    assert _text(last, text).startswith(start)


def test_it_leaves_the_documentation_of_the_module_to_the_module() -> None:
    text = "//! About the module.\npub fn f() -> u8 { 1 }\n"
    assert _text(_definitions("rust", text)[0], text).startswith("pub fn f")


def test_it_leaves_a_trailing_comment_to_the_line_it_is_on() -> None:
    text = "int a = 1; // about a\nint b() { return 1; }\n"
    assert _text(_definitions("c", text)[-1], text) == "int b() { return 1; }"


def test_it_leaves_a_comment_alone_that_a_blank_line_parts_from_the_definition() -> None:
    text = "# licence\n\ndef f(): pass\n"
    assert _text(_definitions("python", text)[0], text) == "def f(): pass"


def test_it_includes_the_closing_semicolon() -> None:
    text = "const LIMIT = 3;\n"
    assert _text(_definitions("javascript", text)[0], text) == "const LIMIT = 3;"


def test_it_knows_where_name_head_and_body_begin() -> None:
    text = "@cache\ndef answer(x):\n    return 42\n"
    [definition] = _definitions("python", text)
    assert text[definition.name_byte :].startswith("answer")
    assert text[definition.head_byte :].startswith("def answer")
    assert text[definition.body_byte :].startswith("return 42")


def test_it_does_not_call_local_variables_definitions() -> None:
    assert _names("kotlin", "fun f() { val inner = 1 }\n") == [("function", "f")]


def test_it_does_not_call_imported_names_definitions() -> None:
    assert _names("javascript", "const utils = require('./utils')\nconst LIMIT = 2\n") == [("constant", "LIMIT")]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "python",
            "import os.path\nfrom flask.sessions import X\nfrom . import y\n",
            ("os.path", "flask.sessions", "."),
        ),
        ("javascript", "const a = require('./utils')\nimport b from 'x'\n", ("./utils", "x")),
        ("go", 'package p\nimport (\n\t"fmt"\n\tx "a/b"\n)\n', ("fmt", "a/b")),
        ("rust", "use crate::de;\n", ("crate::de",)),
        ("java", "import java.util.List;\n", ("java.util.List",)),
        ("csharp", "using System.Text;\n", ("System.Text",)),
        ("php", "<?php\nuse Psr\\Http\\Message;\n", ("Psr\\Http\\Message",)),
        ("c", '#include "a.h"\n#include <stdio.h>\n', ("a.h", "stdio.h")),
        ("ruby", 'require "rack"\n', ("rack",)),
        ("elixir", "defmodule A do\n  alias Ecto.Query\nend\n", ("Ecto.Query",)),
        ("lua", 'local a = require("telescope.utils")\n', ("telescope.utils",)),
        ("bash", "source ./lib.sh\n", ("./lib.sh",)),
    ],
)
def test_it_lists_imports_as_written(language: str, text: str, expected: tuple[str, ...]) -> None:
    assert parse(text.encode(), language).parsed.imports == expected


@pytest.mark.parametrize(
    ("language", "text", "package"),
    [
        ("java", "package org.example;\nclass A {}\n", "org.example"),
        ("kotlin", "package org.example\nclass A\n", "org.example"),
        ("go", "package cobra\n", "cobra"),
        ("php", "<?php\nnamespace Acme\\Web;\n", "Acme.Web"),
        ("csharp", "namespace Acme.Web;\nclass A {}\n", "Acme.Web"),
        ("python", "x = 1\n", ""),
    ],
)
def test_it_reads_the_package_that_a_file_declares(language: str, text: str, package: str) -> None:
    assert parse(text.encode(), language).parsed.package == package


def test_it_recovers_from_syntax_errors() -> None:
    assert ("function", "good") in _names("python", "def broken(:\n\n\ndef good():\n    return 1\n")


def test_it_survives_deep_nesting() -> None:
    depth = 20_000
    parsed = parse(b"x = " + b"(" * depth + b")" * depth + b"\n\ndef f():\n    pass\n", "python").parsed
    assert parsed.fallback == ""


def test_it_falls_back_visibly_when_a_grammar_does_not_load(
    monkeypatch: pytest.MonkeyPatch, fresh_grammars: None
) -> None:
    def refuse(language: str) -> None:
        raise ValueError("Incompatible Language version 99")

    monkeypatch.setattr(parsing, "get_language", refuse)
    chunked = chunk("a.py", "def f():\n    return 1\n")
    assert "python grammar cannot be loaded" in chunked.parsed.fallback
    assert [item.kind for item in chunked.chunks] == ["lines"]
    assert "version 99" in grammar_problem("python")


def test_it_gives_up_a_parse_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "PARSE_TIMEOUT_SECONDS", -1.0)
    syntax = parse(b"def f(): pass\n" * 5000, "python")
    assert syntax.tree is None
    assert "took more than" in syntax.parsed.fallback


def test_it_says_which_language_has_no_grammar() -> None:
    assert parse(b"x", "batch").parsed.fallback == "no grammar for batch"


def test_it_reads_tests_of_bats() -> None:
    content = "setup() {\n  x=1\n}\n\n@test \"it runs: größe\" {\n  run it\n}\n\n@test 'other'  {\n  run it\n}\n"
    found = parse(content.encode(), "bash").parsed.definitions
    assert [(d.kind, d.name) for d in found] == [("function", "setup"), ("test", "it runs: größe"), ("test", "other")]
    assert content.encode()[found[1].start_byte :].startswith(b'@test "it runs')


def test_it_sees_through_macros_around_a_namespace() -> None:
    content = (
        "#include <a.h>\nACME_NAMESPACE_BEGIN\n\ntemplate<typename T>\nstruct Box\n{\n  int size() { return 1; }\n};\n"
    )
    names = [d.qualified_name for d in parse(f"{content}ACME_NAMESPACE_END\n".encode(), "cpp").parsed.definitions]
    assert names == ["Box", "Box.size"]
    [enum] = parse(b"enum Kind\n{\n  FIRST,\nLIST_END\n};\n", "c").parsed.definitions
    assert enum.name == "Kind"


def test_it_keeps_no_text_in_memory() -> None:
    text = b"def total():\n    return 1\n" * 2_000
    parse(text, "python")
    tracemalloc.start()
    try:
        for _ in range(20):
            parse(text, "python")
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < len(text)
