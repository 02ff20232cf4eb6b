from __future__ import annotations

import pytest

from search.centrality import centrality, file_key, import_key
from tests.search.conftest import Indexed, corpus_of


@pytest.mark.parametrize(
    ("path", "key"),
    [(b"src/Foo/BarBaz.py", "barbaz"), (b"foo/__init__.py", "foo"), (b"src/de/mod.rs", "de"), (b"index.js", "index")],
)
def test_it_names_a_file_as_others_import_it(path: bytes, key: str) -> None:
    assert file_key(path) == key


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("./utils/buildURL.js", "buildurl"),
        ("crate::de::Visitor", "visitor"),
        ("flask.sessions", "sessions"),
        ("<nlohmann/detail/meta.hpp>", "meta"),
        ("../core/index.js", "core"),
        ("", ""),
    ],
)
def test_it_names_an_import_by_what_it_ends_in(name: str, key: str) -> None:
    assert import_key(name) == key


def test_it_gives_the_most_imported_file_the_most(indexed: Indexed) -> None:
    files = {f"user_{i}.py": "import hub\nimport side\n" if i == 0 else "import hub\n" for i in range(4)}
    repository = indexed("acme/web", {**files, "hub.py": "x = 1\n", "side.py": "y = 1\n"})
    index = corpus_of(repository).sources[0].index
    values = dict(zip([index.segments[0].paths.raw(row) for row in range(6)], centrality(index), strict=True))
    assert values[b"hub.py"] == 1.0
    assert values[b"hub.py"] > values[b"side.py"] > values[b"user_0.py"]
