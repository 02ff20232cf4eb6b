from __future__ import annotations

from indexing.chunking import chunk_file
from tests.indexing.sources import chunk, make_source, symbols, texts, uncovered

WORDS = "Some words that make a section long enough to stand alone in the list. " * 4 + "\n\n"


def test_it_names_sections_by_their_heading_path() -> None:
    content = f"# Install\n\n{WORDS}## From source\n\n{WORDS}## From a package\n\n{WORDS}# Use\n\n{WORDS}"
    chunked = chunk("README.md", content)
    assert symbols(chunked) == ["Install", "Install > From source", "Install > From a package", "Use"]
    assert {item.kind for item in chunked.chunks} == {"section"}


def test_it_joins_a_lone_title_with_what_is_under_it() -> None:
    content = f"# Guide\n\n## First steps\n\n{WORDS}## Next\n\n{WORDS}"
    assert symbols(chunk("README.md", content)) == ["Guide > First steps", "Guide > Next"]
    assert texts(content, chunk("README.md", content))[0].startswith("# Guide")


def test_it_ignores_hashes_in_fenced_code_and_front_matter() -> None:
    content = f"---\n# not a heading\ntitle: x\n---\n# Real\n\n{WORDS}```sh\n# comment\n```\n\n{WORDS}"
    assert set(symbols(chunk("README.md", content))) == {"Real"}


def test_it_reads_underlined_headings() -> None:
    content = f"Install\n=======\n\n{WORDS}From source\n-----------\n\n{WORDS}"
    assert symbols(chunk("README.md", content)) == ["Install", "Install > From source"]


def test_it_cuts_a_long_section_between_paragraphs() -> None:
    content = "# Long\n\n" + WORDS * 12
    pieces = texts(content, chunk("README.md", content))
    assert len(pieces) > 1
    assert all(len(piece) <= 1500 for piece in pieces)
    assert all(piece.endswith("list.") for piece in pieces)


def test_it_keeps_markup_out_of_the_path() -> None:
    assert symbols(chunk("README.md", f"# The `run` [command](x.md) #\n\n{WORDS}")) == ["The run command"]


def test_it_reads_restructuredtext() -> None:
    content = f"=====\nGuide\n=====\n\n{WORDS}Install\n=======\n\n{WORDS}Linux\n-----\n\n{WORDS}"
    assert symbols(chunk("docs/guide.rst", content)) == ["Guide", "Guide > Install", "Guide > Install > Linux"]


def test_it_covers_every_byte_of_a_document_in_any_encoding() -> None:
    content = f"Предисловие\n\n# Установка\n\n{WORDS}## Из исходников\n\n" + "Слова. " * 500
    source = make_source("README.md", content.encode("utf-16"))
    chunked = chunk_file(source)
    cited = "".join(source.raw[item.start_byte : item.end_byte].decode(source.encoding) for item in chunked.chunks)
    assert "".join(cited.split()) == "".join(content.split())
    assert chunked.chunks[-1].symbol == "Установка > Из исходников"


def test_it_survives_an_unclosed_fence() -> None:
    content = f"# A\n\n{WORDS}```\n# B\n\n" + WORDS * 8
    assert uncovered(content.encode(), chunk("README.md", content)) == b""
