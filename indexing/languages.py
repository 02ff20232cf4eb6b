"""File name (and, where a name is ambiguous, the first bytes) -> language, and language -> route to a chunker.

A table, hardly any logic. A language is called what its tree-sitter grammar is called, when the language pack has
one; a language without a grammar has a name all the same, and its chunker falls back to lines.
"""

from __future__ import annotations

import json
import re

_EXTENSIONS: dict[str, str] = {
    "actionscript": "as",
    "ada": "adb ads ada",
    "agda": "agda",
    "apex": "trigger",
    "arduino": "ino",
    "asciidoc": "adoc asciidoc asc",
    "asm": "asm s nasm",
    "astro": "astro",
    "bash": "sh bash zsh ksh ebuild eclass bats envrc",
    "batch": "bat cmd",
    "beancount": "beancount",
    "bibtex": "bib",
    "bicep": "bicep bicepparam",
    "bitbake": "bb bbappend bbclass",
    "bsl": "bsl os",
    "c": "c h idc",
    "cairo": "cairo",
    "capnp": "capnp",
    "chatito": "chatito",
    "clarity": "clar",
    "clojure": "clj cljs cljc cljd edn",
    "cmake": "cmake",
    "cobol": "cob cbl cobol cpy ccp",
    "coffeescript": "coffee",
    "commonlisp": "lisp lsp cl asd",
    "cpon": "cpon",
    "cpp": "cpp cc cxx c++ hpp hh hxx h++ ipp tpp txx inl ixx cppm",
    "crystal": "cr",
    "csharp": "cs csx cake",
    "css": "css",
    "csv": "csv",
    "cuda": "cu cuh",
    "d": "d di",
    "dart": "dart",
    "dockerfile": "dockerfile containerfile",
    "dtd": "dtd ent mod.dtd",
    "elisp": "el",
    "elixir": "ex exs",
    "elm": "elm",
    "embeddedtemplate": "erb ejs eta",
    "erlang": "erl hrl escript app.src",
    "fennel": "fnl",
    "firrtl": "fir",
    "fish": "fish",
    "fortran": "f f77 f90 f95 f03 f08 for ftn fpp",
    "fsharp": "fs fsx",
    "fsharp_signature": "fsi",
    "func": "fc func",
    "gdscript": "gd",
    "gleam": "gleam",
    "glsl": "glsl vert frag geom comp tesc tese vs gs rgen rchit rmiss",
    "gn": "gn gni",
    "go": "go",
    "gomod": "mod",
    "gosum": "sum",
    "graphql": "graphql gql graphqls",
    "groovy": "groovy gradle gvy gy gsh",
    "gstlaunch": "launch",
    "hack": "hack hhi",
    "hare": "ha",
    "haskell": "hs hsc",
    "haxe": "hx",
    "hcl": "hcl nomad",
    "heex": "heex leex",
    "hlsl": "hlsl hlsli fx fxh",
    "html": "html htm xhtml html.j2 jinja jinja2 njk hbs handlebars mustache liquid",
    "hyprlang": "hl",
    "ini": "ini cfg conf cnf inf editorconfig desktop service socket timer gitmodules gitconfig",
    "ispc": "ispc",
    "janet": "janet",
    "java": "java jav",
    "javascript": "js mjs cjs jsx es6",
    "json": "json json5 jsonc jsonl ndjson geojson webmanifest har ipynb avsc babelrc eslintrc prettierrc",
    "jsonnet": "jsonnet libsonnet",
    "julia": "jl",
    "kdl": "kdl",
    "kotlin": "kt kts",
    "latex": "tex sty ltx dtx",
    "lean": "lean",
    "linkerscript": "ld lds",
    "llvm": "ll",
    "lua": "lua rockspec wlua",
    "luau": "luau",
    "magik": "magik",
    "make": "mk mak make",
    "markdown": "md mdx markdown mkd mdown",
    "matlab": "m",
    "mermaid": "mmd mermaid",
    "netlinx": "axs axi",
    "nim": "nim nims nimble",
    "ninja": "ninja",
    "nix": "nix",
    "nqc": "nqc",
    "objc": "mm",
    "ocaml": "ml",
    "ocaml_interface": "mli",
    "odin": "odin",
    "org": "org",
    "pascal": "pas dpr dpk lpr",
    "pem": "pem crt",
    "perl": "pl pm t psgi",
    "pgn": "pgn",
    "php": "php phtml php3 php4 php5 php7 phpt inc",
    "po": "po pot",
    "pony": "pony",
    "powershell": "ps1 psm1 psd1",
    "prisma": "prisma",
    "prolog": "pro",
    "properties": "properties",
    "proto": "proto",
    "psv": "psv",
    "purescript": "purs",
    "python": "py pyi pyw pyx pxd wsgi",
    "qmljs": "qml",
    "query": "query",
    "r": "r",
    "racket": "rkt rktd rktl",
    "re2c": "re",
    "rego": "rego",
    "ron": "ron",
    "rst": "rst rest",
    "ruby": "rb rake gemspec ru podspec jbuilder thor",
    "rust": "rs",
    "scala": "scala sc sbt",
    "scheme": "scm ss sld sls",
    "scss": "scss",
    "smali": "smali",
    "smithy": "smithy",
    "solidity": "sol",
    "sparql": "sparql rq",
    "sql": "sql ddl dml pgsql plsql psql",
    "squirrel": "nut",
    "starlark": "bzl star bazel",
    "svelte": "svelte",
    "swift": "swift",
    "tablegen": "td",
    "tcl": "tcl tk itcl exp",
    "terraform": "tf tfvars",
    "text": "txt text log",
    "thrift": "thrift",
    "toml": "toml",
    "tsv": "tsv",
    "tsx": "tsx",
    "twig": "twig",
    "typescript": "ts mts cts",
    "typst": "typ",
    "ungrammar": "ungram",
    "uxntal": "tal",
    "v": "vv vsh",
    "vbnet": "vb vbs bas",
    "verilog": "sv svh v vh",
    "vhdl": "vhd vhdl",
    "vim": "vim vimrc",
    "vue": "vue",
    "wast": "wast",
    "wat": "wat",
    "wgsl": "wgsl",
    "xml": "xml xsd xsl xslt wsdl xaml csproj fsproj vbproj props targets plist pom nuspec resx storyboard xib svg",
    "yaml": "yaml yml cff clang-format clang-tidy",
    "yuck": "yuck",
    "zig": "zig zon",
}
_NAMES: dict[str, str] = {
    "bash": ".bashrc .bash_profile .bash_aliases .profile .zshrc .zshenv .envrc PKGBUILD APKBUILD gradlew mvnw",
    "clojure": "build.boot",
    "cmake": "CMakeLists.txt",
    "dockerfile": "Dockerfile Containerfile",
    "elixir": "mix.lock",
    "gitattributes": ".gitattributes",
    "gitcommit": "COMMIT_EDITMSG",
    "gitignore": ".gitignore .dockerignore .npmignore .prettierignore .eslintignore .assistantignore .helmignore",
    "gn": ".gn",
    "gomod": "go.mod go.work",
    "gosum": "go.sum go.work.sum",
    "groovy": "Jenkinsfile",
    "hyprlang": "hyprland.conf",
    "ini": ".editorconfig .gitmodules .gitconfig .flake8 .pylintrc .coveragerc .npmrc .pypirc .hgrc",
    "json": ".babelrc .eslintrc .prettierrc .swcrc composer.lock Pipfile.lock flake.lock deno.lock .jshintrc",
    "kconfig": "Kconfig",
    "make": "Makefile makefile GNUmakefile BSDmakefile Kbuild Justfile justfile",
    "meson": "meson.build meson_options.txt meson.options",
    "ninja": "build.ninja",
    "perl": "cpanfile",
    "properties": ".env.example .env.sample .env.template .env.dist",
    "pymanifest": "MANIFEST.in",
    "python": "SConstruct SConscript wscript",
    "qmldir": "qmldir",
    "r": ".Rprofile",
    "readline": ".inputrc inputrc",
    "requirements": "requirements.txt constraints.txt requirements.in",
    "ruby": "Gemfile Rakefile Vagrantfile Podfile Fastfile Guardfile Brewfile Capfile Berksfile Appraisals Dangerfile",
    "starlark": "BUILD WORKSPACE BUILD.bazel WORKSPACE.bazel MODULE.bazel Tiltfile BUCK",
    "text": "README LICENSE COPYING AUTHORS CHANGELOG NEWS NOTICE CODEOWNERS",
    "toml": "Cargo.lock poetry.lock uv.lock Pipfile",
    "vim": ".vimrc _vimrc .gvimrc .exrc",
    "xcompose": ".XCompose XCompose",
    "yaml": ".clang-format .clang-tidy pubspec.lock .yamllint",
}
_INTERPRETERS: dict[str, str] = {
    "bash": "sh bash zsh ksh dash ash bats",
    "clojure": "bb clojure",
    "commonlisp": "sbcl clisp",
    "dart": "dart",
    "elixir": "elixir",
    "erlang": "escript",
    "fish": "fish",
    "groovy": "groovy",
    "haskell": "runhaskell runghc stack",
    "javascript": "node nodejs bun",
    "julia": "julia",
    "kotlin": "kotlin kotlinc",
    "lua": "lua luajit",
    "make": "make",
    "nim": "nim",
    "ocaml": "ocaml",
    "perl": "perl",
    "php": "php",
    "powershell": "pwsh powershell",
    "python": "python python2 python3 pypy pypy3 uv",
    "r": "Rscript",
    "racket": "racket",
    "ruby": "ruby jruby rake",
    "scala": "scala scala-cli",
    "scheme": "guile",
    "swift": "swift",
    "tcl": "tclsh wish expect",
    "typescript": "deno ts-node tsx",
}

