"""Replies out of records: which entries tell of a reply, and which tell of the same one.

A reply is known by the provider's id of it, wherever it is written down: in each record of a
stream, in the usage entry behind the message, in a copy of the thread. One without an id is known
by the hash of the first entry that tells of it. The hash covers the content and all that lies
before, but not the thread: a clone has the same ones, and an entry that was adopted from a fork
tells that of its original. The last record that tells of a reply counts.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from clew.core.codec import decode, legible
from clew.core.errors import ClewError
from clew.core.model import Entry, Fact, Record
from clew.messages import FORMATS
from clew.messages.neutral import Usage
from clew.messages.usage import Told, in_data, in_note

# What a usage entry behind it can no longer be about the reply before it.
_ENDS = frozenset({"user_message", "tool_result", "system_message", "compaction", "branch_summary"})
_MESSAGES = frozenset({"assistant_message", "tool_call", "event"})
# In the meta of an entry: the thread and the entry that it was adopted from, and the hash that it
# had where it was written, by which it is known to be the same.
ADOPTED = "adopted"


def adopted_hash(entry: Entry) -> str | None:
    """The hash of the entry that this one is a copy of, if it was adopted."""
    if entry.meta_data is None or b'"adopted"' not in entry.meta_data:
        return None
    told = entry.meta.get(ADOPTED)
    hash = told.get("hash") if isinstance(told, dict) else None
    return hash if isinstance(hash, str) else None


class Reply(Struct, gc=False):
    """One reply, as one thread tells of it. `usage` None: it cannot be read."""

    key: int
    time_us: int
    model: str | None
    provider: str | None
    usage: Usage | None


class Progress(Struct):
    """What must be known of a thread's records that were read, to understand the next ones.

    `open` is the reply that a usage entry would be about. `turns` are the replies of turns whose
    usage is told as one, by the entry of the turn; when it is told again, that replaces it.
    """

    open: tuple[int, bool] | None = None  # its key, and whether that is the provider's id
    model: str | None = None
    facts: dict[str, str] = {}
    turns: dict[str, int] = {}


# How frameworks and agents call it, besides `usage…`, as all providers do.
_USAGE = re.compile(rb'"(?:tokens|metrics|outputTokens)"')
FACTS = ("workspace", "agent", "adapter", "model")


def read(record: Record, progress: Progress) -> Reply | None:
    """The reply that a record tells of, if it does."""
    if isinstance(record, Entry):
        kind = record.kind
        if kind in _ENDS:
            progress.open = None
        elif kind in _MESSAGES:
            return _of_message(record, progress)
        elif kind == "usage":
            return _of_note(record, progress)
        elif kind == "model_change":
            body = _body(record)
            told = body.get("payload", body) if isinstance(body, dict) else {}  # Codex wraps it
            model = told.get("model") if isinstance(told, dict) else None
            progress.model = legible(model) if isinstance(model, str) else progress.model
    elif isinstance(record, Fact) and record.key in FACTS:
        value = _value(record)
        if isinstance(value, str):
            progress.facts[record.key] = legible(value)
        else:
            progress.facts.pop(record.key, None)
    return None


def _of_message(entry: Entry, progress: Progress) -> Reply | None:
    if entry.kind == "assistant_message":
        progress.open = None
    # Most messages say nothing of usage, and to look for the word is cheaper than to read them.
    # In those of providers it stands behind the content.
    data = entry.data
    if data.rfind(b'"usage') < 0 and (entry.format in FORMATS or _USAGE.search(data) is None):
        return None
    told = in_data(entry.format, data)
    if told is None:
        return None
    known = _key_of(told)
    key = _number(adopted_hash(entry) or entry.hash) if known is None else known
    progress.open = (key, known is not None)
    return _reply(key, entry, told, progress)


def _of_note(entry: Entry, progress: Progress) -> Reply:
    told = in_note(entry.format, _body(entry))
    open, progress.open = progress.open, None
    key = _key_of(told)
    if open is not None and (key is None or not open[1]):
        key = open[0]  # it says once more what the message said
    elif key is None:
        key = _number(adopted_hash(entry) or entry.hash)
        if told.turn_entry is not None:
            key = progress.turns.setdefault(told.turn_entry, key)
    return _reply(key, entry, told, progress)


def _reply(key: int, entry: Entry, told: Told, progress: Progress) -> Reply:
    model = told.model or progress.model or progress.facts.get("model")
    return Reply(key, entry.time_us, model, told.provider or entry.format, told.usage)


def _key_of(told: Told) -> int | None:
    id = told.response
    if id is None:
        return None
    if len(id) <= _NO_ID_MAX:
        # Some servers count to a thousand, or draw lots from as many.
        digits = id.removeprefix("chatcmpl-")
        if len(digits) <= 4 and digits.isdecimal():
            return None
    return _number(id)


_NO_ID_MAX = len("chatcmpl-1234")


def _number(text: str) -> int:
    """A key is a number that a table finds fast: 63 bits, of a hash, so that none comes twice.

    Of the hash that is quickest for a few bytes: there may be millions of replies.
    """
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _body(entry: Entry) -> Any:
    """The body; None if it is damaged, which is for `verify` to tell."""
    try:
        return decode(entry.data)
    except ClewError:
        return None


def _value(fact: Fact) -> Any:
    try:
        return decode(fact.data)
    except ClewError:
        return None
