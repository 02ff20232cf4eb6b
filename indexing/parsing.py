"""tree-sitter: the UTF-8 text of a source file -> its definitions, imports and syntax tree.

Never raises for bad input: a grammar that is missing or fails, a parse that takes too long or a tree that cannot be
read gives a `ParsedFile` without definitions whose `fallback` says why; such a file is chunked by lines.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """Something a person can name. Bytes are 0-based and end-exclusive, lines 1-based and inclusive.

    `start_byte` includes documentation, decorators, annotations and modifiers; `head_byte` is where the declaration
    itself begins (after documentation and decorators), `body_byte` where its body begins (`end_byte` without one).
    """

    name: str
    qualified_name: str  # parents joined with ".", without the package
    kind: str  # function, method, class, interface, struct, enum, trait, module, constant, type, macro, test, field ...
    start_byte: int
    end_byte: int
    name_byte: int
    start_line: int
    end_line: int
    parent: int  # index into the file's definitions, -1 at the top
    head_byte: int
    body_byte: int


@dataclass(frozen=True, slots=True)
class ParsedFile:
    definitions: tuple[Definition, ...] = ()  # by start, outer before inner
    imports: tuple[str, ...] = ()  # module names as written: "flask.sessions", "./utils", "crate::de"
    import_ranges: tuple[tuple[int, int], ...] = ()  # bytes of the import statements
    package: str = ""  # what the language declares: "org.example", "cobra"; empty when it declares nothing
    fallback: str = ""  # why the file was cut by lines; empty when its tree was used
