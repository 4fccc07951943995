"""The waist of search: where words stand, and nothing of what they mean.

`clew.search` decides what the words of an entry are, what a query means and how hits are ranked.
An engine keeps postings: which words stand in which column of which document, and how far each
thread has been read. It is derived data: it may be thrown away at any time and is made again.
An engine names the function that opens one in `Properties.text_index`, as "module:function".

A text for the index is made of words: the longest runs of ASCII letters, digits, and whatever is
not ASCII. ASCII letters are compared without case, all else as it is. Every other character
parts words, and means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Protocol

from msgspec import Struct

from clew.core.engine import Engine, innermost
from clew.core.parts import loading

COLUMNS = 4  # of a document: what PostgreSQL can tell apart
EVERY = "\u2042"  # a word that stands in every document, so that there is something to leave from
WORD_MAX = 64  # characters; an index may cut what is longer, so that a query must be a prefix of it
DOCUMENT_WORDS_MAX = 16_000  # PostgreSQL counts places up to 16,383
COUNT_MAX = 5_000  # further than this the documents of a word are not counted

_WORD = re.compile("[0-9a-z\x80-\U0010ffff]+")


def split(text: str) -> list[str]:
    """The words of a text that was made for the index, in their order."""
    return [word[:WORD_MAX] for word in _WORD.findall(text.lower())]


# --- what is looked for ---------------------------------------------------------------------


class Words(Struct, frozen=True):
    """Words that follow each other. `prefix`: the last one may go on. `column`: only there."""

    words: tuple[str, ...]
    prefix: bool = False
    column: int | None = None


class And(Struct, frozen=True):
    """Each of `wanted`, and none of `unwanted`. Without `wanted`: every document."""

    wanted: tuple[Query, ...]
    unwanted: tuple[Query, ...] = ()


class Or(Struct, frozen=True):
    """At least one of the parts, of which there is one or more. `same`: they mean the same."""

    parts: tuple[Query, ...]
    same: bool = False


Query = Words | And | Or


def leaves(query: Query) -> list[Words]:
    """The words that a document may have to match, in their order; those unwanted are not."""
    match query:
        case Words():
            return [query]
        case And(wanted):
            return [leaf for part in wanted for leaf in leaves(part)]
        case Or(parts):  # one way: there is no other query
            return [leaf for part in parts for leaf in leaves(part)]


class Filter(Struct, frozen=True, kw_only=True):
    """Which documents: by the marks of their thread, by thread, and by time."""

    marks: tuple[tuple[str, str], ...] = ()  # the thread has all of these
    without: tuple[tuple[str, str], ...] = ()  # and none of these
    threads: tuple[str, ...] | None = None
    since_us: int | None = None
    until_us: int | None = None  # up to, but not at


# --- what is kept ---------------------------------------------------------------------------


class Document(Struct, frozen=True, gc=False):
    """A record's words. A thread has one `title`: a new one takes the place of the former."""

    seq: int
    time_us: int
    size: int  # in characters, to weigh it by
    columns: tuple[str, str, str, str]
    title: bool = False


class Known(Struct, frozen=True, gc=False):
    """How far a thread has been read: up to `seq`, whose record had this hash."""

    birth: str
    seq: int
    hash: str


class Addition(Struct, frozen=True, kw_only=True):
    """What was read of a thread. It is dropped unless the index knows the thread as `before`.

    `marks` take the place of those with the same key; `more_marks` come beside them.
    """

    thread: str
    before: Known | None
    now: Known
    documents: Sequence[Document] = ()
    marks: Mapping[str, tuple[str, ...]] = {}
    more_marks: Collection[tuple[str, str]] = ()


class Candidate(Struct, frozen=True, gc=False):
    """A document that matches. `counts[n][c]`: how often leaf n stands in column c."""

    thread: str
    seq: int
    time_us: int
    size: int
    title: bool
    counts: tuple[tuple[int, ...], ...]


class Matches(Struct, frozen=True):
    """The best documents by the engine's own measure, and how many there are in all."""

    total: int
    candidates: list[Candidate]


class TextIndex(Protocol):
    """Postings of one namespace. Safe to call from any thread and from several processes.

    One that was made by another version, or by others, is dropped when it is opened, and `rebuilt`
    says why. Corrupt: it is damaged; it was dropped as well, and an empty one is in its place.
    Unavailable: it cannot be written just now, because another process does.
    """

    rebuilt: str | None  # why the index was made anew by this handle, None if it was not
    fleeting: bool  # in memory: no other process sees it, and a store that is read-only may have it

    def known(self) -> Mapping[str, Known]:
        """How far each thread has been read."""
        ...

    def add(self, additions: Sequence[Addition]) -> None:
        """Add what was read, as one transaction. What another process was first with is dropped."""
        ...

    def remove(self, threads: Collection[str]) -> None:
        """Take threads out, so that none of their words is left in the index's files."""
        ...

    def settle(self) -> None:
        """After many additions: write the postings anew, so that they are small and quick."""
        ...

    def search(
        self, query: Query, filter: Filter, *, limit: int, skip: int = 0, newest: bool = False
    ) -> Matches:
        """The best documents that match, by the engine's own measure; `skip` passes over some.

        They come in no order. `newest`: the newest ones, in that order, and nothing is counted.
        """
        ...

    def counts(self, words: Sequence[Words]) -> list[int]:
        """How many documents have each of them, counted up to COUNT_MAX."""
        ...

    def words_with(self, part: str, limit: int) -> list[str] | None:
        """The words that have this in them; None: there are more, or they cannot be told."""
        ...

    def size_bytes(self) -> int:
        """How large the index is, as far as that can be told."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...

    def close(self) -> None:
        """Let go of it. Closing twice is fine."""
        ...


MEMORY = "clew.engines.shared.full_text:open_full_text"


def memory_text_index(version: int) -> TextIndex:
    """An index that ends with the process, for a store that may not be written."""
    made = _maker(MEMORY)(None, None, version, readonly=False, existing=False)
    assert made is not None
    return made


def open_text_index(engine: Engine, version: int, *, existing: bool = False) -> TextIndex | None:
    """The index of an engine's namespace, for documents made by a version of the rules.

    None: there is none that may be used, because the store is read-only, or, with `existing`,
    because none was made yet.
    """
    properties = engine.properties
    return _maker(properties.text_index)(
        innermost(engine),
        properties.text_index_place,
        version,
        readonly=properties.read_only,
        existing=existing,
    )


def _maker(name: str) -> Callable[..., TextIndex | None]:
    module, _, function = name.partition(":")
    with loading(module):
        found: Callable[..., TextIndex | None] = getattr(import_module(module), function)
    return found
