"""What is said about paths: by a repository's settings here, its `.assistantignore` files and its linguist attributes.

All use gitignore's patterns: nested files, the last match wins, deeper files win over those above. Patterns come
from the repository and are hostile: matching is without backtracking over more than one `*`, and their number is
limited. A translation of whole patterns to regular expressions would take exponential time on `*a*a*a*a*b`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

IGNORE_NAME = b".assistantignore"
MODULES_NAME = b".gitmodules"
ATTRIBUTES_NAME = b".gitattributes"
MAX_RULES = 2000  # per commit; more is no longer a list that a person keeps
_MAX_PATTERN_BYTES = 500
_ANY_DIRECTORIES = b"**"
_Segments = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern, relative to the folder of the file it stands in."""

    segments: _Segments
    anchored: bool  # has a slash: matches from the folder on, else any base name below it
    directories_only: bool

    def matches(self, path: _Segments, *, is_directory: bool) -> bool:
        if self.directories_only and not is_directory:
            return False
        if not self.anchored:
            return _segment_matches(self.segments[0], path[-1])
        return _segments_match(self.segments, path)


def parse_pattern(text: bytes) -> Pattern | None:
    """None for what gitignore takes as "matches nothing"."""
    directories_only = text.endswith(b"/")
    body = text.rstrip(b"/")
    if not body or len(body) > _MAX_PATTERN_BYTES:
        return None
    return Pattern(tuple(body.removeprefix(b"/").split(b"/")), b"/" in body, directories_only)


def _segments_match(pattern: _Segments, path: _Segments) -> bool:
    """`**` stands for any number of folders; at the end for at least one name. Needs one step back at most."""
    at, here = 0, 0
    after_stars, resume = -1, 0
    while here < len(path):
        if at < len(pattern) and pattern[at] == _ANY_DIRECTORIES:
            if at == len(pattern) - 1:
                return True
            at += 1
            after_stars, resume = at, here
        elif at < len(pattern) and _segment_matches(pattern[at], path[here]):
            at, here = at + 1, here + 1
        elif after_stars >= 0:
            resume += 1
            at, here = after_stars, resume
        else:
            return False
    return at == len(pattern)


