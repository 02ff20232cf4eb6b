"""Is this question English? Decided by script and function words, without a model; in doubt it is."""

from __future__ import annotations

import re

# Function words of other languages. Left out: English words ("die", "was", "on") and what names things in code
# ("del", "des", "dos", "com").
_FOREIGN = frozenset(
    "der das den dem ist sind wird werden wurde wie wo warum welche welcher welches nicht und oder ein eine einen "
    "einer für mit von zum zur auf aus bei beim kann ich gibt "  # German
    "el los las una unas cómo como dónde donde qué cuál por está están para con se "  # Spanish
    "le la les une du est sont où quel quelle pourquoi comment dans avec pour qui que sur ce cette "  # French
    "il lo gli della dello dei dove perché quale quali sono è di che si "  # Italian
    "os uma onde qual quais são não em no na da é "  # Portuguese
    "de het een hoe waar waarom wordt worden zijn niet voor met "  # Dutch
    "jak gdzie dlaczego jest są nie się dla który która "  # Polish
    "hur var varför är och inte som för med det vilken "  # Swedish
    "nerede nasıl neden hangi bir ve için ile".split()  # Turkish
)
_BOTH = frozenset("comment no var".split())  # English or code as well: a hint, like words of two letters
_ENGLISH = frozenset(
    "the a an is are was were be been do does did how what where when which who why can could should would will has "
    "have not and or of to in on for with from by this that these it its there i we you my our".split()
)
_LETTERS = re.compile(r"[^\W\d_]")
_WORD = re.compile(r"[^\W\d_]+")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`]*`|\w*[_./:(){}\[\]<>=$\\]+\w\S*", re.DOTALL)
MOST_READ_CHARS = 2_000  # _CODE takes 24 s for 20,000 brackets
MOST_FOREIGN_LETTERS = 0.2  # a name or a symbol of another script inside an English question


def is_english(text: str) -> bool:
    """Code and names say nothing about the language; a question of names alone counts as English."""
    prose = _CODE.sub(" ", text[:MOST_READ_CHARS])
    letters = _LETTERS.findall(prose)
    if sum(ord(letter) > 0x24F for letter in letters) > MOST_FOREIGN_LETTERS * len(letters):
        return False
    words = [word.lower() for word in _WORD.findall(prose)]
    foreign = sum(_weight(word) for word in words if word in _FOREIGN)
    return foreign < 1 or foreign <= sum(word in _ENGLISH for word in words)


def _weight(word: str) -> float:
    return 0.5 if word in _BOTH or (len(word) == 2 and word.isascii()) else 1.0
