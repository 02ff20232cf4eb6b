"""Bytes of a text file -> its encoding, the UTF-8 that parsers see, and the map back to the original bytes.

Decoding is strict: a file that fits no encoding well is refused, because a wrong guess would index noise and a
lenient one would move offsets. Encodings with shift states (ISO-2022) are not supported, since a slice of such a
file cannot be decoded alone.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from dataclasses import dataclass

from indexing.offsets import IDENTITY, OffsetMap, map_offsets

# UTF-32 before UTF-16: their little-endian marks begin alike.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE_BYTES = 64 * 1024
_UNMARKED_SAMPLE_BYTES = 4096
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")
_UTF8_SEQUENCE = re.compile(rb"[\xc3-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
_FREQUENT_CYRILLIC = frozenset("оеаинтсрвлкмдпуя")


@dataclass(frozen=True, slots=True)
class DecodedText:
    encoding: str
    text: bytes  # UTF-8, without a byte order mark
    offsets: OffsetMap


def decode_source(raw: bytes) -> DecodedText | None:
    """None when no encoding fits; then the file must not be indexed."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark) and (decoded := _decoded(raw, encoding, len(mark))):
            return decoded
    if b"\0" in raw:
        encoding = _unmarked_utf16(raw)
        return _decoded(raw, encoding, 0) if encoding else None
    if _is_valid(raw, "utf-8"):
        return DecodedText("utf-8", raw, IDENTITY)
    encoding = _legacy_encoding(raw)
    return _decoded(raw, encoding, 0) if encoding else None


def decode(raw: bytes, encoding: str) -> str:
    """Any slice of a file, for viewers: never fails, what cannot be decoded is replaced."""
    try:
        return raw.decode(encoding, errors="replace").removeprefix("\ufeff")
    except LookupError:
        return raw.decode("utf-8", errors="replace").removeprefix("\ufeff")


def _decoded(raw: bytes, encoding: str, mark_bytes: int) -> DecodedText | None:
    try:
        text = raw[mark_bytes:].decode(encoding)
    except UnicodeDecodeError:
        return None
    if "\0" in text:
        return None
    offsets = map_offsets(text, raw, encoding=encoding, mark_bytes=mark_bytes)
    return DecodedText(encoding, text.encode(), offsets)


