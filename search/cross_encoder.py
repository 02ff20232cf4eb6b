"""A question and passages -> how well they fit, by a cross-encoder of sentence-transformers on this machine.

RERANK_MODEL names it: `local/` and a folder, or the name of a model whose files are here already. Nothing is
downloaded, and no code that comes with a model is run.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from django.conf import settings

from indexing import embedding  # sets what the libraries read when they are imported
from indexing.errors import EmbeddingError
from indexing.llm import LOCAL_RERANKER

MAX_TOKENS = 512  # of question and passage together; cross-encoders are trained with no more
BATCH = 8

_lock = threading.Lock()  # the tokenizer is not to be shared between threads


def relevances(question: str, passages: Sequence[str]) -> dict[int, float]:
    """Position of the passage -> score, higher is better. Raises EmbeddingError."""
    with _lock:
        model = _loaded(settings.RERANK_MODEL.removeprefix(LOCAL_RERANKER))
        pairs = [(question, passage) for passage in passages]
        try:
            scores = model.predict(pairs, batch_size=BATCH, show_progress_bar=False)
        except (RuntimeError, ValueError, IndexError) as error:
            raise EmbeddingError(f"The re-ranking model failed: {type(error).__name__}.") from error
    if scores.ndim != 1:
        raise EmbeddingError("RERANK_MODEL gives several scores a passage: use a cross-encoder with one label.")
    return {position: float(score) for position, score in enumerate(scores)}


@lru_cache(maxsize=1)
def _loaded(name: str) -> Any:  # Any: CrossEncoder, imported on first use
    import torch
    from sentence_transformers import CrossEncoder

    try:
        return CrossEncoder(
            name,
            device="cpu",
            max_length=MAX_TOKENS,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"dtype": torch.bfloat16 if embedding.uses_bfloat16() else torch.float32},
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise EmbeddingError(
            f"The cross-encoder {name} cannot be loaded. Set RERANK_MODEL to local/ and the folder of its files."
        ) from error
