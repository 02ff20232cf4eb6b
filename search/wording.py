"""What the words of a query ask for: weighted terms for BM25, and the names it seems to quote.

Pure functions over text; the same tokeniser as the index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from indexing.tokenizing import STOP_WORDS, stems, term_hash, terms

# Long pasted text: the first words say what is asked, and BM25 over thousands of terms only costs time.
MAX_QUERY_TERMS = 64
MAX_NAMES = 64
MAX_NAMED_CHARS = 1000

# Words of questions about code that say nothing about which code.
_ASKING = frozenset(
    "code codebase file files find function functions class classes method methods implement implemented "
    "implementation implementations explain show tell give please work works working used use uses using "
    "handle handled handles handling happen happens repository repo project library".split()
)
ASKING_WEIGHT = 0.5

_NAME = re.compile(r"`([^`\s]{2,80})`|([A-Za-z_$][\w$]*(?:(?:::|->|[.#/])[A-Za-z_$][\w$]*)*)(\(\))?")
# Signs with nothing beside them that they could belong to: `.:?`, `(<|>)`, `[]=`, `operator!=`; a single one in quotes.
_SIGNS = r"!#$%&*+./:<=>?@\\^|~\[\]-"
_OPERATOR = re.compile(
    rf"(?:(?<![A-Za-z0-9_)}}{_SIGNS}])|(?<=\boperator))([{_SIGNS}]{{2,10}})(?![A-Za-z0-9_{{{_SIGNS}])"
    rf"|`\(?([{_SIGNS}]{{1,10}})\)?`"
)
_CAPITALISED = re.compile(r"\b[A-Z][A-Za-z0-9]+\b")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")


@dataclass(frozen=True, slots=True)
class Name:
    """A name the question quotes: `qualified` as written with dots, `last` its last segment."""

    qualified: str
    last: str

    @property
    def spellings(self) -> tuple[str, ...]:
        """What its definition may be called: an operator is `<|>`, `(<|>)` or `operator<|>`, as its language has it."""
        if self.is_operator:
            return self.last, f"({self.last})", f"operator{self.last}"
        return (self.last,)

    @property
    def is_qualified(self) -> bool:
        return not self.is_operator and "." in self.qualified

    @property
    def is_operator(self) -> bool:
        return not any(char.isalnum() or char in "_$" for char in self.last)


@dataclass(frozen=True, slots=True)
class Wording:
    """One query, ready for the lists."""

    text: str
    stems: dict[int, float]  # term hash -> weight
    terms: dict[int, float]
    stem_words: frozenset[str]  # distinct content stems, for path coverage
    all_stem_words: frozenset[str]  # with the words about asking: a file may be called `find` or `impls`
    names: tuple[Name, ...]
    capitalised: tuple[str, ...]  # words that may be the names of types, or only begin a sentence: "Abort", "Sessions"
    is_name: bool  # the question is a name and nothing else


def wording(text: str, *, without: Collection[str] = ()) -> Wording:
    """Read a query. `without`: lower-case words to leave out, such as the name of the repository asked in."""
    tokens = [token for token in terms(text) if token not in without][:MAX_QUERY_TERMS]
    if not any(token not in STOP_WORDS for token in tokens):
        tokens = terms(text)[:MAX_QUERY_TERMS]
    plain = [token for token in tokens if token not in STOP_WORDS]
    stemmed = stems(tokens)
    weak = set(stems(_ASKING))
    names = quoted_names(text, without=without)
    return Wording(
        text=text,
        stems=_weighted(stemmed, weak),
        terms=_weighted(plain, set(_ASKING)),
        stem_words=frozenset(stemmed) - weak or frozenset(stemmed),
        all_stem_words=frozenset(stemmed),
        names=names,
        capitalised=tuple(_capitalised(text, without, names)),
        is_name=is_name(text, names),
    )


def _weighted(tokens: list[str], weak: set[str]) -> dict[int, float]:
    """Repeats count once more at most: a long question is not more about its commonest word."""
    counts = Counter(tokens)
    return {
        term_hash(token): min(count, 2) * (ASKING_WEIGHT if token in weak and len(counts) > 2 else 1.0)
        for token, count in counts.items()
    }


def quoted_names(text: str, *, without: Collection[str] = ()) -> tuple[Name, ...]:
    """Words that look like identifiers; a question of a single word is taken as one whatever it looks like."""
    alone = len(text.split()) == 1
    found: dict[str, Name] = {}
    for match in _OPERATOR.finditer(text):
        written = match.group(1) or match.group(2)
        for operator in dict.fromkeys((written, written.rstrip("?.!,:"))):  # it may end the sentence
            if operator:
                found.setdefault(operator, Name(operator, operator))
    for match in _NAME.finditer(text):
        quoted, word, call = match.groups()
        written = quoted or word
        if not (alone or quoted or call or _looks_like_name(written)):
            continue
        qualified = re.sub(r"::|->|[#/]", ".", written.strip(".()"))
        last = qualified.rsplit(".", 1)[-1]
        if last and re.search(r"\w", last) and last.lower() not in without and last.lower() not in STOP_WORDS:
            found.setdefault(qualified.lower(), Name(qualified, last))
    return tuple(found.values())[:MAX_NAMES]


def is_name(text: str, names: Collection[Name]) -> bool:
    """Whether the text is a name and nothing else."""
    return len(text.split()) == 1 and bool(names)


def _capitalised(text: str, without: Collection[str], names: Collection[Name]) -> list[str]:
    """Words written with a capital that are not names already. Whether they are names, only the definitions can say."""
    passed = {name.last for name in names}
    words = dict.fromkeys(_CAPITALISED.findall(text[:MAX_NAMED_CHARS]))
    return [
        word
        for word in words
        if word not in passed and not {word.lower()} & (_ASKING | STOP_WORDS) and word.lower() not in without
    ]


def _looks_like_name(word: str) -> bool:
    return bool(_CAMEL.search(word)) or "_" in word.strip("_") or any(mark in word for mark in ("::", "->", ".", "#"))
