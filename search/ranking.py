"""A pool of candidates -> an order, from the lists' scores and from what the code's structure says.

The lists are scaled and added with one weight each, a file's lists go to its chunks as far as each comes near the best
of them, and structure adds in units of the best score so far, so that it can decide between near equals but needs
evidence to work on:

* coherence: other good chunks in the same file;
* path: question words that the path has, file-name words that the question has;
* definitions: the chunk defines a name that the question quotes, or a type called like a word with a capital;
* centrality: many files import this one;
* priors: tests, examples, compatibility and legacy code come later unless the question asks for them;
* saturation: the second and later chunks of a file give way to other files, and those of one definition to other
  definitions.

A question of many words describes one piece of code rather than a place. Then it is more often another chunk of the
right file than another file: later chunks hardly give way, all chunks of a coherent file gain, and paths count less.
The words of a chunk's own name are then often among those of the question: what it is called says best what it does.

Constants are round numbers checked on a public benchmark; docs/evaluation.md says what each part is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from indexing.index_format import DefinitionRecord
from indexing.profiling import FileFlag
from indexing.tokenizing import stems, terms
from search.centrality import centrality as centrality_of_files
from search.corpus import Corpus
from search.fusion import scale
from search.grouping import Groups
from search.retrieval import CHUNK_DEPTH, FILE_DEPTH, Pool, Query
from search.wording import Name, Wording

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Weights:
    """Every constant of the ranking; `docs/evaluation.md` says what each is worth."""

    code_stems: float = 0.8
    code_terms: float = 0.7
    descriptions_terms: float = 0.3
    code_vectors: float = 1.0
    description_vectors: float = 0.5
    file_terms: float = 0.6
    file_vectors: float = 0.9
    coherence: float = 0.1
    path_words: float = 0.4
    path_name: float = 0.5
    definition_asked: float = 3.0  # the question is a name
    definition_quoted: float = 1.5  # the question has a name in it
    definition_capitalised: float = 0.6  # a word with a capital is the exact name
    centrality: float = 0.1
    test: float = 0.7
    example: float = 0.7
    legacy: float = 0.7
    docs: float = 0.6
    config: float = 0.7
    later_chunk: float = 0.3
    later_part: float = 0.5  # another chunk of the same definition
    # In questions that describe one piece of code at length:
    described_coherence: float = 0.2  # to all chunks of the file
    described_path: float = 0.25  # of what the path counts else
    described_later_chunk: float = 0.95
    described_name: float = 1.0  # the words of the chunk's own name

    def of_list(self, name: str) -> float:
        return {
            "terms.code_stems": self.code_stems,
            "terms.code_terms": self.code_terms,
            "terms.descriptions": self.descriptions_terms,
            "vectors.code": self.code_vectors,
            "vectors.descriptions": self.description_vectors,
            "terms.files": self.file_terms,
            "vectors.files": self.file_vectors,
        }[name]


WEIGHTS = Weights()
DESCRIPTION_WORDS = 6  # distinct content words; most questions that ask for a place have no more
_CACHED_NAMES = 1 << 16
_CACHED_PATHS = 1 << 14  # about 15 MB: the same files are candidates again and again

# A class is what a bare name asks for before a method or a field of the same name.
_KIND_RANK = {
    "class": 1.0, "interface": 1.0, "struct": 1.0, "trait": 1.0, "enum": 1.0, "type": 0.95, "protocol": 1.0,
    "object": 0.95,    "record": 1.0,
    "union": 0.95, "module": 0.95, "namespace": 0.7, "macro": 0.9, "function": 0.9, "method": 0.75,
    "constructor": 0.5, "constant": 0.7, "variable": 0.6, "field": 0.5, "property": 0.55, "impl": 0.6, "extension": 0.6,
}  # fmt: skip
_OTHER_KIND_RANK = 0.6


@dataclass(frozen=True, slots=True)
class Ranked:
    """order: (m,) positions in the pool, best first; scores: (p,) final; lists: (p,) scores before structure."""

    order: Rows
    scores: Floats
    lists: Floats
    parts: dict[str, Floats]  # what structure adds: "definition" and others


def rank(
    corpus: Corpus,
    pool: Pool,
    queries: Sequence[Query],
    *,
    limit: int,
    shares: Floats | None = None,
    weights: Weights = WEIGHTS,
) -> Ranked:
    """The first query is the one that structure listens to. `shares`: (p,) what each score counts. Ties go to the lower
    row.
    """
    if not pool.chunks.size:
        empty = np.empty(0, np.float32)
        return Ranked(np.empty(0, np.int64), empty, empty, {"definition": empty})
    files = Groups.of_sorted(pool.files)
    lists = fused(pool, files, queries, weights)
    unit = np.float32(lists.max() or 1)
    wording = queries[0].wording
    is_described = len(wording.stem_words) > DESCRIPTION_WORDS
    parts = {
        "coherence": unit * _coherence_worth(files, lists, weights, is_described),
        "path": unit
        * (weights.described_path if is_described else 1)
        * path_match(corpus, pool.files[files.starts], wording, weights)[files.of],
        "definition": unit * definition_match(corpus, pool.chunks, wording, weights),
        "centrality": weights.centrality * unit * centrality(corpus, pool.files) * (lists > 0),
    }
    scores = (lists + sum(parts.values())) * priors(corpus, pool.files, wording, weights)
    if shares is not None:
        scores = scores * shares
    scores = scores.astype(np.float32)
    later_chunk = weights.described_later_chunk if is_described else weights.later_chunk
    symbols = corpus.chunk_field(pool.chunks, "symbol")
    order = saturate(scores, pool.files, symbols, limit=limit, later_chunk=later_chunk, later_part=weights.later_part)
    if is_described:
        named = scores * (1 + weights.described_name * name_match(corpus, pool.chunks, wording))
        mine = saturate(named, pool.files, symbols, limit=len(named), later_chunk=1, later_part=weights.later_part)
        order = exchanged(order, mine, pool.files)
    return Ranked(order, scores, lists, parts)


def exchanged(order: Rows, preferred: Rows, files: Rows) -> Rows:
    """The order with as many chunks of each file at the same places, but those that are preferred: which file comes
    where is settled.
    """
    waiting: dict[int, list[int]] = {}
    for position in preferred[::-1].tolist():
        waiting.setdefault(int(files[position]), []).append(position)
    return np.array([waiting[int(files[position])].pop() for position in order.tolist()], np.int64)


def fused(pool: Pool, files: Groups, queries: Sequence[Query], weights: Weights) -> Floats:
    """(p,) weighted sum of the scaled lists of all queries; a chunk gets of its file's lists the share that its own sum
    has of that of the file's best chunk.
    """
    share = {query.name: query.weight for query in queries}
    total = np.zeros(len(pool.chunks), np.float32)
    for (query, name), scores in pool.chunk_lists.items():
        total += share[query] * weights.of_list(name) * scale(scores, depth=CHUNK_DEPTH)
    file_total = np.zeros(len(pool.file_rows) + 1, np.float32)  # the last one for files that no list has
    for (query, name), scores in pool.file_lists.items():
        file_total[:-1] += share[query] * weights.of_list(name) * scale(scores, depth=FILE_DEPTH)
    places, known = pool.places_of_files()
    best = files.best(total)
    nearness = total / np.maximum(total[best], np.float32(1e-9))[files.of]
    nearness[best] = 1  # even when no list of chunks has any of them
    return np.asarray(total + nearness * file_total[np.where(known, places, -1)], np.float32)


def _coherence_worth(files: Groups, lists: Floats, weights: Weights, is_described: bool) -> Floats:
    """(p,) in units of the best score: to the best chunk of each file or, described, to all."""
    coherent = coherence(files, lists)
    if is_described:
        return weights.described_coherence * coherent
    best = files.best(lists)
    worth = np.zeros(len(lists), np.float32)
    worth[best] = weights.coherence * coherent[best]
    return worth


def coherence(files: Groups, scores: Floats) -> Floats:
    """(p,) in [0, 1]: the summed score of the chunk's file over that of the best file."""
    sums = np.bincount(files.of, weights=scores)
    shares: Floats = (sums[files.of] / max(float(sums.max()), 1e-9)).astype(np.float32)
    return shares