# Grammars of the pack for text inside other files (comments, format strings): no file is one of these as a whole.
EMBEDDED_ONLY = frozenset("comment doxygen jsdoc luadoc luap markdown_inline printf test".split())

CONFIG_LANGUAGES = frozenset({"dockerfile", "ini", "json", "make", "properties", "sql", "toml", "yaml"})
# Prose, tables and lists: nothing in them is worth a syntax tree.
TEXT_LANGUAGES = frozenset(
    "asciidoc beancount csv gitattributes gitcommit gitignore gosum org pem pgn po psv pymanifest requirements rst "
    "text tsv".split()
)


def _inverted(table: dict[str, str]) -> dict[str, str]:
    return {key: language for language, keys in table.items() for key in keys.split()}


_BY_EXTENSION = _inverted(_EXTENSIONS)
_BY_NAME = _inverted(_NAMES)
_BY_INTERPRETER = _inverted(_INTERPRETERS)
_BY_NAME_START = (("dockerfile.", "dockerfile"), ("makefile.", "make"), ("jenkinsfile.", "groovy"))
_REQUIREMENTS = re.compile(r"(dev-|test-)?(requirements|constraints)([-_.][\w.-]+)?\.(txt|in)")
_SHEBANG = re.compile(rb"#![ \t]*(?:\S*/)?env[ \t]+(?:-\S+[ \t]+|\w+=\S*[ \t]+)*([\w.+-]+)|#![ \t]*(?:\S*/)?([\w.+-]+)")

