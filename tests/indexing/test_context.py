from __future__ import annotations

import pytest
from pytest_django import Settings

from indexing.chunking import chunk_file
from indexing.context import EmbeddedTexts, embedded_texts, extractive_description, file_text, normalise, shorten_path
from indexing.walking import SourceFile
from tests.indexing.sources import make_source

COMPLEX = """\
from utilities import format_complex
import math

class ComplexNumber:

    def __init__(self, real, imag):
        self.real = real
        self.imag = imag

    def modulus(self):
        return math.sqrt(self.real**2 + self.imag**2)

    def add(self, other):
        return ComplexNumber(self.real + other.real, self.imag + other.imag)

    def multiply(self, other):
        new_real = self.real * other.real - self.imag * other.imag
        new_imag = self.real * other.imag + self.imag * other.real
        return ComplexNumber(new_real, new_imag)

    def __str__(self):
        return format_complex(self.real, self.imag)
"""


def _count(text: str) -> int:
    """About three characters a token, and two marks."""
    return 2 + (len(text) + 2) // 3


def _embedded(source: SourceFile, max_tokens: int = 256) -> dict[str, EmbeddedTexts]:
    """Symbol (for outlines with a star) -> texts."""
    chunked = chunk_file(source)
    texts = embedded_texts(source, chunked, count_tokens=_count, max_tokens=max_tokens)
    names = [item.symbol + "*" * (item.role == "outline") for item in chunked.chunks]
    return dict(zip(names, texts, strict=True))


@pytest.mark.parametrize(
    ("path", "limit", "shortened"),
    [
        ("src/app.py", 80, "src/app.py"),
        ("a/b/c/d.py", 10, "a/b/c/d.py"),
        ("community/plugins/kotlin/idea/src/Main.kt", 35, "community/plugins/…/src/Main.kt"),
        ("community/plugins/kotlin/idea/src/Main.kt", 38, "community/plugins/kotlin/…/src/Main.kt"),
        ("community/plugins/kotlin/idea/src/Main.kt", 20, "…/src/Main.kt"),
        ("community/plugins/kotlin/idea/src/Main.kt", 11, "src/Main.kt"),
        ("community/plugins/kotlin/idea/src/Main.kt", 10, "Main.kt"),
        ("parent/name_that_is_long.py", 20, "name_that_is_long.py"),
        ("a_single_name_above_the_limit.py", 10, "a_single_name_above_the_limit.py"),
    ],
)
def test_it_shortens_a_path_so_that_both_ends_survive(path: str, limit: int, shortened: str) -> None:
    assert shorten_path(path, limit) == shortened


def test_it_embeds_a_method_with_import_class_header_constructor_and_elision() -> None:
    assert _embedded(make_source("complex.py", COMPLEX))["ComplexNumber.__str__"].rows == (
        """\
complex.py
ComplexNumber.__str__
from utilities import format_complex
class ComplexNumber:
    def __init__(self, real, imag):
        self.real = real
        self.imag = imag
    # …
    def __str__(self):
        return format_complex(self.real, self.imag)""",
    )


def test_it_says_nothing_of_an_elision_where_nothing_is_left_out() -> None:
    [row] = _embedded(make_source("complex.py", COMPLEX))["ComplexNumber.modulus"].rows
    assert "…" not in row
    assert row.splitlines()[2:4] == ["import math", "class ComplexNumber:"]


def test_it_outlines_a_class_by_header_and_signatures() -> None:
    [row] = _embedded(make_source("complex.py", COMPLEX))["ComplexNumber*"].rows
    assert row.splitlines()[2:5] == [
        "class ComplexNumber:",
        "    def __init__(self, real, imag):",
        "    def modulus(self):",
    ]


def test_it_uses_the_comment_of_the_language_and_finds_the_type_of_a_receiver() -> None:
    filler = '\tfmt.Println(c.name, "words that fill the line of a method")\n' * 5
    content = (
        'package p\n\nimport (\n\t"fmt"\n\t"os"\n)\n\n// Command is.\ntype Command struct {\n\tname string\n}\n\n'
        f"func (c *Command) First() {{\n{filler}}}\n\nfunc (c *Command) Second() {{\n{filler}}}\n"
    )
    [row] = _embedded(make_source("cmd.go", content))["p.Command.Second"].rows
    assert row.splitlines()[1:] == [
        "p.Command.Second",
        '"fmt"',
        "type Command struct {",
        "\tname string",
        "}",
        "// …",
        "func (c *Command) Second() {",
        *filler.splitlines(),
        "}",
    ]


def test_it_adds_the_fields_that_a_method_uses() -> None:
    filler = '    log(used, "words that fill the line of a method");\n' * 6
    fields = "  int used = 1;\n  int unused = 2;\n\n"
    content = f"class A {{\n{fields}  void f() {{\n{filler}  }}\n\n  void g() {{\n{filler}  }}\n}}\n"
    [row] = _embedded(make_source("A.java", content))["A.g"].rows
    assert row.splitlines()[2:5] == ["class A {", "  int used = 1;", "  // …"]


def test_it_names_the_function_in_every_part_of_it() -> None:
    body = "".join(f"    value = step_{number}(value, 'words that fill the line')\n" for number in range(60))
    source = make_source("a.py", f"def long(value):\n{body}    return value\n")
    chunked = chunk_file(source)
    last = embedded_texts(source, chunked, count_tokens=_count, max_tokens=256)[-1]
    assert last.rows[0].startswith("a.py\nlong\ndef long(value):\n    # …\n    value = step_")


