"""The answer without a language model: which passages are shown, and the sentences that say so. Pure.

What is stored are markers and coordinates, never source text; a page reads the passages from the mirror each time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.sentences import ENGLISH, Sentences
from indexing.tokenizing import STOP_WORDS, stems, terms
from search.results import Hit, Trace

LABEL = "No language model is set up, so these are ranked passages without a written answer."
RANKED_ONLY = "These are ranked passages without a written answer."

# Words of a question that say nothing about its subject, beside the stop words.
_ASKING = frozenset("code find show explain tell give work works implement implemented handle handled use used".split())
# A question counts as English when it has this many English function words: only then does a capital letter
# within the sentence mark a name (German writes every noun with one).
ENGLISH_STOP_WORDS = 2

_QUOTED = re.compile(r"`([^`\s]{2,80})`")
_WORD = re.compile(r"[^\W\d_][\w.]*\w")
_SENTENCE_END = re.compile(r"[.?!:]\s*$|^\s*$|[\"'(]\s*$")


def compose(hits: Sequence[Hit]) -> str:
    """The Markdown that is stored: passages by file, best first, each with its marker."""
    by_file: dict[tuple[str, bytes], list[int]] = {}
    for number, hit in enumerate(hits, start=1):
        by_file.setdefault((hit.repository, hit.path), []).append(number)
    lines = []
    for numbers in by_file.values():
        first = hits[numbers[0] - 1]
        passages = ", ".join(_passage(number, hits[number - 1]) for number in numbers)
        lines.append(f"- {code_span(f'{first.repository} {first.display_path}')}: {passages}")
    return "\n".join(lines)


def is_supported(question: str, hits: Sequence[Hit], texts: Sequence[str], *, minimum_cosine: float) -> bool:
    """Whether any hit is near enough in meaning, or shares a word of substance with the question."""
    if any(hit.cosine is not None and hit.cosine >= minimum_cosine for hit in hits):
        return True
    wanted = set(stems(terms(question))) - set(stems(_ASKING))
    return any(wanted & _stems_of(hit, text) for hit, text in zip(hits, texts, strict=True))


def missing_names(question: str, hits: Sequence[Hit], texts: Sequence[str]) -> list[str]:
    """Names in the question that no passage mentions, when there are names and none of them is mentioned."""
    names = _names(question)
    if not names or not hits:
        return []
    known: set[str] = set().union(*(_stems_of(hit, text) for hit, text in zip(hits, texts, strict=True)))
    return names if not any(known & set(stems(terms(name))) for name in names) else []


def not_found(names: Sequence[str], said: Sentences = ENGLISH) -> str:
    if not names:
        return said.not_found
    return said.not_mentioned.format(names=f" {said.either} ".join(code_span(name) for name in names))


def looked(trace: Trace, *, minimum_cosine: float, said: Sentences = ENGLISH) -> str:
    """Where the search looked and how near it came."""
    readable, passages = str(trace.readable_repositories), str(len(trace.candidates))
    if said is ENGLISH:
        readable = _count(trace.readable_repositories, "repository", "repositories")
        passages = _count(len(trace.candidates), "passage", "passages")
    where = said.looked.format(chosen=len(trace.repositories), readable=readable, passages=passages)
    cosines = [hit.cosine for hit in trace.candidates if hit.cosine is not None]
    best = said.best.format(best=f"{max(cosines):.2f}", needed=f"{minimum_cosine:.2f}") if cosines else ""
    return where + best + said.end


def code_span(text: str) -> str:
    """Hostile text as a Markdown code span: nothing in it can end the span or start another line."""
    line = " ".join(text.split())
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else ""


def _passage(number: int, hit: Hit) -> str:
    lines = f"line {hit.start_line}" if hit.start_line == hit.end_line else f"lines {hit.start_line}–{hit.end_line}"
    return f"{lines} {code_span(hit.symbol)} [{number}]" if hit.symbol else f"{lines} [{number}]"


def _stems_of(hit: Hit, text: str) -> set[str]:
    return set(stems(terms(f"{text} {hit.display_path} {hit.symbol} {hit.description}")))


def _names(question: str) -> list[str]:
    """Quoted names, and in an English question words with a capital letter that begin no sentence."""
    names = _QUOTED.findall(question)
    words = re.findall(r"[a-z]+", question.lower())
    if sum(word in STOP_WORDS for word in words) >= ENGLISH_STOP_WORDS:
        for match in _WORD.finditer(question):
            begins = bool(_SENTENCE_END.search(question[: match.start()]))
            if not begins and match.group() != match.group().lower() and match.group().lower() not in STOP_WORDS:
                names.append(match.group())
    return list(dict.fromkeys(names))[:5]


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
