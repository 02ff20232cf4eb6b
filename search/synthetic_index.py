"""Random indexes of any size in the real format, so that speed can be measured at sizes that nobody has at hand.

In: how many repositories of how many chunks. Out: index files, and questions with the words and the vector of one of
their chunks. Lengths and repetitions of words are those of 25 real repositories, words follow Zipf's law, every
repository has some of its own, and its vectors lie around its topic: what is measured is time, never quality. Nothing
is synced or hashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.index_format import (
    CHUNK_DTYPE,
    DEFINITION_DTYPE,
    FILE_DTYPE,
    MANIFEST,
    SEGMENTS,
    Coverage,
    Manifest,
    ModelInfo,
    PartInfo,
    ProfileInfo,
    SegmentInfo,
)
from indexing.index_writing import starts_of
from indexing.profiling import CENTROIDS
from indexing.quantizing import sign_bits
from indexing.tokenizing import term_hash

DIMENSIONS = 384
MODEL = ModelInfo(id="synthetic", revision="1", dimensions=DIMENSIONS)
CHUNKS_PER_FILE = 5
IMPORTS_PER_FILE = 4
WORDS_PER_CHUNK = 72
DESCRIBED = 6  # one of so many words of a chunk is in its description
DISTINCT_WORDS = 46  # of a chunk
SHARED_WORDS = 6_000
OWN_WORDS = 500  # of one repository
OWN_SHARE = 0.3  # of a chunk's words
QUESTION_WORDS = 6
TOPIC_SHARE = 0.5  # of a vector that its repository's topic makes up

_CONSONANTS, _VOWELS = "bdfgklmnprtvz", "ou"

Words = NDArray[np.int64]  # numbers of words


@dataclass(frozen=True, slots=True)
class SyntheticQuestion:
    text: str
    vector: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SyntheticRepository:
    """What was written, for whoever indexes the same data by other means. words: (chunks, WORDS_PER_CHUNK)."""

    words: Words
    bits: NDArray[np.uint64]
    question: SyntheticQuestion


def word(number: int) -> str:
    """A pronounceable word that no stemmer shortens: 0 -> "bobok"."""
    text = ""
    for _ in range(2):
        number, consonant = divmod(number, len(_CONSONANTS))
        number, vowel = divmod(number, len(_VOWELS))
        text += _CONSONANTS[consonant] + _VOWELS[vowel]
    while number:
        number, consonant = divmod(number, len(_CONSONANTS))
        number, vowel = divmod(number, len(_VOWELS))
        text += _CONSONANTS[consonant] + _VOWELS[vowel]
    return text + "k"


def write_index(directory: Path, *, repository_id: int, chunks: int) -> SyntheticRepository:
    """`directory` becomes the published index of that repository."""
    random = np.random.default_rng(repository_id)
    words = _draw_words(random, repository_id, chunks)
    files = -(-chunks // CHUNKS_PER_FILE)
    folder = _Folder(directory / SEGMENTS / "1")
    vectors = _draw_vectors(random, chunks)
    _write_coordinates(folder, random, chunks, files)
    _write_terms(folder, words, files)
    file_vectors = vectors[::CHUNKS_PER_FILE]
    for name, rows in {"code": vectors, "descriptions": vectors, "files": file_vectors}.items():
        _write_vectors(folder, name, rows)
    profile = _Folder(directory / SEGMENTS / "profile")
    centres = vectors[:CENTROIDS]
    weights = np.full(len(centres), 1 / len(centres), np.float32)
    profile.save("centroids.floats", centres)
    profile.save("centroids.bits", sign_bits(centres))
    profile.save("centroids.weights", weights)
    manifest = Manifest(
        repository_id=repository_id,
        index_id=1,
        commit="0" * 40,
        generation=1,
        created="2024-01-01T00:00:00+00:00",
        model=MODEL,
        segments=(SegmentInfo("1", files, chunks, ("Python",), ("utf-8",), ("function",), folder.parts),),
        coverage=Coverage(1.0, 1.0, 0.0),
        profile=ProfileInfo(id="profile", languages={"Python": chunks}, parts=profile.parts),
    )
    (directory / MANIFEST).write_text(manifest.to_json())
    return SyntheticRepository(words, sign_bits(vectors), _question(random, words, vectors))


class _Folder:
    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.path = path
        self.parts: dict[str, PartInfo] = {}

    def save(self, name: str, values: NDArray[Any]) -> None:  # Any: each part has its own dtype
        file = self.path / f"{name}.npy"
        np.save(file, values)
        self.parts[name] = PartInfo(file.name, file.stat().st_size, "")

    def save_strings(self, name: str, texts: Sequence[str]) -> None:
        raws = [text.encode() for text in texts]
        self.save(f"{name}.blob", np.frombuffer(b"".join(raws), np.uint8))
        self.save(f"{name}.starts", starts_of([len(raw) for raw in raws], np.uint64))


def _draw_words(random: np.random.Generator, repository_id: int, chunks: int) -> Words:
    """Rank r is drawn about as often as 1 / r says, and each chunk repeats its few words."""
    shape = (chunks, DISTINCT_WORDS)
    shared = np.exp(random.random(shape) * np.log(SHARED_WORDS)).astype(np.int64)
    own = np.exp(random.random(shape) * np.log(OWN_WORDS)).astype(np.int64) + SHARED_WORDS + repository_id * OWN_WORDS
    distinct = np.where(random.random(shape) < OWN_SHARE, own, shared)
    places = random.integers(0, DISTINCT_WORDS, (chunks, WORDS_PER_CHUNK))
    return np.take_along_axis(distinct, places, axis=1)


def _draw_vectors(random: np.random.Generator, chunks: int) -> NDArray[np.float16]:
    topics = random.standard_normal((8, DIMENSIONS), np.float32)
    rows = random.standard_normal((chunks, DIMENSIONS), np.float32)
    rows = TOPIC_SHARE * topics[random.integers(0, 8, chunks)] + (1 - TOPIC_SHARE) * rows
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float16)


def _write_coordinates(folder: _Folder, random: np.random.Generator, chunks: int, files: int) -> None:
    names = [word(int(number)) for number in random.integers(0, SHARED_WORDS, files)]
    paths = sorted(f"src/{name}{number}/{name}.py" for number, name in enumerate(names))
    folder.save_strings("paths", paths)
    folder.save_strings("strings", names)
    folder.save("blobs", random.integers(0, 256, (files, 20), np.uint8))
    file_rows = np.zeros(files, FILE_DTYPE)
    file_rows["lines"] = 40 * CHUNKS_PER_FILE
    folder.save("files", file_rows)
    of_chunk = np.arange(chunks) // CHUNKS_PER_FILE
    folder.save("file_chunks", starts_of(np.bincount(of_chunk, minlength=files), np.uint32))
    rows = np.zeros(chunks, CHUNK_DTYPE)
    rows["content_hash"] = random.integers(0, 2**63, chunks)
    rows["file"], rows["symbol"] = of_chunk, of_chunk
    rows["start_byte"] = 1000 * (np.arange(chunks) % CHUNKS_PER_FILE)
    rows["end_byte"], rows["start_line"], rows["end_line"] = rows["start_byte"] + 900, 1, 30
    rows["first_definition"], rows["definitions"] = np.arange(chunks), 1
    folder.save("chunks", rows)
    definitions = np.zeros(chunks, DEFINITION_DTYPE)
    definitions["name"] = definitions["qualified_name"] = of_chunk
    definitions["chunk"], definitions["start_line"], definitions["end_line"] = np.arange(chunks), 1, 30
    definitions["parent"] = -1
    folder.save("definitions", definitions)
    hashes = np.array([term_hash(name) for name in names], np.uint64)[of_chunk]
    order = np.argsort(hashes, kind="stable")
    folder.save("names.hashes", hashes[order])
    folder.save("names.rows", order.astype(np.uint32))
    folder.save("imports.rows", random.integers(0, files, files * IMPORTS_PER_FILE).astype(np.uint32))
    folder.save("imports.starts", starts_of(np.full(files, IMPORTS_PER_FILE), np.uint32))


def _write_terms(folder: _Folder, words: Words, files: int) -> None:
    chunks = len(words)
    numbers, places = np.unique(words, return_inverse=True)
    hashes = np.array([_hash(int(number)) for number in numbers], np.uint64)[places].reshape(words.shape)
    owners = np.repeat(np.arange(chunks), WORDS_PER_CHUNK)
    few = hashes[:, ::DESCRIBED]
    for name, found, rows, count in (
        ("code_stems", hashes, owners, chunks),
        ("code_terms", hashes, owners, chunks),
        ("descriptions", few, np.repeat(np.arange(chunks), few.shape[1]), chunks),
        ("files", hashes, owners // CHUNKS_PER_FILE, files),
    ):
        _write_postings(folder, f"terms.{name}", found.ravel(), rows, count)


@lru_cache(maxsize=SHARED_WORDS)
def _hash(number: int) -> int:
    return term_hash(word(number))


def _write_postings(folder: _Folder, name: str, hashes: NDArray[np.uint64], rows: Words, count: int) -> None:
    unique, places = np.unique(hashes, return_inverse=True)
    pairs, freqs = np.unique(places.astype(np.int64) * count + rows, return_counts=True)
    folder.save(f"{name}.hashes", unique)
    folder.save(f"{name}.starts", starts_of(np.bincount(pairs // count, minlength=len(unique)), np.uint32))
    folder.save(f"{name}.rows", (pairs % count).astype(np.uint32))
    folder.save(f"{name}.freqs", np.minimum(freqs, 255).astype(np.uint8))
    folder.save(f"{name}.lengths", np.bincount(rows, minlength=count).astype(np.uint32))


def _write_vectors(folder: _Folder, name: str, rows: NDArray[np.float16]) -> None:
    folder.save(f"vectors.{name}.floats", rows)
    folder.save(f"vectors.{name}.bits", sign_bits(rows))
    folder.save(f"vectors.{name}.starts", np.arange(len(rows) + 1, dtype=np.uint32))
    folder.save(f"vectors.{name}.hashes", np.zeros((len(rows), 16), np.uint8))


def _question(random: np.random.Generator, words: Words, vectors: NDArray[np.float16]) -> SyntheticQuestion:
    """Words of one chunk, common and rare ones as they come, and a vector near that chunk's."""
    row = int(random.integers(0, len(words)))
    asked = random.permutation(np.unique(words[row]))[:QUESTION_WORDS]
    vector = vectors[row].astype(np.float32) + 0.5 * random.standard_normal(DIMENSIONS) / np.sqrt(DIMENSIONS)
    text = " ".join(word(int(number)) for number in asked)
    return SyntheticQuestion(text, (vector / np.linalg.norm(vector)).astype(np.float32))


def texts_of(words: Words) -> Iterator[str]:
    """The words of each chunk as one text."""
    known = {number: word(number) for number in np.unique(words).tolist()}
    for row in words.tolist():
        yield " ".join(known[number] for number in row)