# Extensions that several languages share: the first pattern found in the head decides, else the table above.
_BY_CONTENT: dict[str, tuple[tuple[str, re.Pattern[bytes]], ...]] = {
    "h": (
        ("objc", re.compile(rb"^\s*(@interface|@protocol|@class|#import)\b", re.M)),
        (
            "cpp",
            re.compile(rb"^\s*(class\s+\w+|namespace\b|template\s*<|using\s+\w|public:|private:|protected:)", re.M),
        ),
        ("cpp", re.compile(rb"^\s*#\s*include\s*<(string|vector|memory|map|iostream|utility|cstd\w+)>|\bstd::", re.M)),
    ),
    "m": (("objc", re.compile(rb"^\s*(@interface|@implementation|@import|#import|#include)\b", re.M)),),
    "v": (
        ("verilog", re.compile(rb"^\s*(module\s+\w+\s*[(#;]|`timescale|`include|endmodule)", re.M)),
        ("coq", re.compile(rb"^\s*(Require|Theorem|Lemma|Definition|Inductive)\b", re.M)),
        ("v", re.compile(rb"^\s*(module\s+\w+\s*$|(pub\s+)?fn\s|import\s+\w)", re.M)),
    ),
    "cls": (
        ("latex", re.compile(rb"\\(ProvidesClass|NeedsTeXFormat)")),
        ("vbnet", re.compile(rb"^(VERSION 1\.0 CLASS|Attribute VB_)", re.M)),
        ("apex", re.compile(rb"\bclass\b", re.I)),
    ),
    "pl": (("prolog", re.compile(rb"^\s*:-\s*\w+|^\w+\(.*\)\s*:-", re.M)),),
    "ts": (("xml", re.compile(rb"\A\s*<(\?xml|!DOCTYPE TS|TS\b)")),),
    "fs": (("glsl", re.compile(rb"^\s*(#version|precision\s|uniform\s|varying\s)", re.M)),),
    "d": (("make", re.compile(rb"\A[^\n]*\.o\s*:")),),
    "inc": (
        ("php", re.compile(rb"<\?(php|=)")),
        ("bitbake", re.compile(rb"^(SRC_URI|DEPENDS|RDEPENDS)\S*\s*[?+:]*=", re.M)),
        ("text", re.compile(rb"\A")),
    ),
    "mod": (("gomod", re.compile(rb"^module\s+\S+\s*$", re.M)), ("text", re.compile(rb"\A"))),
    "sum": (("gosum", re.compile(rb" h1:")), ("text", re.compile(rb"\A"))),
    "pp": (
        ("pascal", re.compile(rb"^\s*(unit|program|library|interface|uses)\s", re.M | re.I)),
        ("puppet", re.compile(rb"\A")),
    ),
    "rules": (("udev", re.compile(rb"\b(SUBSYSTEM|KERNEL|ACTION|ATTRS?\{)")), ("text", re.compile(rb"\A"))),
    "t": (
        ("perl", re.compile(rb"^\s*use\s+(strict|warnings|Test::|v?5)|#!.*perl", re.M)),
        ("text", re.compile(rb"\A")),
    ),
    "os": (("bsl", re.compile("Процедура|Функция|Procedure|Function".encode())), ("text", re.compile(rb"\A"))),
    "launch": (("xml", re.compile(rb"\A\s*<")), ("gstlaunch", re.compile(rb"\A"))),
    "fx": (("hlsl", re.compile(rb"\b(float4|technique|cbuffer)\b")), ("text", re.compile(rb"\A"))),
    "re": (("re2c", re.compile(rb"/\*!re2c")), ("text", re.compile(rb"\A"))),
    "cl": (("c", re.compile(rb"\b(__kernel|kernel\s+void|__global)\b")), ("commonlisp", re.compile(rb"\A"))),
    "scm": (("query", re.compile(rb"^\s*\([a-z_]+[^()]*\)?\s*@[a-z]", re.M)), ("scheme", re.compile(rb"\A"))),
    "exp": (("tcl", re.compile(rb"\b(spawn|expect|send|proc)\b")), ("text", re.compile(rb"\A"))),
    "conf": (("hyprlang", re.compile(rb"^\s*(exec-once|bind[a-z]*\s*=\s*\$)", re.M)), ("ini", re.compile(rb"\A"))),
    "php": (("hack", re.compile(rb"\A(#![^\n]*\n)?<\?hh\b")),),
}
_RECORD_PER_LINE = (b".jsonl", b".ndjson")  # JSON values, but the file as a whole is none
_OPENAPI_YAML = re.compile(rb"^(?P<q>[\"']?)(openapi|swagger)(?P=q)[ \t]*:[ \t]*[\"']?[23]\.", re.M)
_OPENAPI_JSON = re.compile(rb"\"(openapi|swagger)\"\s*:\s*\"[23]\.")


