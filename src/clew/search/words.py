"""What the words of a text are: the same in documents and in queries, on every engine.

Case and the accents of Latin, Greek and Cyrillic letters do not count. Scripts that put no spaces
between words are read character by character, so that any part of a sentence can be found.
Punctuation parts words: `src/auth/login.py` and `user_name` are words that follow each other, and
so can be found by each, and together. The parts of `getUserName` are noted behind the text.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from clew.core.text_index import EVERY, WORD_MAX, split

RULES = 1  # raised when other words come out: an index made by other rules is made anew

_FOREIGN = re.compile("[\x80-\U0010ffff]+")
_ACCENTS = re.compile("[\u0300-\u036f\ufe00-\ufe0f]+")  # and what chooses a form of an emoji
# A small letter or a digit that is followed by a capital, or two capitals by a small letter.
# Nothing is tried twice, so that the time stays linear.
_CAMEL = re.compile("(?<![0-9A-Za-z])(?:[A-Z]?[a-z0-9]++[A-Z]|[A-Z]{2,}+[a-z])[0-9A-Za-z]*+")
_HUMP = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Han, Kana, Hangul; Thai, Lao, Khmer, Burmese.
_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3005, 0x3007), (0x3040, 0x30FF)),
    *((0x31F0, 0x31FF), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7AF), (0xF900, 0xFAFF)),
    *((0xFF66, 0xFF9D), (0x20000, 0x3FFFF)),
)


def prepared(text: str) -> str:
    """The text as an index takes it: its words, and whatever parts them."""
    return text if text.isascii() else _FOREIGN.sub(_fold_match, text)


def words(text: str) -> list[str]:
    """The words of a text, in their order."""
    return split(prepared(text))


def parts(text: str) -> list[list[str]]:
    """The parts of each word that is written like getUserName, each such word once."""
    found = dict.fromkeys(_CAMEL.findall(text))
    return [_humps(word) for word in found if len(word) <= WORD_MAX]


@lru_cache(65_536)
def _humps(word: str) -> list[str]:
    return [hump.lower() for hump in _HUMP.findall(word)]


@lru_cache(65_536)
def _noted(word: str) -> str:
    return "" if len(word) > WORD_MAX else " " + " ".join(_humps(word))


def behind(text: str) -> str:
    """What is noted behind a text: the parts of its words, not to be taken for the text itself."""
    found = dict.fromkeys(_CAMEL.findall(text))
    return f" {EVERY}{''.join(map(_noted, found))}" if found else ""


def _fold_match(match: re.Match[str]) -> str:
    found = match[0]
    return _fold(found) if len(found) <= 16 else _folded(found)


@lru_cache(65_536)
def _fold(text: str) -> str:
    return _folded(text)


def _folded(text: str) -> str:
    """Without case and accents; single characters where there are no spaces between words."""
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFC", plain).translate(_CHARACTERS)


class _Characters(dict[int, str]):
    """What becomes of a character; found out when it is first seen."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        if any(first <= point <= last for first, last in _UNSPACED):
            found = f" {character} "
        elif point < 0x80:
            found = character.lower()
        else:
            # Letters, numbers and marks; all else parts words, as ASCII punctuation does.
            found = character if unicodedata.category(character)[0] in "LNM" else " "
        self[point] = found
        return found


_CHARACTERS = _Characters()
