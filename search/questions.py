"""The text of a question -> what it asks, by rules: without politeness, self-contained, its class, the names in it.

Pure and deterministic; used where no language model has read the question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from indexing.tokenizing import STOP_WORDS
from search.wording import is_name, quoted_names

CLASSES = ("symbol", "behaviour", "architecture", "how-to", "fix")

MAX_QUESTION_CHARS = 2000  # of a pasted text, the begin and the end are asked about
MAX_EARLIER_QUESTIONS = 4
MAX_SUBJECT_WORDS = 8
MAX_FOLLOW_UP_WORDS = 14  # a longer question says itself what it is about

_GREETING = r"(?:hi|hello|hey|okay|ok|thanks|thank you|well)\b[\s,!.]*(?:(?:there|all|team)\b[\s,!.]*)?"
_REQUEST = (
    r"please\s+|(?:can|could|would|will) you\s+(?:please\s+)?(?:(?:tell|show|explain to|help)\s+)?(?:(?:me|us)\s+)?"
    r"|i(?:'d| would) like to know\s+|i want to know\s+|do you know\s+|(?:tell|show) (?:me|us)\s+"
    r"|i(?:'m| am) (?:wondering|trying to understand)\s+"
)
_OPENING = re.compile(rf"^(?:{_GREETING})*(?:{_REQUEST})*", re.IGNORECASE)
_CLOSING = re.compile(r"[\s,]*\b(?:please|thanks|thank you|thx|cheers)\b[\s!.]*$", re.IGNORECASE)

_CONTINUES = re.compile(r"^(?:and|or|but|also|what about|how about|what if|same for|then)\b", re.IGNORECASE)
_EXPLETIVE = re.compile(
    r"\b(?:is|was|does|would|will) it (?:possible|ok|okay|safe|matter|make|take|enough)\b", re.IGNORECASE
)
_PRONOUN = re.compile(
    r"\b(?:it|its|they|them|their|those|these)\b"
    r"|\b(?:one|ones|that|this|there|the same)\s*"
    r"(?:$|[?.!,]|\b(?=(?:in|for|with|from|by|on|to|when|after|without)\b))"
    r"|\b(?:this|that) (?:function|method|class|one|file|value|error|case|call|thing|way)\b",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[^\s?!,;\"'()]+")
_EMPTY_WORDS = STOP_WORDS | frozenset(
    "about also am any else explain find get give happen happens show tell then used using work works".split()
)

# First match wins.
_CLASS_RULES = {
    "fix": re.compile(
        r"\b(?:fix|bugs?|broken|crash\w*|fails?|failing|traceback|(?:error|exception) when)\b|\bwhy\b.*\bnot\b",
        re.IGNORECASE,
    ),
    "how-to": re.compile(
        r"^how (?:to|do i|can i|can we|do we|should i|would i)\b|\b(?:example|configure|set up)\b", re.IGNORECASE
    ),
    "architecture": re.compile(
        r"\b(?:architecture|overview|structured?|organi[sz]ed|components?|layers?|design|work together|entry point)\b",
        re.IGNORECASE,
    ),
    "symbol": re.compile(
        r"^(?:where is|find|show|definition of|what is)\s+(?:the\s+)?`?[\w.:#]+`?"
        r"(?:\s+(?:function|class|method|type))?(?:\s+(?:defined|declared|implemented))?\W*$",
        re.IGNORECASE,
    ),
}

_OTHER_SCRIPT = re.compile(r"[^\W\d_\u0000-\u024f]")
_LATIN_NAME = re.compile(r"(?a:[A-Za-z_$][\w$]*(?:(?:::|->|[.#/])[A-Za-z_$][\w$]*)*)")


def standalone(question: str, earlier: Sequence[str] = ()) -> str:
    """The question without politeness; one that only makes sense after `earlier` ones gets their subject added.

    "How can I delete one?" after "How are sessions stored?" is "How can I delete one (sessions stored)".
    """
    asked = _without_politeness(shortened(clean(question)))
    subject: dict[str, str] = {}
    later = asked
    for text in reversed(earlier[-MAX_EARLIER_QUESTIONS:]):
        if not _is_follow_up(later):
            break
        later = _without_politeness(shortened(clean(text)))
        for word in _content_words(later):
            subject.setdefault(word.lower(), word)
    known = {word.lower() for word in _content_words(asked)}
    words = [word for key, word in subject.items() if key not in known][:MAX_SUBJECT_WORDS]
    return f"{asked.rstrip(' ?.!')} ({' '.join(words)})" if words else asked


def question_class(query: str) -> str:
    """One of CLASSES."""
    names = quoted_names(query)
    if is_name(query, names) and any(mark.isupper() or not mark.isalpha() for mark in query.strip()):
        return "symbol"
    for name, rule in _CLASS_RULES.items():
        if rule.search(query) and (name != "symbol" or names):
            return name
    return "behaviour"


def names_in(text: str) -> list[str]:
    """What a question of another language holds that is in the code as well: names and operators; amid another script
    all words in Latin letters.
    """
    names = quoted_names(text)
    if _OTHER_SCRIPT.search(text):
        operators = [name.last for name in names if name.is_operator]
        return list(dict.fromkeys([*_LATIN_NAME.findall(text), *operators]))
    return [name.qualified for name in names]


def clean(text: str) -> str:
    """On one line, without control characters."""
    return " ".join(without_controls(text).split())


def without_controls(text: str) -> str:
    return "".join(char if char.isprintable() or char in "\n\t\r" else " " for char in text)


def shortened(text: str) -> str:
    if len(text) <= MAX_QUESTION_CHARS:
        return text
    half = MAX_QUESTION_CHARS // 2
    return f"{text[:half]} … {text[-half:]}"


def _without_politeness(text: str) -> str:
    stripped = _CLOSING.sub("", _OPENING.sub("", text)).strip()
    return stripped if re.search(r"\w", stripped) else text


def _is_follow_up(question: str) -> bool:
    if len(question.split()) > MAX_FOLLOW_UP_WORDS:
        return False
    return bool(_CONTINUES.search(question) or _PRONOUN.search(_EXPLETIVE.sub("", question)))


def _content_words(question: str) -> list[str]:
    words = (word.strip(".:") for word in _WORDS.findall(_PRONOUN.sub(" ", question)))
    return [word for word in words if word and word.lower() not in _EMPTY_WORDS]
