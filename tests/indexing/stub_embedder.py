"""A fast, deterministic stand-in for the embedding model: a bag of hashed words in 64 dimensions."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from indexing.index_format import ModelInfo
from indexing.tokenizing import terms


class StubEmbedder:
    """`fail_at` makes the n-th batch (from 1) raise; `hang_at` makes it wait until the test ends."""

    model_id = "stub"
    dimensions = 64

    def __init__(self, *, revision: str = "1", max_tokens: int = 256, hang_at: int = 0, fail_at: int = 0) -> None:
        self.revision = revision
        self.max_tokens = max_tokens
        self.too_long = 0
        self.texts: list[str] = []
        self.batches = 0
        self.hang_at = hang_at
        self.fail_at = fail_at
        self.released = threading.Event()

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(self.model_id, self.revision, self.dimensions, max_tokens=self.max_tokens)

    def count_tokens(self, text: str) -> int:
        return len(text.split()) + 2

    def embed_documents(self, texts: Sequence[str]) -> np.ndarray:
        self.batches += 1
        if self.batches == self.hang_at:
            self.released.wait(20)
        if self.batches == self.fail_at:
            raise RuntimeError("the model broke")
        assert all(self.count_tokens(text) <= self.max_tokens for text in texts)
        self.texts += texts
        return np.stack([_bag_of_words(text) for text in texts])

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        return np.stack([_bag_of_words(text) for text in texts])


def _bag_of_words(text: str) -> np.ndarray:
    vector = np.full(64, 0.01, dtype=np.float32)
    for term in terms(text):
        digest = blake2b(term.encode(), digest_size=2).digest()
        vector[digest[0] % 64] += 1 if digest[1] % 2 else -1
    return vector / np.linalg.norm(vector)
