"""Text -> lexical terms, the same for code that is indexed and for questions.

An identifier gives its whole form and its parts, so that `getUserId`, `get_user_id` and "user id" meet:

    terms("getUserId(request)") == ["getuserid", "get", "user", "id", "request"]

Chinese, Japanese and Korean runs have no spaces and give overlapping pairs of characters. Nothing here
looks at grammar; comments, strings and code are one stream of words.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import Stemmer

# A longer run is a hash, a key or encoded data: nobody asks for it by typing it.
MAX_WORD_CHARS = 64
_CACHED_TERMS = 1 << 15  # about 5 MB each; files that are near each other share most of their words

_WORD = re.compile(r"\w+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
_ASCII_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")  # "HTTPServer2" -> HTTP, Server, 2
_OTHER_PART = re.compile(r"[^\W\d_]+|\d+")

# Function words of English questions and comments. Words that name things in code ("not", "all", "new",
# "list", "after") are left in on purpose.
STOP_WORDS = frozenset(
    "a an and are as at be been but by can could did do does for from had has have how i if in into is it its "
    "me my of on or our should so such that the their them then there these they this those to us was we were "
    "what when where which who why will with would you your".split()
)

_stemmers = threading.local()  # one keeps the word it works on: two threads in it gave wrong stems and IndexErrors


def terms(text: str) -> list[str]:
    """Lower-case terms in reading order, repeated as often as they occur."""
    found: list[str] = []
    for word in _WORD.findall(text):
        found.extend(_word_terms(word))
    return found


def stems(tokens: Iterable[str]) -> list[str]:
    """English stems of the tokens, without stop words. Tokens of other languages pass unchanged."""
    return [stem(token) for token in tokens if token not in STOP_WORDS]


@lru_cache(maxsize=_CACHED_TERMS)
def term_hash(term: str) -> int:
    """64 bits that stand for the term in postings, so that the index files hold no words of the source.

    With 10 million distinct terms the chance of any collision is about 3e-6.
    """
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")


@lru_cache(maxsize=_CACHED_TERMS)
def _word_terms(word: str) -> tuple[str, ...]:
    if len(word) > MAX_WORD_CHARS:
        return ()
    if not word.isascii() and _CJK.search(word):
        return tuple(_mixed_terms(word))
    pattern = _ASCII_PART if word.isascii() else _OTHER_PART
    parts = [part.lower() for part in pattern.findall(word)]
    if len(parts) <= 1:
        return tuple(parts)
    return ("".join(parts), *parts)


def _mixed_terms(word: str) -> Iterable[str]:
    """A run with CJK characters in it: pairs of those, ordinary terms of what is between."""
    end = 0
    for run in _CJK.finditer(word):
        yield from _word_terms(word[end : run.start()])
        text = run.group()
        yield from [text[i : i + 2] for i in range(len(text) - 1)] or [text]
        end = run.end()
    yield from _word_terms(word[end:])


@lru_cache(maxsize=_CACHED_TERMS)
def stem(token: str) -> str:
    """Of one token; words of other languages stay as they are."""
    if not token.isascii():
        return token
    stemmer = getattr(_stemmers, "english", None)
    if stemmer is None:
        stemmer = _stemmers.english = Stemmer.Stemmer("english")
    return str(stemmer.stemWord(token))