def test_it_drops_noise_annotations_from_the_embedded_text_only() -> None:
    content = (
        'class A {\n  @Override\n  @SuppressWarnings("x")\n  @Transactional\n'
        "  public void f(@NotNull String a) { run(a); }\n}\n"
    )
    source = make_source("A.java", content)
    [row] = _embedded(source)["A"].rows
    assert row == "A.java\nA\nclass A {\n  @Transactional\n  public void f(String a) { run(a); }\n}"
    [item] = chunk_file(source).chunks
    assert b"@Override" in source.raw[item.start_byte : item.end_byte]


def test_it_normalises_blank_lines_and_common_indentation() -> None:
    assert normalise("\n    if a:\n\n        b\n    \n    c  \n", "python") == "if a:\n    b\nc"


def test_it_repeats_the_last_lines_before_a_range_of_lines(settings: Settings) -> None:
    settings.LINE_CHUNK_LINES, settings.LINE_CHUNK_OVERLAP = 10, 4
    source = make_source("notes.txt", "".join(f"entry {number}\n" for number in range(1, 21)))
    texts = embedded_texts(source, chunk_file(source), count_tokens=_count, max_tokens=256)
    assert texts[1].rows[0].splitlines() == ["notes.txt", *(f"entry {number}" for number in range(7, 17))]


def test_it_splits_what_overflows_the_window_into_rows_with_the_title() -> None:
    source = make_source("notes/long.txt", "some plain words in a line\n" * 40)
    [texts] = embedded_texts(source, chunk_file(source), count_tokens=_count, max_tokens=100)
    assert len(texts.rows) > 2
    assert all(row.startswith("notes/long.txt\nsome") and _count(row) <= 100 for row in texts.rows)


def test_it_gives_the_context_at_most_a_third_of_the_window() -> None:
    imports = "".join(f"from package import name_{number}_that_is_long\n" for number in range(9))
    uses = "".join(f"        name_{number}_that_is_long()\n" for number in range(9))
    content = (
        f"{imports}\nclass A:\n    def __init__(self):\n{uses}\n    def f(self):\n{uses}\n    def g(self):\n{uses}"
    )
    [row] = _embedded(make_source("a.py", content), max_tokens=150)["A.g"].rows
    context = row[: row.index("    def g(self)")]
    assert _count(context) <= 50
    assert "class A:" in context


def test_it_masks_secrets_also_where_a_key_is_cut_by_chunks() -> None:
    body = "".join("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2\n" for _ in range(60))
    source = make_source("notes.txt", "-----BEGIN NOTE-----\n" + "text\n" * 3 + body)
    texts = embedded_texts(source, chunk_file(source), count_tokens=_count, max_tokens=256)
    assert not any("QUJDREVG" in row for text in texts for row in text.rows)
    token = "ghp_" + "a1B2" * 9
    [first, *_] = _embedded(make_source("a.py", f'# é\nTOKEN = "{token}"\n')).values()
    assert token not in first.rows[0] + first.description
    assert "TOKEN" in first.rows[0]


def test_it_describes_a_method_by_name_place_documentation_and_parameters() -> None:
    content = COMPLEX.replace(
        "    def add(self, other):\n", '    def add(self, other):\n        """Sum of two numbers. More."""\n'
    )
    source = make_source("lib/maths/complex.py", content)
    chunked = chunk_file(source)
    position = next(i for i, item in enumerate(chunked.chunks) if item.symbol == "ComplexNumber.add")
    assert extractive_description(source, chunked, position) == (
        "add: method of complex number in lib maths complex. Sum of two numbers. self other"
    )


@pytest.mark.parametrize(
    ("path", "content", "sentence"),
    [
        ("a.go", "package p\n\n// Run runs it.\n// Twice.\nfunc Run() int { return 1 }\n", "Run runs it."),
        (
            "a.js",
            "/**\n * Set the cookie `name`.\n *\n * @param {String} a\n */\nfunction set(a) { return a }\n",
            "Set the cookie name.",
        ),
        ("a.rs", "/// Reads all of it.\n#[inline]\nfn read() -> u8 { 1 }\n", "Reads all of it."),
        (
            "a.ex",
            'defmodule A do\n  @doc """\n  Fetches one row.\n  """\n  def one(a), do: a\nend\n',
            "Fetches one row.",
        ),
        ("a.hs", "module A where\n-- | Parse a value.\nparse :: Int\nparse = 1\n", "Parse a value."),
        ("a.md", "# Install\n\nRun the installer. Then wait.\n", "Run the installer."),
    ],
)
def test_it_takes_the_first_sentence_of_the_documentation(path: str, content: str, sentence: str) -> None:
    source = make_source(path, content)
    chunked = chunk_file(source)
    found = [extractive_description(source, chunked, position) for position in range(len(chunked.chunks))]
    assert any(sentence in text for text in found) or sentence in file_text(source, chunked)


def test_it_makes_a_file_of_path_names_and_sentences() -> None:
    source = make_source("lib/complex.py", '"""Complex numbers, by hand."""\n' + COMPLEX)
    lines = file_text(source, chunk_file(source)).splitlines()
    assert lines[:2] == ["lib/complex.py", "Complex numbers, by hand."]
    assert lines[2].startswith("ComplexNumber, ComplexNumber.__init__, ComplexNumber.modulus")