def path_match(corpus: Corpus, files: Rows, wording: Wording, weights: Weights) -> Floats:
    """(files,) share of question words in the path, and share of file-name words in the question.

    "How is it used" says nothing about a path, but a file `impls.rs` is about implementations: words about asking
    count for the name only.
    """
    wanted, known = _by_beginning(wording.stem_words), _by_beginning(wording.all_stem_words)
    values = np.zeros(len(files), np.float32)
    for place, path in enumerate(corpus.paths(files)):
        words = _path_words(path)
        if words.beginnings.isdisjoint(known):
            continue
        found = frozenset().union(*[_alike(word, wanted) for word in words.path])
        covered = len(found) / max(1, len(wording.stem_words))
        named = sum(bool(_alike(word, known)) for word in words.name) / max(1, len(words.name))
        values[place] = weights.path_words * covered + weights.path_name * named
    return values


@dataclass(frozen=True, slots=True)
class _PathWords:
    """Stems of the whole path, and of the file's name without its ending; the beginnings of all of them."""

    path: frozenset[str]
    name: tuple[str, ...]
    beginnings: frozenset[str]


@lru_cache(maxsize=_CACHED_PATHS)
def _path_words(path: bytes) -> _PathWords:
    text = path.decode("utf-8", "replace")
    name = text.rsplit("/", 1)[-1].rsplit(".", 1)[0]
    words, of_name = frozenset(stems(terms(text))), tuple(stems(terms(name)))
    return _PathWords(words, of_name, frozenset(word[:4] for word in words.union(of_name)))


