"""Which parts of a text are secrets: the rules of gitleaks, on a matcher that takes linear time.

The rules are data of gitleaks (MIT, see rules.LICENSE), made by tools/redaction_rules.py. As there,
a rule is tried only where one of its keywords stands, a match may be an exception, and a match
that is too regular to be a secret is none. A long text is looked at in pieces that overlap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from clew.core.errors import Unsupported

PIECE_BYTES = 64 * 1024
OVERLAP_BYTES = 8 * 1024  # no secret that we know of is longer than this
_SET_BYTES = 64 * 1024 * 1024
_REGEX_BYTES = 16 * 1024 * 1024
_TABLE = Path(__file__).with_name("rules.json")
GENERIC = "generic-api-key"


class Exceptions(Struct, frozen=True):
    """Matches that are no secrets, by the secret itself, by the whole match, or by its line."""

    target: Literal["secret", "match", "line"] = "secret"
    regexes: tuple[str, ...] = ()
    stopwords: tuple[str, ...] = ()


class Rule(Struct, frozen=True):
    """One sort of secret. `entropy` is how many bits a character of it has at least."""

    id: str
    regex: str
    keywords: tuple[str, ...]
    entropy: float = 0
    allowed: tuple[Exceptions, ...] = ()


class Table(Struct, frozen=True):
    """The rules, where they are from, of which day, and what no rule means."""

    source: str
    licence: str
    date: str
    allowed: tuple[Exceptions, ...]
    rules: tuple[Rule, ...]


# What the rules of gitleaks leave out, because code has little of it and conversations have much.
_STAND_INS = Exceptions(
    regexes=(r"(?i)^(?:(?:my|your)?.?pass(?:word|wd)?|pwd|secret|token|x+|\*+|\.+|[$%{\[].*)$",)
)
_OWN = (
    Rule(
        "url-password",
        r"""\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@"'<>]{0,64}:([^\s/@"'<>]{3,256})@[\w.-]""",
        ("://",),
        allowed=(_STAND_INS,),
    ),
    Rule(
        "password",
        r"""(?i)pass(?:word|wd|phrase)["']?\s{0,3}[:=]\s{0,3}["']([^"'\s]{6,256})["']""",
        ("passw", "passphrase"),
        allowed=(_STAND_INS,),
    ),
)
_ENTROPY = Rule("high-entropy", r"\b([A-Za-z0-9+/_-]{24,}={0,2})", ("",), 4.3)


class Found(Struct, frozen=True):
    """A secret in a text: where it stands, in bytes, and by which rule."""

    start: int
    end: int
    rule: str


class Matcher:
    """The rules, compiled. May be used by several threads at once."""

    def __init__(self, *, entropy: bool = False) -> None:
        re2 = _re2()
        table = read_table()
        rules = [*table.rules, *_OWN, *([_ENTROPY] if entropy else [])]
        # What says more about a secret comes first: of two rules for it, the first names it.
        rules.sort(key=lambda rule: rule.id in (GENERIC, _ENTROPY.id))
        always_allowed = [_Allowed(re2, one) for one in table.allowed]
        self._rules = [_Compiled(re2, rule, always_allowed) for rule in rules]
        options = _options(re2, _SET_BYTES)
        options.literal, options.case_sensitive = True, False
        self._keywords = re2.Set.SearchSet(options)
        self._by_keyword: list[list[int]] = []
        self._always = [n for n, rule in enumerate(rules) if "" in rule.keywords]
        owners: dict[str, list[int]] = {}
        for number, rule in enumerate(rules):
            for word in rule.keywords:
                owners.setdefault(word, []).append(number)
        for word, numbers in owners.items():
            if word:
                self._keywords.Add(word.encode())
                self._by_keyword.append(numbers)
        self._keywords.Compile()

    def suspects(self, data: bytes) -> bool:
        """Whether a text may have a secret at all: a look that is quicker than to find it."""
        return any(
            self._rules[n].regex.search(piece)
            for _, piece in _pieces(data)
            for n in self._candidates(piece)
        )

    def find(self, data: bytes) -> list[Found]:
        """The secrets of a text, in order; what overlaps is one."""
        found = [
            Found(start + begin, start + end, self._rules[n].id)
            for start, piece in _pieces(data)
            for n in self._candidates(piece)
            for begin, end in self._rules[n].find(piece)
        ]
        return _merged(found)

    def _candidates(self, piece: bytes) -> list[int]:
        words = self._keywords.Match(piece) or ()
        return sorted({n for word in words for n in self._by_keyword[word]} | {*self._always})


