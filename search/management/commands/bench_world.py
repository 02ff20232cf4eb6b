"""`manage.py bench_world`: make synthetic repositories in an empty data folder, or time searches over them.

`manage.py bench` starts it with a folder of its own. It refuses a folder in which somebody keeps repositories.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from indexing import embedding
from indexing.access import Principal
from indexing.index_format import ModelInfo
from indexing.models import Index, Mirror, Repository
from search import pipeline
from search.hamming import top_rows
from search.pipeline import search, warm_up
from search.synthetic_index import MODEL, SyntheticQuestion, texts_of, write_index

QUESTIONS = 30
ROUNDS = 3
TOP = 100
MIRROR = "https://synthetic.invalid/world.git"


class Command(BaseCommand):
    help = "Make synthetic repositories in an empty data folder, or time searches over them; used by `bench`."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--make", nargs=2, type=int, metavar=("REPOSITORIES", "CHUNKS"), help="chunks of each")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        if Repository.objects.exclude(mirror__url=MIRROR).exists():
            raise CommandError(f"{settings.DATA_DIR} holds real repositories; `manage.py bench` makes its own folder.")
        if options["make"]:
            _make(*options["make"])
        else:
            # CPU time of this thread, which does all the work: the machine may be busy with something else.
            with patch.object(pipeline, "perf_counter", time.thread_time):
                self.stdout.write(json.dumps(_measured()))


def _make(repositories: int, chunks: int) -> None:
    mirror = Mirror.objects.create(url=MIRROR)
    rows = [Repository(mirror=mirror, name=f"synthetic/world{number}") for number in range(repositories)]
    rows = Repository.objects.bulk_create(rows)
    for row in rows:
        row.current_index = Index.objects.create(repository=row, commit="0" * 40, status=Index.Status.READY)
    Repository.objects.bulk_update(rows, ["current_index"])
    bare = _Bare.new()
    questions = []
    for row in rows:
        written = write_index(row.index_path, repository_id=row.pk, chunks=chunks)
        bare.add(texts_of(written), written.bits)
        questions.append(written.question)
    bare.finish()
    asked = questions[:: max(1, len(questions) // QUESTIONS)][:QUESTIONS]
    (_folder() / "questions.json").write_text(json.dumps([question.text for question in asked]))
    np.save(_folder() / "vectors.npy", np.stack([question.vector for question in asked]))


def _measured() -> dict[str, Any]:  # Any: JSON
    texts = json.loads((_folder() / "questions.json").read_text())
    vectors = np.load(_folder() / "vectors.npy")
    questions = [SyntheticQuestion(text, vector) for text, vector in zip(texts, vectors, strict=True)]
    given = _GivenVectors(questions)
    embedding.get_embedder = lambda: given  # type: ignore[assignment,return-value]
    warm_up()
    first = _asked(questions[0], defaultdict(list))
    bare = _Bare.opened()
    times: dict[str, list[list[float]]] = defaultdict(list)
    for _ in range(ROUNDS + 1):
        taken: dict[str, list[float]] = defaultdict(list)
        for question in questions:
            taken["search"].append(_asked(question, taken))
            bare.ask(question, taken)
        for name, values in taken.items():
            times[name].append(values)
    # The first round brings index files into memory. Of the others the best counts: others use this machine too.
    typical = {name: float(np.median(np.min(rounds[1:], axis=0))) for name, rounds in times.items()}
    return {"first": first, "cold": float(np.median(times["search"][0][1:])), "typical": typical}


def _asked(question: SyntheticQuestion, times: dict[str, list[float]]) -> float:
    """Milliseconds of the whole search but the embedding of the question."""
    took, result = _timed(lambda: search(question.text, principal=Principal.operator(), use_llm=False))
    for stage in result.trace.stages:
        if stage.name == "embed":
            took -= stage.milliseconds
        else:
            times[stage.name].append(stage.milliseconds)
    return took


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:  # Any: what the call returns
    begun = time.thread_time()
    result = call()
    return (time.thread_time() - begun) * 1000, result


def _folder() -> Path:
    return Path(settings.DATA_DIR)


class _GivenVectors:
    """Stands in for the embedding model, whose time is not what is measured."""

    info: ModelInfo = MODEL

    def __init__(self, questions: Sequence[SyntheticQuestion]) -> None:
        self._vectors = {question.text: question.vector for question in questions}

    def embed_queries(self, texts: Sequence[str]) -> np.typing.NDArray[np.float32]:
        return np.stack([self._vectors[text] for text in texts])


class _Bare:
    """The same words and bits without anything around them: one tantivy index, one matrix."""

    def __init__(self, index: Any, bits: np.typing.NDArray[np.uint64]) -> None:  # Any: tantivy's, which has no types
        self.index = index
        self.bits = bits
        self._writer: Any = None
        self._matrices: list[np.typing.NDArray[np.uint64]] = []

    @classmethod
    def new(cls) -> _Bare:
        import tantivy

        schema = tantivy.SchemaBuilder()
        schema.add_text_field("text", index_option="freq")
        (_folder() / "bare").mkdir()
        bare = cls(tantivy.Index(schema.build(), path=str(_folder() / "bare")), np.zeros((0, 6), np.uint64))
        bare._writer = bare.index.writer(500_000_000, 1)
        return bare

    @classmethod
    def opened(cls) -> _Bare:
        import tantivy

        return cls(tantivy.Index.open(str(_folder() / "bare")), np.load(_folder() / "bits.npy"))

    def add(self, texts: Any, bits: np.typing.NDArray[np.uint64]) -> None:  # Any: an iterable of texts
        import tantivy

        for text in texts:
            self._writer.add_document(tantivy.Document(text=text))
        self._matrices.append(bits)

    def finish(self) -> None:
        self._writer.commit()
        self._writer.wait_merging_threads()
        np.save(_folder() / "bits.npy", np.concatenate(self._matrices))

    def ask(self, question: SyntheticQuestion, times: dict[str, list[float]]) -> None:
        from indexing.quantizing import sign_bits

        bits = sign_bits(question.vector.reshape(1, -1))[0]
        searcher = self.index.searcher()
        query = self.index.parse_query(question.text, ["text"])
        words, _ = _timed(lambda: searcher.search(query, TOP))
        rows, _ = _timed(lambda: top_rows(bits, [self.bits], TOP))
        for name, took in {"tantivy": words, "hamming": rows, "bare": words + rows}.items():
            times[name].append(took)