def name_match(corpus: Corpus, chunks: Rows, wording: Wording) -> Floats:
    """(p,) share of the words in the chunk's own name, without its owners', that the question has."""
    known = _by_beginning(wording.all_stem_words)
    shares = np.zeros(len(chunks), np.float32)
    for place, symbol in enumerate(corpus.symbols(chunks)):
        words = _name_words(symbol)
        if words:
            shares[place] = sum(bool(_alike(word, known)) for word in words) / len(words)
    return shares


@lru_cache(maxsize=_CACHED_NAMES)
def _name_words(symbol: bytes) -> tuple[str, ...]:
    """Stems of the parts of the last name: `getAsShort` gives `get` and `short`."""
    whole, *parts = terms(symbol.decode("utf-8", "replace").rsplit(".", 1)[-1]) or [""]
    return tuple(stems(parts or [whole]))


def _by_beginning(words: frozenset[str]) -> dict[str, list[str]]:
    """First four letters -> the words: only those can be alike."""
    groups: dict[str, list[str]] = {}
    for word in words:
        groups.setdefault(word[:4], []).append(word)
    return groups


def _alike(word: str, words: dict[str, list[str]]) -> frozenset[str]:
    """Equal, or one begins with the other from four letters on: `config` and `configuration`."""
    others = words.get(word[:4], ())
    return frozenset(other for other in others if other.startswith(word) or word.startswith(other))


def definition_match(corpus: Corpus, chunks: Rows, wording: Wording, weights: Weights) -> Floats:
    """(p,) what it is worth that a chunk defines a name of the question.

    Classes come before methods, the exact case before others, and of several definitions of one name (overloads,
    partial classes, declarations beside the implementation) the longest first. A word that only has a capital
    counts where something is called exactly so, and for less: it may just begin the sentence.
    """
    result = np.zeros(len(chunks), np.float32)
    quoted = weights.definition_asked if wording.is_name else weights.definition_quoted
    for name in wording.names:
        for place, definition, value in _valued(list(_definitions(corpus, chunks, name))):
            value *= quoted if definition.name in name.spellings else 0.85 * quoted
            if name.is_qualified and not _ends_with(definition.qualified_name, name.qualified):
                value *= 0.7
            result[place] = max(result[place], value)
    for word in wording.capitalised:
        exact = [found for found in _definitions(corpus, chunks, Name(word, word)) if found[1].name == word]
        for place, _, value in _valued(exact):
            result[place] = max(result[place], weights.definition_capitalised * value)
    return result


