"""`manage.py bench_world`: make synthetic repositories in an empty data folder, or time searches over them.

`manage.py bench` starts it with a folder of its own. It refuses a folder in which somebody keeps repositories.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
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
from indexing.quantizing import sign_bits
from search import pipeline
from search.hamming import top_rows
from search.pipeline import search, warm_up
from search.synthetic_index import (
    CHUNKS_PER_FILE,
    DESCRIBED,
    MODEL,
    SyntheticQuestion,
    SyntheticRepository,
    texts_of,
    write_index,
)

QUESTIONS = 30
ROUNDS = 10
TOP = 100
BARE_FIELDS = {"bare_chunks": ("code", "descriptions"), "bare_files": ("code",)}
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
        bare.add(written)
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
    """The same words and bits without anything around them: a tantivy index of chunks, one of files, one matrix."""

    def __init__(self, chunks: Any, files: Any, bits: np.typing.NDArray[np.uint64]) -> None:  # Any: tantivy's, untyped
        self.chunks = chunks
        self.files = files
        self.bits = bits
        self.file_bits = np.ascontiguousarray(bits[::CHUNKS_PER_FILE])
        self._writers: list[Any] = []
        self._matrices: list[np.typing.NDArray[np.uint64]] = []

    @classmethod
    def new(cls) -> _Bare:
        import tantivy

        indexes: list[Any] = []  # Any: tantivy's
        for name, fields in BARE_FIELDS.items():
            schema = tantivy.SchemaBuilder()
            for field in fields:
                schema.add_text_field(field, index_option="freq")
            (_folder() / name).mkdir()
            indexes.append(tantivy.Index(schema.build(), path=str(_folder() / name)))
        bare = cls(indexes[0], indexes[1], np.zeros((0, 6), np.uint64))
        bare._writers = [index.writer(250_000_000, 1) for index in indexes]
        return bare

    @classmethod
    def opened(cls) -> _Bare:
        import tantivy

        chunks, files = (tantivy.Index.open(str(_folder() / name)) for name in BARE_FIELDS)
        return cls(chunks, files, np.load(_folder() / "bits.npy"))

    def add(self, written: SyntheticRepository) -> None:
        import tantivy

        chunks, files = self._writers
        of_file: list[str] = []
        for number, text in enumerate(texts_of(written.words), 1):
            described = " ".join(text.split(" ")[::DESCRIBED])
            chunks.add_document(tantivy.Document(code=text, descriptions=described))
            of_file.append(text)
            if number % CHUNKS_PER_FILE == 0 or number == len(written.words):
                files.add_document(tantivy.Document(code=" ".join(of_file)))
                of_file.clear()
        self._matrices.append(written.bits)

    def finish(self) -> None:
        for writer in self._writers:
            writer.commit()
            writer.wait_merging_threads()
        np.save(_folder() / "bits.npy", np.concatenate(self._matrices))

    def ask(self, question: SyntheticQuestion, times: dict[str, list[float]]) -> None:
        """One list of each kind; then as many as the search has: four of words, three of vectors."""
        bits = sign_bits(question.vector.reshape(1, -1))[0]
        terms = [_bm25(index, question.text, field) for index, field in self._term_lists()]
        nearest = [_timed(partial(top_rows, bits, [rows], TOP))[0] for rows in (self.bits, self.bits, self.file_bits)]
        times["tantivy"].append(terms[0])
        times["hamming"].append(nearest[0])
        times["bare"].append(terms[0] + nearest[0])
        times["bare, all lists"].append(sum(terms) + sum(nearest))

    def _term_lists(self) -> list[tuple[Any, str]]:  # Any: tantivy's
        """Stems and terms are the same here."""
        return [(self.chunks, "code"), (self.chunks, "code"), (self.chunks, "descriptions"), (self.files, "code")]


def _bm25(index: Any, text: str, field: str) -> float:  # Any: tantivy's
    """Milliseconds of the best TOP."""
    searcher, query = index.searcher(), index.parse_query(text, [field])
    return _timed(lambda: searcher.search(query, TOP))[0]