def _segment_matches(pattern: bytes, name: bytes) -> bool:
    if not re.search(rb"[*?\[\\]", pattern):
        return pattern == name
    return _segment_expression(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def _segment_expression(pattern: bytes) -> re.Pattern[bytes]:
    """Between two stars the shortest match is as good as any, so it is taken for good (an atomic group)."""
    parts: list[bytes] = [b""]
    at = 0
    while at < len(pattern):
        token, at = _token(pattern, at)
        if token is None:
            parts.append(b"")
        else:
            parts[-1] += token
    first, *middle = parts
    if not middle:
        return re.compile(first, re.DOTALL)
    *middle, last = middle
    return re.compile(first + b"".join(b"(?>.*?%s)" % part for part in middle if part) + b".*" + last, re.DOTALL)


def _token(pattern: bytes, at: int) -> tuple[bytes | None, int]:
    """The expression for the wildcard or byte at `at` (None for a star), and where the next one starts."""
    byte = pattern[at : at + 1]
    if byte == b"*":
        return None, at + 1
    if byte == b"?":
        return b".", at + 1
    if byte == b"\\" and at + 1 < len(pattern):
        return re.escape(pattern[at + 1 : at + 2]), at + 2
    if byte == b"[":
        return _bracket(pattern, at)
    return re.escape(byte), at + 1


_CLASSES = {
    b"alpha": b"a-zA-Z",
    b"digit": b"0-9",
    b"alnum": b"a-zA-Z0-9",
    b"upper": b"A-Z",
    b"lower": b"a-z",
    b"space": rb"\s",
    b"xdigit": b"0-9a-fA-F",
    b"punct": rb"!-/:-@\[-`{-~",
}
_NEVER = b"(?!)"


def _bracket(pattern: bytes, start: int) -> tuple[bytes, int]:
    """`[a-z]`, `[!a]`, `[^a]`, `[[:digit:]]`; without an end it matches nothing, as in Git."""
    at = start + 1
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    members: list[bytes] = []
    while at < len(pattern) and (pattern[at : at + 1] != b"]" or not members):
        named = re.compile(rb"\[:([a-z]+):\]").match(pattern, at)
        if named:
            members.append(_CLASSES.get(named[1], b""))
            at = named.end()
            continue
        at += pattern[at : at + 1] == b"\\"
        low = pattern[at : at + 1]
        at += 1
        if pattern[at : at + 1] == b"-" and pattern[at + 1 : at + 2] not in (b"]", b""):
            at += 1 + (pattern[at + 1 : at + 2] == b"\\")
            high = pattern[at : at + 1]
            at += 1
            members.append(re.escape(low) + b"-" + re.escape(high) if low <= high else b"")
        else:
            members.append(re.escape(low))
    if at >= len(pattern):
        return _NEVER, at
    inside = b"".join(members)
    if not inside:
        return (b"." if negated else _NEVER), at + 1
    return b"[" + (b"^" if negated else b"") + inside + b"]", at + 1


@dataclass(frozen=True, slots=True)
class _IgnoreRule:
    pattern: Pattern
    negated: bool


@dataclass(frozen=True, slots=True)
class _AttributeRule:
    pattern: Pattern
    values: dict[str, bool | None]  # None: back to unspecified


@dataclass(slots=True)
class PathRules:
    """The rules of one commit. Fill with `add_file`, then ask. `chosen` are those of the settings, which win."""

    dropped: int = 0
    chosen: PathRules | None = None
    submodules: dict[bytes, str] = field(default_factory=dict)  # path -> URL, without a login
    _ignore: dict[_Segments, list[_IgnoreRule]] = field(default_factory=dict)
    _attributes: dict[_Segments, list[_AttributeRule]] = field(default_factory=dict)
    _directory_verdicts: dict[_Segments, bool | None] = field(default_factory=dict)

    def add_file(self, path: bytes, content: bytes) -> None:
        """A `.assistantignore` or `.gitattributes` file; rules over the limit are counted in `dropped`."""
        *folder, name = path.split(b"/")
        lines = content.removeprefix(b"\xef\xbb\xbf").splitlines()
        if name == IGNORE_NAME:
            ignored = [rule for line in lines if (rule := _parse_ignore_line(line))]
            self._ignore[tuple(folder)] = ignored[: self._room_for(len(ignored))]
        elif path == MODULES_NAME:
            self.submodules = _parse_modules(content)
        elif name == ATTRIBUTES_NAME:
            stated = [stating for line in lines if (stating := _parse_attribute_line(line))]
            self._attributes[tuple(folder)] = stated[: self._room_for(len(stated))]

    def _room_for(self, count: int) -> int:
        known = sum(map(len, self._ignore.values())) + sum(map(len, self._attributes.values()))
        room = max(0, min(count, MAX_RULES - known))
        self.dropped += count - room
        return room

    def is_ignored(self, path: bytes) -> bool | None:
        """True: ignored. False: a `!` pattern brings it back by name. None: no pattern speaks of it."""
        if self.chosen is not None and (verdict := self.chosen.is_ignored(path)) is not None:
            return verdict
        if not self._ignore:
            return None
        segments = tuple(path.split(b"/"))
        folder = self._directory_verdict(segments[:-1])
        if folder:
            return True  # as in gitignore: nothing comes back from an ignored folder
        own = self._last_match(segments, is_directory=False)
        return folder if own is None else own

    def _directory_verdict(self, folder: _Segments) -> bool | None:
        if not folder:
            return None
        if folder not in self._directory_verdicts:
            above = self._directory_verdict(folder[:-1])
            own = None if above else self._last_match(folder, is_directory=True)
            self._directory_verdicts[folder] = above if own is None else own
        return self._directory_verdicts[folder]

    def _last_match(self, path: _Segments, *, is_directory: bool) -> bool | None:
        for depth in range(len(path) - 1, -1, -1):
            for rule in reversed(self._ignore.get(path[:depth], ())):
                if rule.pattern.matches(path[depth:], is_directory=is_directory):
                    return not rule.negated
        return None

    def attribute(self, path: bytes, name: str) -> bool | None:
        """Whether an attribute is set (True), unset (False) or not mentioned (None) for a file."""
        if not self._attributes:
            return None
        segments = tuple(path.split(b"/"))
        for depth in range(len(segments) - 1, -1, -1):
            for rule in reversed(self._attributes.get(segments[:depth], ())):
                if name in rule.values and rule.pattern.matches(segments[depth:], is_directory=False):
                    return rule.values[name]
        return None


def chosen_rules(text: str) -> PathRules:
    """Patterns that a person typed for a repository: left out, or with `!` indexed whatever else speaks against it."""
    rules = PathRules()
    rules.add_file(IGNORE_NAME, text.encode())
    return rules


def _parse_modules(content: bytes) -> dict[bytes, str]:
    """`path = lib` and `url = https://...` of each section; a login in a URL is left out."""
    found: dict[bytes, str] = {}
    for section in re.split(rb"(?m)^\s*\[", content)[1:]:
        values = dict(re.findall(rb"(?m)^\s*(path|url)\s*=\s*\"?([^\"\r\n]*?)\"?\s*$", section))
        if values.get(b"path") and values.get(b"url"):
            url = values[b"url"].decode("utf-8", "replace")
            found[values[b"path"]] = re.sub(r"//[^/@\s]*@", "//", url)
    return found


def _parse_ignore_line(line: bytes) -> _IgnoreRule | None:
    if line.startswith(b"#"):
        return None
    text = re.sub(rb"(?<!\\) +\Z", b"", line)
    negated = text.startswith(b"!")
    pattern = parse_pattern(text[1:] if negated else text)
    return _IgnoreRule(pattern, negated) if pattern else None


def _parse_attribute_line(line: bytes) -> _AttributeRule | None:
    """`pattern attribute -attribute attribute=false`; only attributes of linguist are kept."""
    if b"linguist-" not in line or line.lstrip().startswith((b"#", b"[attr]", b"!")):
        return None
    if line.lstrip().startswith(b'"'):
        text, _, rest = line.strip()[1:].partition(b'"')
    else:
        text, _, rest = line.strip().replace(b"\t", b" ").partition(b" ")
    pattern = parse_pattern(text)
    values = dict(_parse_attribute(word) for word in rest.split() if b"linguist-" in word)
    return _AttributeRule(pattern, values) if pattern and values else None


def _parse_attribute(word: bytes) -> tuple[str, bool | None]:
    text = word.decode(errors="replace")
    name, _, value = text.lstrip("-!").partition("=")
    if text.startswith("!"):
        return name, None
    return name, not (text.startswith("-") or value.lower() == "false")
