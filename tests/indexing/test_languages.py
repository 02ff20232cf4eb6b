"""Names of languages and their routes."""

from __future__ import annotations

from typing import get_args

import pytest
from tree_sitter_language_pack import SupportedLanguage

from indexing import languages
from indexing.languages import is_openapi, language_of, route_of


@pytest.mark.parametrize(
    ("path", "head", "language"),
    [
        (b"src/a.py", b"", "python"),
        (b"A.KT", b"", "kotlin"),
        (b"x/Dockerfile", b"", "dockerfile"),
        (b"x/Dockerfile.prod", b"", "dockerfile"),
        (b"CMakeLists.txt", b"", "cmake"),
        (b"requirements-dev.txt", b"", "requirements"),
        (b"notes.txt", b"", "text"),
        (b"page.html.j2", b"", "html"),
        (b"bin/run", b"#!/usr/bin/env python3\n", "python"),
        (b"bin/run", b"#!/usr/bin/env -S deno run\n", "typescript"),
        (b"bin/run", b"#!/bin/sh -e\n", "bash"),
        (b"bin/run", b"\x7fELF", "text"),
        (b"caf\xe9.rs", b"", "rust"),
        (b"a.b/README", b"", "text"),
    ],
)
def test_it_names_the_language(path: bytes, head: bytes, language: str) -> None:
    assert language_of(path, head) == language


@pytest.mark.parametrize(
    ("path", "head", "language"),
    [
        (b"a.h", b"int add(int a);\n", "c"),
        (b"a.h", b"#include <vector>\nclass Cart {\n", "cpp"),
        (b"a.h", b"#import <Foundation.h>\n@interface Cart\n", "objc"),
        (b"a.m", b"function y = f(x)\n", "matlab"),
        (b"a.ts", b"<?xml version='1.0'?>\n<!DOCTYPE TS>", "xml"),
        (b"a.ts", b"export const a = 1\n", "typescript"),
        (b"a.pp", b"unit Cart;\n", "pascal"),
        (b"a.v", b"module add(input a);\n", "verilog"),
    ],
)
def test_it_reads_the_head_when_languages_share_an_extension(path: bytes, head: bytes, language: str) -> None:
    assert language_of(path, head) == language


def test_it_knows_every_language_of_the_pack() -> None:
    known = {*languages._BY_EXTENSION.values(), *languages._BY_NAME.values()}
    known |= {language for rules in languages._BY_CONTENT.values() for language, _ in rules}
    assert set(get_args(SupportedLanguage)) - known == languages.EMBEDDED_ONLY


@pytest.mark.parametrize(
    ("path", "route"),
    [
        (b"a.go", "code"),
        (b"README.md", "markdown"),
        (b"docs/a.mdx", "markdown"),
        (b"docs/a.rst", "text"),
        (b"a.yaml", "config"),
        (b"Makefile", "config"),
        (b"schema.sql", "config"),
        (b"data.csv", "text"),
        (b"events.jsonl", "text"),
        (b"LICENSE", "text"),
    ],
)
def test_it_routes_to_a_chunker(path: bytes, route: str) -> None:
    assert route_of(language_of(path, b""), path) == route


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("yaml", b"# api\nopenapi: 3.0.3\npaths: {}\n", True),
        ("yaml", b"swagger: '2.0'\n", True),
        ("yaml", b"info:\n  openapi: 3.0.3\n", False),
        ("json", b'{"paths": {}, "openapi": "3.1.0"}', True),
        ("json", b'{"dependencies": {"openapi": "3.1.0"}}', False),
        ("json", b'{"openapi": "3.1.0"', False),
        ("python", b"openapi: 3.0.3\n", False),
    ],
)
def test_it_recognises_openapi_by_its_top_level(language: str, text: bytes, expected: bool) -> None:
    assert is_openapi(language, text) is expected


def test_a_language_is_called_by_its_name_before_any_extension() -> None:
    names = {*languages._EXTENSIONS, *languages._NAMES, *languages._INTERPRETERS, *languages.TEXT_LANGUAGES}
    assert {name for name in names if languages.language_called(name) != name} == set()
    assert [languages.language_called(name) for name in ("MD", ".rs", "c", "c#")] == ["markdown", "rust", "c", "c#"]
