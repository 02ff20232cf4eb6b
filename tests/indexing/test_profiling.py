from __future__ import annotations

import numpy as np
import pytest

from indexing.profiling import FileFlag, TermCounter, centroids, path_flags, readme_span


@pytest.mark.parametrize(
    ("path", "flags"),
    [
        (b"src/app.py", 0),
        (b"tests/unit/app.py", FileFlag.TEST),
        (b"src/test_app.py", FileFlag.TEST),
        (b"pkg/server_test.go", FileFlag.TEST),
        (b"src/UserServiceTest.java", FileFlag.TEST),
        (b"src/app.spec.ts", FileFlag.TEST),
        (b"src/latest.py", 0),
        (b"src/Contest.java", 0),
        (b"src/inspect.py", 0),
        (b"examples/demo.py", FileFlag.EXAMPLE),
        (b"docs/intro.md", FileFlag.DOCS),
        (b"README.rst", FileFlag.DOCS),
        (b"package.json", FileFlag.CONFIG),
        (b"pydantic/v1/_compat.py", FileFlag.LEGACY),
        (b"src/legacy/App.kt", FileFlag.LEGACY),
        (b"tests/examples/x.yml", FileFlag.TEST | FileFlag.EXAMPLE | FileFlag.CONFIG),
        (b"\xff/tests/a.py", FileFlag.TEST),
    ],
)
def test_it_marks_files_by_their_path(path: bytes, flags: int) -> None:
    assert path_flags(path) == flags


def test_it_ranks_terms_by_the_files_they_name() -> None:
    counter = TermCounter()
    counter.add(["open_session", "close_session"])
    counter.add(["Session", "db"])
    counter.add(["closeRequest"])
    assert counter.top()[:2] == ("close", "session")
    assert "db" not in counter.top()


def test_it_bounds_the_terms_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TermCounter, "MAXIMUM", 4)
    counter = TermCounter()
    counter.add(["alpha"])
    for name in ("alpha", "beta", "gamma", "delta", "omega"):
        counter.add([name])
    assert counter.top()[0] == "alpha"
    assert len(counter.top()) <= 4


def test_it_finds_the_first_paragraph_of_the_readme() -> None:
    raw = b"# Title\n\n[![badge](x)](y)\n\nA small library that keeps sessions\nof people in signed cookies.\n\nMore.\n"
    span = readme_span(b"README.md", "ab", "utf-8", raw)
    assert span is not None
    assert raw[span.start_byte : span.end_byte].startswith(b"A small library")
    assert raw[span.start_byte : span.end_byte].endswith(b"signed cookies.")
    assert readme_span(b"docs/README.md", "ab", "utf-8", raw) is None
    assert readme_span(b"README.md", "ab", "utf-8", b"# only a title\n") is None


def test_it_finds_the_groups_of_vectors() -> None:
    axes = np.eye(3, dtype=np.float16)
    vectors = np.concatenate([np.repeat(axes[:1], 6, axis=0), np.repeat(axes[1:2], 4, axis=0)])
    centres, weights = centroids(vectors)
    assert np.allclose(centres, axes[:2], atol=1e-3)
    assert weights.tolist() == pytest.approx([0.6, 0.4])


def test_it_gives_the_same_unit_centroids_again() -> None:
    vectors = np.random.default_rng(1).normal(size=(500, 16)).astype(np.float32)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    centres, weights = centroids(vectors)
    assert len(centres) == 32
    assert np.allclose(np.linalg.norm(centres.astype(np.float32), axis=1), 1, atol=1e-2)
    assert weights.sum() == pytest.approx(1)
    assert np.array_equal(centres, centroids(vectors)[0])


def test_it_has_no_centroids_without_vectors() -> None:
    centres, weights = centroids(np.zeros((0, 8), dtype=np.float16))
    assert (centres.shape, weights.shape) == ((0, 8), (0,))