def _valued(found: Sequence[tuple[int, DefinitionRecord]]) -> Iterator[tuple[int, DefinitionRecord, float]]:
    """With a value in (0, 1]: by kind, and by length against the longest of them."""
    lengths = [definition.end_line - definition.start_line + 1 for _, definition in found]
    for (place, definition), length in zip(found, lengths, strict=True):
        share = float(np.log1p(length) / np.log1p(max(lengths)))
        yield place, definition, _KIND_RANK.get(definition.kind, _OTHER_KIND_RANK) * (0.8 + 0.2 * share)


def _definitions(corpus: Corpus, chunks: Rows, name: Name) -> Iterator[tuple[int, DefinitionRecord]]:
    """Definitions of the name whose chunk is in the pool, with the chunk's position there."""
    for chunk, definition in corpus.definitions(name):
        place = int(np.searchsorted(chunks, chunk))
        if place < len(chunks) and chunks[place] == chunk:
            yield place, definition


def _ends_with(qualified: str, asked: str) -> bool:
    return ("." + qualified.lower()).endswith("." + asked.lower())


def centrality(corpus: Corpus, files: Rows) -> Floats:
    """(p,) in [0, 1]: how much of its repository leans on the candidate's file."""
    result = np.zeros(len(files), np.float32)
    first = 0
    for source in corpus.sources:
        values = centrality_of_files(source.index)
        mine = (files >= first) & (files < first + len(values))
        result[mine] = values[files[mine] - first]
        first += len(values)
    return result


def priors(corpus: Corpus, files: Rows, wording: Wording, weights: Weights) -> Floats:
    """(p,) factors in (0, 1] against code that is seldom what was asked for; 1 where the question asks for it."""
    words = wording.stem_words
    factors = {
        FileFlag.TEST: 1.0 if words & {"test", "spec", "mock", "fixtur", "assert"} else weights.test,
        FileFlag.EXAMPLE: 1.0 if words & {"exampl", "demo", "sampl", "tutori", "benchmark"} else weights.example,
        FileFlag.LEGACY: 1.0 if words & {"legaci", "compat", "deprec", "old", "v1"} else weights.legacy,
        FileFlag.DOCS: 1.0 if words & {"doc", "document", "guid", "readm", "changelog", "licens"} else weights.docs,
        FileFlag.CONFIG: 1.0 if words & {"config", "configur", "set", "packag", "ci"} else weights.config,
    }
    flags = corpus.file_flags(files)
    result = np.ones(len(files))
    for flag, cost in factors.items():
        result[(flags & int(flag)) != 0] *= cost
    return result.astype(np.float32)


def saturate(scores: Floats, files: Rows, symbols: Rows, *, limit: int, later_chunk: float, later_part: float) -> Rows:
    """(<= limit,) positions, best first.

    The n-th chunk of a file counts `later_chunk` ** (n - 1) of its score, the n-th of one definition in it
    `later_part` ** (n - 1) of that.
    """
    order = (-scores).argsort(kind="stable")
    value = scores.astype(np.float64)
    value[order] *= _powers(later_chunk, _earlier(files[order]))
    value[order] *= _powers(later_part, _earlier(files[order], symbols[order]))
    best: Rows = (-value).argsort(kind="stable")[:limit]
    return best


def _earlier(*keys: Rows) -> Rows:
    """(n,) how many earlier entries have the same keys."""
    order = np.lexsort(keys)
    begins = np.ones(len(order), bool)
    begins[1:] = False
    for key in keys:
        begins[1:] |= key[order[1:]] != key[order[:-1]]
    places = np.arange(len(order))
    earlier = np.empty(len(order), np.int64)
    earlier[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return earlier


def _powers(base: float, exponents: Rows) -> npt.NDArray[np.float64]:
    powers = np.array([base**exponent for exponent in range(int(exponents.max()) + 1)])
    return np.asarray(powers[exponents])
