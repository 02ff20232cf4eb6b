"""Text of a file -> the same text with keys, tokens and passwords replaced by bullets, character for character.

Applied before text is described, embedded, put into a prompt, shown or logged. Line ends stay, so lines and character
positions agree with the original. Example values ("changeme", "your-key", `${TOKEN}`) stay, because they explain code.
A mask that is too wide costs a word; one that is too narrow leaks a key: doubtful values of telling names are masked.
"""

from __future__ import annotations

import math
import re
from collections import Counter

BULLET = "•"

# Formats whose issuer made them recognisable, so that no name beside them is needed.
_TOKENS = re.compile(
    r"\b(?:"
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}"  # AWS access key id
    r"|gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}"
    r"|gl(?:pat|dt|rt|ptt|cbt)-[\w-]{20,64}"  # GitLab
    r"|xox[abeoprs]-[A-Za-z0-9-]{10,255}|xapp-[A-Za-z0-9-]{20,255}"  # Slack
    r"|AIza[\w-]{35}|ya29\.[\w-]{20,255}|GOCSPX-[\w-]{28}"  # Google
    r"|(?:sk|rk|pk)_live_[A-Za-z0-9]{16,255}|whsec_[A-Za-z0-9+/=]{24,255}"  # Stripe
    r"|sk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{20,255}"  # language model providers
    r"|hf_[A-Za-z0-9]{30,64}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,255}"
    r"|SG\.[\w-]{16,64}\.[\w-]{16,64}|dop_v1_[0-9a-f]{64}|shpat_[0-9a-fA-F]{32}|dckr_pat_[\w-]{20,64}"
    r"|eyJ[\w-]{10,4096}\.eyJ[\w-]{10,8192}\.[\w-]{10,4096}"  # JSON web token
    r"|[0-9]{8,10}:AA[\w-]{33}"  # Telegram bot
    r")(?![\w-])"
)
_PATHS_WITH_TOKENS = re.compile(r"hooks\.slack\.com/(?:services|workflows)/([\w/]{20,100})")
_ACCOUNT_KEY = re.compile(r"AccountKey=([A-Za-z0-9+/]{40,120}={0,2})")
_URL_PASSWORD = re.compile(r"://([^/\s:@\"'<>]{0,100}):([^/\s@\"'<>]{3,200})@")
_KEY_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_END = "-----END"
_MAX_KEY_CHARACTERS = 20_000
_KEY_WITHOUT_END = re.compile(r"(?:(?:\\[rn]|[\s\"'+,]){0,40}[A-Za-z0-9+/=]{30,2000}){1,400}")
# The middle of a key, when its first and last lines are in other chunks: full lines of base64.
_KEY_LINES = re.compile(r"(?:^[ \t\"'+]{0,20}[A-Za-z0-9+/]{64}(?:\\n|[\"'+, ]){0,8}\r?\n){2,400}", re.MULTILINE)

# Names that tell what their value is, in lower case. Found first and fast; only there it is looked further.
_NAME = re.compile(
    r"(?P<password>passw(?:or)?d|passphrase|pwd)"
    r"|secret|token|credential|(?:api|access|auth|private|signing|account|encryption)[_-]?key|authorization|bearer"
)
# name = "value", name: str = "value", "name": "value", name => 'value', name("value"); begins behind the name
_QUOTED = re.compile(
    r"(?P<suffix>[\w-]{0,40})[\"'\]]{0,2}[ \t]{0,20}(?::[ \t]{0,4}[\w\[\], .|?]{1,40}=|:=|=>|={1,3}|[:(,])[ \t]{0,20}"
    r"[rbufRBUF@$]{0,2}(?P<quote>[\"'`])(?P<value>[^\"'`\r\n]{6,400})(?P=quote)"
)
# NAME=value and name: value, one a line, as in environment files, YAML and properties; with what stands before.
_UNQUOTED = re.compile(
    r"(?P<suffix>[\w-]{0,40})(?:=|:[ \t]{1,20}|[ \t]=[ \t])"
    r"(?P<value>[^\s\"'`()\[\]{}<>$,;|&]{6,400})[ \t]{0,20}(?=[\r\n]|\Z)"
)
_LINE_START = re.compile(r"[ \t]*(?:export[ \t]|-[ \t])?[ \t]*[\w.-]{0,60}")
_LINE_START_CHARACTERS = 100
_AUTHORIZATION = re.compile(r"\b(?:Bearer|Basic|token)[ \t]+(?P<value>[A-Za-z0-9+/_.=-]{16,2000})", re.IGNORECASE)

_EXAMPLE = re.compile(
    r"example|sample|change[-_ ]?(?:me|it|this)|placeholder|dummy|fake|your[-_ ]|my[-_]|xxx|\*\*\*|\.\.\.|<.*>|\$\{"
    r"|\{\{|%\(|%s|todo|insert|redacted|replace|test|\b(?:foo|bar|foobar)\b|secret|passw|token|default|1234|abcd|^(.)\1*$"
    r"|^process\.|^os\.|env\[",
    re.IGNORECASE,
)
# Blanks, URLs, paths, interpolation, and words joined by marks.
_NOT_A_SECRET = re.compile(
    r"\s|://|^[/.~#]|^\$\w|[{}]|^[A-Za-z]+([_.-][A-Za-z]+)+$|^[A-Z]?[a-z]+$|^[a-z]+([-_/.][a-z0-9]+)+$|^[A-Z][A-Z0-9_]+$"
)
_ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
_KEY_CHARACTERS = 16
_KEY_ENTROPY_BITS = 3.0  # per character; English words have about 2.5 to 3 at this length, random hex 3.4 and more
_PASSWORD_CHARACTERS = 6