def language_of(path: bytes, head: bytes) -> str:
    """The language by file name, extension, first bytes or `#!` line; "text" when nothing tells.

    `head` is the beginning of the file (a few kilobytes are enough); it only decides between sharers of a name.
    """
    name = path.rpartition(b"/")[2].decode(errors="replace")
    if language := _BY_NAME.get(name):
        return language
    if _REQUIREMENTS.fullmatch(name):
        return "requirements"
    for start, language in _BY_NAME_START:
        if name.lower().startswith(start):
            return language
    return _by_extension(name, head) or _by_interpreter(head) or "text"


def _by_extension(name: str, head: bytes) -> str:
    """The longest known ending counts: `.html.j2` before `.j2`."""
    endings = name.lower().split(".")[1:]
    for start in range(max(0, len(endings) - 2), len(endings)):
        ending = ".".join(endings[start:])
        for language, pattern in _BY_CONTENT.get(ending, ()):
            if pattern.search(head):
                return language
        if ending in _BY_EXTENSION:
            return _BY_EXTENSION[ending]
    return ""


def _by_interpreter(head: bytes) -> str:
    match = _SHEBANG.match(head)
    if match is None:
        return ""
    interpreter = (match[1] or match[2]).decode()
    return _BY_INTERPRETER.get(interpreter) or _BY_INTERPRETER.get(interpreter.rstrip("0123456789."), "")


def language_called(name: str) -> str:
    """`py`, `.ts` or `C++` -> what the language is called here; any other name as it is, in lower case."""
    name = name.lower()
    return name if name in _EXTENSIONS else _BY_EXTENSION.get(name.lstrip("."), name)


def route_of(language: str, path: bytes) -> str:
    """Which chunker a language goes to: markdown, notebook, config, text or code.

    OpenAPI needs the content: `is_openapi`.
    """
    if language == "markdown":
        return "markdown"
    if path.lower().endswith(_RECORD_PER_LINE):
        return "text"
    if path.lower().endswith(b".ipynb"):
        return "notebook"
    if language in CONFIG_LANGUAGES:
        return "config"
    return "text" if language in TEXT_LANGUAGES else "code"


def is_openapi(language: str, text: bytes) -> bool:
    """Whether a YAML or JSON document is an OpenAPI (or Swagger) description: its top level says so."""
    if language == "yaml":
        return _OPENAPI_YAML.search(text) is not None
    if language != "json" or _OPENAPI_JSON.search(text) is None:
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and ("openapi" in document or "swagger" in document)
