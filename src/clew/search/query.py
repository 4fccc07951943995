"""What a person types, as a query: words, "phrases", prefix*, OR, NOT or -word, parentheses.

There is no wrong query. What does not fit is taken as text, and what says nothing is passed over.
"""

from __future__ import annotations

import re

from msgspec import Struct

from clew.core.text_index import WORD_MAX, And, Or, Query, Words, leaves
from clew.search.words import parts, words

TEXT_MAX = 10_000  # characters that are looked at
LEAVES_MAX = 64
_DEPTH_MAX = 20

_TOKEN = re.compile(r'"(?P<phrase>[^"]*)"(?P<more>\*?)|(?P<round>[()])|(?P<chunk>[^\s()"]+|")')
_IDENTIFIER = re.compile(r"[0-9A-Za-z]+(?:_+[0-9A-Za-z]+)+")


class Parsed(Struct, frozen=True):
    """A query, None if it has no words. `cut`: not all of the text was looked at."""

    query: Query | None
    cut: bool


def parse(text: str) -> Parsed:
    """The query that a text means."""
    reader = _Reader(text[:TEXT_MAX])
    query = reader.read()
    if query is None or not leaves(query):
        # There is nothing but what is unwanted: then it is looked for, as a text like any other.
        reader = _Reader(re.sub(r'["()*-]', " ", text[:TEXT_MAX]), plain=True)
        query = reader.read()
    return Parsed(query, len(text) > TEXT_MAX or reader.cut)


class _Reader:
    def __init__(self, text: str, *, plain: bool = False) -> None:
        self._tokens = list(_TOKEN.finditer(text))
        self._place = 0
        self._plain = plain  # words only
        self._leaves = 0
        self.cut = False

    def read(self) -> Query | None:
        """All of it: a parenthesis that closes nothing is passed over."""
        groups: list[Query] = []
        while self._place < len(self._tokens):
            group = self._either(0)
            if group is not None:
                groups.append(group)
            self._place += 1
        return _all(groups, [])

    def _either(self, depth: int) -> Query | None:
        """Groups with OR between them, up to a parenthesis that closes."""
        found: list[Query] = []
        while True:
            group = self._group(depth)
            if group is not None:
                found.append(group)
            if not self._next_is("OR"):
                return Or(tuple(found)) if len(found) > 1 else found[0] if found else None
            self._place += 1

    def _group(self, depth: int) -> Query | None:
        wanted: list[Query] = []
        unwanted: list[Query] = []
        refused = False
        while self._place < len(self._tokens) and not self._next_is("OR"):
            token = self._tokens[self._place]
            if token["round"] == ")":
                if depth:
                    break
                self._place += 1
                continue
            chunk = token["chunk"] or ""
            if not self._plain and chunk in ("AND", "NOT"):
                refused = chunk == "NOT"
                self._place += 1
                continue
            minus = not self._plain and chunk.startswith("-") and not chunk.startswith("--")
            unit = self._unit(token, depth, minus)
            if unit is not None:
                (unwanted if refused or minus else wanted).append(unit)
            refused = False
        return _all(wanted, unwanted)

    def _unit(self, token: re.Match[str], depth: int, minus: bool) -> Query | None:
        self._place += 1
        if token["round"] == "(":
            if depth >= _DEPTH_MAX:
                return None  # as text, a parenthesis says nothing
            inner = self._either(depth + 1)
            self._place += self._place < len(self._tokens)  # the one that closes it
            return inner
        if token["phrase"] is not None:
            return self._leaf(Words(tuple(words(token["phrase"])), bool(token["more"])))
        chunk = token["chunk"]
        if minus and chunk == "-" and self._place < len(self._tokens):
            following = self._tokens[self._place]
            if following.start() == token.end() and following["chunk"] is None:
                return self._unit(following, depth, minus=False)  # -"a phrase", -(a group)
        return self._word(chunk)

    def _word(self, chunk: str) -> Query | None:
        text = chunk.rstrip("*")
        prefix = text != chunk and bool(text) and bool(words(text[-1]))
        found = self._leaf(Words(tuple(words(text)), prefix))
        if found is None:
            return None
        # An identifier is found in whichever way it is written.
        others = [Words(tuple(humps), prefix) for humps in parts(text)[:1] if len(humps) > 1]
        if _IDENTIFIER.fullmatch(text):
            others.append(Words(("".join(found.words),), prefix))
        return Or((found, *others), same=True) if others else found

    def _leaf(self, leaf: Words) -> Words | None:
        if not leaf.words:
            return None
        if len(leaf.words[-1]) >= WORD_MAX:
            leaf = Words(leaf.words, prefix=True)
        self._leaves += 1
        if self._leaves > LEAVES_MAX:
            self.cut = True
            return None
        if len(leaf.words) > LEAVES_MAX:
            self.cut = True
            return Words(leaf.words[:LEAVES_MAX], column=leaf.column)
        return leaf

    def _next_is(self, word: str) -> bool:
        if self._plain or self._place >= len(self._tokens):
            return False
        return self._tokens[self._place]["chunk"] == word


def _all(wanted: list[Query], unwanted: list[Query]) -> Query | None:
    if len(wanted) == 1 and not unwanted:
        return wanted[0]
    return And(tuple(wanted), tuple(unwanted)) if wanted or unwanted else None