def mask_secrets(text: str) -> str:
    """The text with every secret replaced; always of the same length."""
    text = _mask_private_keys(text)
    text = _KEY_LINES.sub(lambda match: _body_bullets(match[0]) if _is_random(match[0]) else match[0], text)
    text = _TOKENS.sub(lambda match: match[0] if _is_obvious_example(match[0]) else BULLET * len(match[0]), text)
    for pattern in (_PATHS_WITH_TOKENS, _ACCOUNT_KEY):
        text = pattern.sub(lambda match: _masked(match, 1), text)
    text = _URL_PASSWORD.sub(_mask_url, text)
    text = _mask_named(text)
    return _AUTHORIZATION.sub(lambda match: _masked(match, "value") if _is_key(match["value"]) else match[0], text)


def _mask_private_keys(text: str) -> str:
    """Everything between the two marker lines; without the second one, the lines that look like a key."""
    parts: list[str] = []
    done = 0
    for begin in _KEY_BEGIN.finditer(text):
        end = text.find(_KEY_END, begin.end(), begin.end() + _MAX_KEY_CHARACTERS)
        if end < 0 and (unfinished := _KEY_WITHOUT_END.match(text, begin.end())):
            end = unfinished.end()
        if begin.end() >= done and end >= 0:
            parts += text[done : begin.end()], _body_bullets(text[begin.end() : end])
            done = end
    return "".join([*parts, text[done:]])


def _masked(match: re.Match[str], group: int | str) -> str:
    start, end = match.start(group) - match.start(), match.end(group) - match.start()
    return match[0][:start] + BULLET * (end - start) + match[0][end:]


def _body_bullets(body: str) -> str:
    r"""Keeps line ends, quotes and `\n` escapes: what is around a key in source code is not the key."""
    return re.sub(r"\\[rn]|[A-Za-z0-9+/=]", lambda match: match[0] if len(match[0]) > 1 else BULLET, body)


def _is_random(lines: str) -> bool:
    """Base64 of anything mixes all three kinds; lists of checksums and ASCII art do not."""
    return all(re.search(kind, lines) for kind in (r"[a-z]", r"[G-Z]", r"[0-9]"))


def _is_obvious_example(value: str) -> bool:
    return re.search(r"example|x{6}|0{8}|\*{3}", value, re.IGNORECASE) is not None


def _mask_url(match: re.Match[str]) -> str:
    user, password = match[1], match[2]
    is_example = password == user or password.lower() in {"pass", "pw"} or _EXAMPLE.search(password)
    return match[0] if is_example else _masked(match, 2)


def _mask_named(text: str) -> str:
    lowered = text.lower()
    if len(lowered) != len(text):  # "İ" becomes two characters; then only ASCII letters are lowered
        lowered = text.translate(_ASCII_LOWER)
    parts: list[str] = []
    done = 0
    for name in _NAME.finditer(lowered):
        value = _QUOTED.match(text, name.end()) or _unquoted(text, name)
        if value is None or value.start("value") < done:
            continue
        # `password_hash`, `password_field`: about a password, but not one.
        is_password = bool(name["password"]) and not value["suffix"].strip("0123456789_")
        if (_is_password if is_password else _is_key)(value["value"]):
            parts += text[done : value.start("value")], BULLET * len(value["value"])
            done = value.end("value")
    return "".join([*parts, text[done:]])


def _unquoted(text: str, name: re.Match[str]) -> re.Match[str] | None:
    """Only when the name is the first word of its line: elsewhere an unquoted value is an expression."""
    value = _UNQUOTED.match(text, name.end())
    if value is None:
        return None
    nearest = max(0, name.start() - _LINE_START_CHARACTERS)
    line_start = text.rfind("\n", nearest, name.start()) + 1
    if not line_start and nearest:
        return None
    return value if _LINE_START.fullmatch(text, line_start, name.start()) else None


def _is_password(value: str) -> bool:
    """Two kinds of characters at least: one kind alone is a word, a label or a placeholder."""
    if BULLET in value or _EXAMPLE.search(value) or _NOT_A_SECRET.search(value):
        return False
    kinds = sum(re.search(kind, value) is not None for kind in (r"[a-z]", r"[A-Z]", r"[0-9]", r"[^A-Za-z0-9]"))
    return len(value) >= _PASSWORD_CHARACTERS and kinds >= 2


def _is_key(value: str) -> bool:
    """Long and random, with digits or capitals as identifiers rarely have them."""
    if BULLET in value or len(value) < _KEY_CHARACTERS or _NOT_A_SECRET.search(value) or _is_obvious_example(value):
        return False
    digits = sum(character.isdigit() for character in value)
    capitals = sum(character.isupper() for character in value) / len(value)
    unlike_words = digits >= 2 or 0.3 < capitals < 0.7  # CamelCase has fewer capitals
    return unlike_words and _entropy_bits(value) >= _KEY_ENTROPY_BITS and not _EXAMPLE.search(value)


def _entropy_bits(value: str) -> float:
    counts = Counter(value)
    return -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())