def _is_valid(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _unmarked_utf16(raw: bytes) -> str:
    """Code is mostly ASCII: every second byte of its UTF-16 is zero, and hardly any of the others is."""
    sample = raw[:_UNMARKED_SAMPLE_BYTES]
    units = len(sample) // 2
    if len(raw) % 2 or not units:
        return ""
    even, odd = sample[0::2].count(0) / units, sample[1::2].count(0) / units
    if max(even, odd) < 0.7 or min(even, odd) > 0.01:
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _legacy_encoding(raw: bytes) -> str:
    """The encoding in which the non-ASCII characters make sense, judged on the lines that have some.

    Each test asks for what its script cannot lack, so their order matters only between scripts that share bytes.
    """
    lines = [line for line in raw.splitlines(keepends=True) if not line.isascii()]
    sample = b"".join(lines)[:_SAMPLE_BYTES]
    high_bytes = sum(map(len, _HIGH_BYTES.findall(sample)))
    if sum(map(len, _UTF8_SEQUENCE.findall(sample))) > high_bytes * 0.75:
        return ""  # UTF-8 with a fault in it: any other reading would be nonsense
    for encoding, fits in _TESTS:
        # Only the whole file can be decoded strictly: the sample may end inside a character.
        if fits(sample.decode(encoding, errors="ignore"), sample) and _is_valid(raw, encoding):
            return encoding
    return ""


def _fits_cyrillic(text: str, _: bytes) -> bool:
    """Whole words of frequent letters, mostly small: KOI8-R and Windows-1251 read each other with case swapped."""
    letters = [character for character in text if "а" <= character.lower() <= "я" or character in "ёЁ"]
    others = sum(not character.isascii() for character in text) - len(letters)
    if not letters or others > len(letters) / 4:
        return False
    small = sum(character.islower() for character in letters)
    frequent = sum(character.lower() in _FREQUENT_CYRILLIC for character in letters)
    mixed = len(re.findall(r"[A-Za-z][а-яё]|[а-яё][A-Za-z]", text, re.IGNORECASE))
    return small * 2 > len(letters) and frequent * 2 > len(letters) and mixed * 5 < len(letters)


def _fits_shift_jis(text: str, sample: bytes) -> bool:
    """Kana, or common kanji whose second bytes are not all ASCII (Windows' curly quotes before letters are)."""
    pairs = re.findall(rb"([\x81-\x9f\xe0-\xfc])([\x40-\x7e\x80-\xfc])", sample)
    high_trails = sum(trail >= b"\x80" for _, trail in pairs)
    common_kanji = high_trails * 3 >= len(pairs) > 0 and _share(pairs, 0x88, 0x98) >= 0.7
    return _mostly_japanese(text, common_kanji)


def _fits_euc_jp(text: str, _: bytes) -> bool:
    """Shares its bytes with GB 2312, in which hardly anybody writes kana."""
    return _mostly_japanese(text, False)


def _mostly_japanese(text: str, common_kanji: bool) -> bool:
    foreign = [character for character in text if not character.isascii()]
    kana = sum("\u3041" <= character <= "\u30fe" for character in foreign)
    kanji = sum("\u4e00" <= character <= "\u9fff" for character in foreign)
    marks = sum("\u3000" <= character <= "\u303f" or "\uff01" <= character <= "\uff60" for character in foreign)
    return (kana + kanji + marks) >= len(foreign) * 0.9 and (
        kana >= len(foreign) * 0.15 or (common_kanji and kanji > 0)
    )


def _fits_korean(text: str, _: bytes) -> bool:
    foreign = [character for character in text if not character.isascii()]
    hangul = sum("\uac00" <= character <= "\ud7a3" for character in foreign)
    return hangul >= 3 and hangul >= len(foreign) * 0.95


def _fits_simplified_chinese(text: str, sample: bytes) -> bool:
    pairs = re.findall(rb"([\x81-\xfe])([\x30-\xfe])", sample)
    return len(text) > 0 and _share([pair for pair in pairs if pair[1] >= b"\xa1"], 0xB0, 0xD8, of=len(pairs)) >= 0.7


def _fits_traditional_chinese(text: str, sample: bytes) -> bool:
    pairs = re.findall(rb"([\xa1-\xf9])([\x40-\x7e\xa1-\xfe])", sample)
    high_trails = sum(trail >= b"\xa1" for _, trail in pairs)
    return len(text) > 0 and high_trails * 4 >= len(pairs) > 0 and _share(pairs, 0xA4, 0xC7) >= 0.7


def _share(pairs: list[tuple[bytes, bytes]], first: int, end: int, *, of: int = -1) -> float:
    """Share of two-byte characters whose lead byte lies in the rows of the common characters."""
    total = len(pairs) if of < 0 else of
    return sum(first <= lead[0] < end for lead, _ in pairs) / total if total else 0.0


def _fits_latin(text: str, sample: bytes) -> bool:
    """Accented letters inside or beside words; signs (quotes, ©) are fine too, but not between two letters.

    Two or three such letters may follow each other; long runs of them are another script or no text at all.
    """
    runs = _HIGH_BYTES.findall(sample)
    if _CONTROL.search(text) or sum(map(len, runs)) > 2 * len(runs):
        return False
    foreign = re.findall(r"[^\x00-\x7f]", text)
    signs_in_words = re.findall(r"(?<=[^\W\d_])(?:[^\x00-\x7f\w’]|[¹²³])(?=[^\W\d_])", text)
    return len(signs_in_words) <= len(foreign) / 5


_TESTS: tuple[tuple[str, Callable[[str, bytes], bool]], ...] = (
    ("cp1251", _fits_cyrillic),
    ("koi8_r", _fits_cyrillic),
    ("cp932", _fits_shift_jis),
    ("euc_jp", _fits_euc_jp),
    ("euc_kr", _fits_korean),
    ("gb18030", _fits_simplified_chinese),
    ("big5", _fits_traditional_chinese),
    ("cp1252", _fits_latin),
    ("cp1250", _fits_latin),
    ("latin_1", _fits_latin),
)