class _Allowed:
    """Exceptions, compiled."""

    def __init__(self, re2: Any, given: Exceptions) -> None:
        options = _options(re2, _REGEX_BYTES)
        self._target = given.target
        self._regex = re2.compile(_any(given.regexes), options)
        self._stopwords = re2.compile(b"(?i)" + _any(map(re2.escape, given.stopwords)), options)

    def has(self, piece: bytes, secret: bytes, match: Any) -> bool:
        looked = secret
        if self._target == "match":
            looked = match.group()
        elif self._target == "line":
            start = piece.rfind(b"\n", 0, match.start()) + 1
            end = piece.find(b"\n", match.end())
            looked = piece[start : end if end >= 0 else len(piece)]
        return bool(self._regex.search(looked) or self._stopwords.search(secret))


def _any(regexes: Iterable[str]) -> bytes:
    """One for several, since every call of the matcher costs more than the match; of none, none."""
    return ("|".join(f"(?:{regex})" for regex in regexes) or r"[^\x00-\xff]").encode()


class _Compiled:
    """A rule, compiled."""

    def __init__(self, re2: Any, rule: Rule, always_allowed: list[_Allowed]) -> None:
        self.id = rule.id
        self.regex = re2.compile(rule.regex.encode(), _options(re2, _REGEX_BYTES))
        self._entropy = rule.entropy
        self._allowed = [_Allowed(re2, one) for one in rule.allowed] + always_allowed

    def find(self, piece: bytes) -> Iterator[tuple[int, int]]:
        for match in self.regex.finditer(piece):
            groups = range(1, len(match.groups()) + 1)
            start, end = match.span(next((n for n in groups if match.group(n)), 0))
            secret = piece[start:end]
            if start == end or entropy_of(secret) < self._entropy:
                continue
            if not any(one.has(piece, secret, match) for one in self._allowed):
                yield start, end


def entropy_of(text: bytes) -> float:
    """How many bits a character has, by how often each one occurs."""
    length = len(text)
    return -sum(n / length * math.log2(n / length) for n in Counter(text).values())


def _pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    if len(data) <= PIECE_BYTES + OVERLAP_BYTES:
        yield 0, data
        return
    for start in range(0, len(data), PIECE_BYTES):
        yield start, data[start : start + PIECE_BYTES + OVERLAP_BYTES]


def _merged(found: list[Found]) -> list[Found]:
    merged: list[Found] = []
    for one in sorted(found, key=lambda one: one.start):  # stable: the better rule stays first
        if merged and one.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = Found(last.start, max(last.end, one.end), _better(last.rule, one.rule))
        else:
            merged.append(one)
    return merged


def _better(first: str, second: str) -> str:
    return second if first in (GENERIC, _ENTROPY.id) else first


def _options(re2: Any, memory: int) -> Any:
    """Bytes are matched as they are: the rules are about ASCII, and offsets stay offsets."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = memory
    options.log_errors = False
    return options


@cache
def read_table() -> Table:
    return msgspec.json.decode(_TABLE.read_bytes(), type=Table)


@cache
def matcher(entropy: bool = False) -> Matcher:
    """The rules, compiled once."""
    return Matcher(entropy=entropy)


def _re2() -> Any:
    try:
        import re2
    except ImportError:
        raise Unsupported(
            "to find secrets needs google-re2: pip install 'clew[redact]'; "
            "to write them as they are, say --no-redact"
        ) from None
    return re2
