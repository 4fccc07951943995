"""The conversation facet: messages under a key, for agent loops that want no more than that.

    conversation = Conversations(store).get("telegram:123")
    conversation.add("user", "Hello")
    conversation.history()

A key is any non-empty string, and no two keys share anything. Every write is durable when it
returns. Nothing is ever removed: `truncate` and `set_history` change what `history` shows.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar

from msgspec import Struct

from clew import messages as formats
from clew.context.compaction import compaction_body
from clew.context.window import Window, read_window
from clew.core import drafts
from clew.core.errors import ClewError, InvalidInput
from clew.core.model import Draft, Entry, Page, ThreadInfo, to_time
from clew.facets import _base
from clew.facets._base import FacetKey
from clew.messages.incoming import message_draft, message_drafts, message_list
from clew.messages.neutral import tool_ids
from clew.store import Store
from clew.thread import Thread

T = TypeVar("T")

FACET = "conversation"
FAILURES_KEPT = 100
KNOWN_MAX = 10_000

_log = logging.getLogger("clew.conversation")


class ConversationInfo(Struct, frozen=True, kw_only=True):
    """What a list knows about a conversation without reading its messages.

    `thread` is the id of the thread behind it. `damaged` says what of it cannot be read.
    """

    key: str
    summary: str
    created_at: datetime
    updated_at: datetime
    thread: str = ""
    damaged: str | None = None


class Failure(NamedTuple):
    """A call that did not succeed while errors were only logged."""

    key: Any
    operation: str
    error: ClewError


Failures = list[Failure]
Messages = list[Any]


class Conversations:
    """The conversations of a store, by key.

    With `on_error="log"` no call raises a ClewError: a failed write is logged and counted
    (`failed`, `failures`), a failed read gives what an empty conversation gives. The methods
    that take a key are the same as those of the handle that `get` returns.
    """

    def __init__(self, store: Store, *, on_error: Literal["raise", "log"] = "raise") -> None:
        if on_error not in ("raise", "log"):
            raise InvalidInput("on_error", f"must be 'raise' or 'log', not {on_error!r}")
        self.store = store
        self.on_error = on_error
        self._failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)
        self._failed = 0
        self._ours: set[str] = set()
        self._counting = threading.Lock()

    def get(self, key: str) -> Conversation:
        """The conversation of a key. Reads and writes nothing: it is made on the first write."""
        if self.on_error == "raise":
            _base.facet_key(FACET, key, "key")
        return Conversation(self, key)

    def get_or_create(self, key: str) -> Conversation:
        """The same as `get`: there is nothing to create before the first write."""
        return self.get(key)

    def list(self, *, limit: int = 50, cursor: str | None = None) -> Page[ConversationInfo]:
        """One page of conversations, the last one written to first. Reads no message."""

        def read() -> Page[ConversationInfo]:
            _base.check_limit(limit)
            found = _base.infos(self.store, FACET, cursor=cursor, limit=limit, archived=None)
            return _base.page_of(found, limit, _info)

        return self._attempt(None, "list", read, Page([]))

    # --- failures ---

    @property
    def failed(self) -> int:
        """How many calls have failed since this object was made (`on_error="log"` only)."""
        return self._failed

    @property
    def failures(self) -> Failures:
        """The last failures, oldest first: key, operation, error."""
        return [*self._failures]

    def _check_ours(self, at: FacetKey) -> None:
        """AlreadyExists if the thread of that id is not a conversation. Looks once."""
        if at.thread not in self._ours:
            _base.find_info(self.store, at)
            # A gateway may see millions of keys. Forgetting costs one read for each key that
            # comes back, so the simplest way to forget is good enough.
            if len(self._ours) >= KNOWN_MAX:
                self._ours.clear()
            self._ours.add(at.thread)

    def _attempt(self, key: Any, operation: str, call: Callable[[], T], otherwise: T) -> T:
        if self.on_error == "raise":
            return call()
        try:
            return call()
        except ClewError as error:
            with self._counting:
                self._failed += 1
                self._failures.append(Failure(key, operation, error))
            _log.warning("%s of conversation %r failed: %s", operation, key, error)
            return otherwise

    # --- the same by key, for loops that hold a store and no handles ---

    def add_message(self, key: str, role: str, content: Any) -> None:
        """See `Conversation.add`."""
        self.get(key).add(role, content)

    def add_full_message(self, key: str, message: Any) -> None:
        """See `Conversation.add_message`."""
        self.get(key).add_message(message)

    def get_history(self, key: str) -> Messages:
        """See `Conversation.history`."""
        return self.get(key).history()

    def get_summary(self, key: str) -> str:
        """See `Conversation.summary`."""
        return self.get(key).summary

    def set_summary(self, key: str, text: str) -> None:
        """See `Conversation.set_summary`."""
        self.get(key).set_summary(text)

    def set_history(self, key: str, messages: Iterable[Any]) -> None:
        """See `Conversation.set_history`."""
        self.get(key).set_history(messages)

    def truncate_history(self, key: str, keep_last: int) -> None:
        """See `Conversation.truncate`."""
        self.get(key).truncate(keep_last)

    def save(self, key: str) -> None:
        """See `Conversation.save`."""
        self.get(key).save()

    def delete(self, key: str) -> None:
        """See `Conversation.delete`."""
        self.get(key).delete()

    def close(self) -> None:
        """Nothing to do: all is durable, and the caller who opened the store closes it."""


class Conversation:
    """One conversation. A handle without state; any number may be used at once."""

    def __init__(self, owner: Conversations, key: str) -> None:
        self.key = key
        self._owner = owner
        self._store = owner.store

    @property
    def thread(self) -> Thread:
        """The thread behind it, to fork, rewind, compact. NotFound before the first write."""
        return self._store.get(self._at().thread)

    # --- writing ---

    def add(self, role: str, content: Any, *, format: str | None = None) -> None:
        """Add a message of a role and a text, or of a role and content blocks."""
        self.add_message({"role": role, "content": content}, format=format)

    def add_message(self, message: Any, *, format: str | None = None) -> None:
        """Add a message as the provider gave it, all its fields included.

        What is taken, and what is refused with InvalidInput and its place, is the same as in
        `Thread.append_message`, but for one thing: a result need not have its call before it,
        because histories are cut.
        """

        def call() -> None:
            self._write([message_draft(message, format, clock=self._store.clock)])

        self._attempt("add_message", call, None)

    def set_summary(self, text: str) -> None:
        """Set the summary that is kept beside the messages; it replaces the one before."""

        def call() -> None:
            if not isinstance(text, str):
                raise InvalidInput("summary", f"must be text, not {type(text).__name__}")
            now_us = self._store.clock()
            fact = {"summary": {"text": text, "time_us": now_us}}
            self._write(drafts.facts(fact, now_us))

        self._attempt("set_summary", call, None)

    def set_history(self, messages: Iterable[Any], *, format: str | None = None) -> None:
        """Replace the history, as one step: either all of the new one is there, or the old one.

        The old history stays in the thread as a branch. The summary is not touched.
        """

        def call() -> None:
            given = message_list(messages)
            new = message_drafts(given, format, clock=self._store.clock)
            back = drafts.move(None, self._store.clock())
            self._write([back, *new])

        self._attempt("set_history", call, None)

    def truncate(self, keep_last: int, *, exact: bool = False) -> None:
        """Show only the last messages from now on; 0 clears. What is there already stays stored.

        Where the cut would part a tool's result from its call, more is kept, back to the call;
        `exact` cuts all the same. Writes nothing if there are no more messages than that.
        """

        def call() -> None:
            _base.check_count(keep_last, "keep_last")
            at = self._at()
            _base.retried(lambda: _truncate(self._store, at, keep_last, exact))

        self._attempt("truncate", call, None)

    def save(self) -> None:
        """Nothing to do: what was added is durable already. Kept for loops that call it."""

    def delete(self) -> None:
        """Put a tombstone on it; the next write begins anew. Deleting twice is fine."""
        self._attempt("delete", lambda: _base.tombstone(self._store, self._at()), False)

    # --- reading ---

    def history(self) -> list[Any]:
        """The messages, oldest first, as they were added. Reads no more than it returns."""
        return [entry.body for entry in self.entries()]

    def entries(self) -> list[Entry]:
        """The messages as entries: with the id, time and format of each."""

        def read() -> list[Entry]:
            info = _live(self._store, self._at())
            if info is None:
                return []
            return _messages(read_window(Thread(self._store, info.id), info.leaf))

        return self._attempt("history", read, [])

    @property
    def summary(self) -> str:
        """The summary that was set; empty if there is none."""

        def read() -> str:
            info = _live(self._store, self._at())
            if info is None:
                return ""
            hint = "Set the summary anew"
            _base.check_whole(
                f"conversation {self.key!r}", _base.read_facts(info, _SHAPES)[1], hint
            )
            return _info(info).summary

        return self._attempt("summary", read, "")

    def _write(self, batch: Sequence[Draft]) -> None:
        at = self._at()
        self._owner._check_ours(at)
        _base.write(self._store, at, batch)

    def _at(self) -> FacetKey:
        return _base.facet_key(FACET, self.key, "key")

    def _attempt(self, operation: str, call: Callable[[], T], otherwise: T) -> T:
        return self._owner._attempt(self.key, operation, call, otherwise)

    def __repr__(self) -> str:
        return f"<clew.Conversation {self.key!r}>"


def _live(store: Store, at: FacetKey) -> ThreadInfo | None:
    info = _base.find_info(store, at)
    return None if info is None or info.deleted_at is not None else info


class _Summary(Struct):
    """The fact `summary`."""

    text: str
    time_us: _base.TimeUs


_SHAPES = {"summary": _Summary}


def _info(info: ThreadInfo) -> ConversationInfo:
    values, damaged = _base.read_facts(info, _SHAPES)
    summary = values.get("summary") or _Summary("", info.updated_us)
    return ConversationInfo(
        key=_base.key_of(info),
        summary=summary.text,
        created_at=info.created_at,
        updated_at=to_time(max(info.updated_us, summary.time_us)),
        thread=info.id,
        damaged=_base.damage_of(info, damaged),
    )


# --- truncating -----------------------------------------------------------------------------


def _messages(window: Window) -> list[Entry]:
    return [entry for entry in (*window.kept, *window.entries) if _base.is_message(entry)]


def _truncate(store: Store, at: FacetKey, keep_last: int, exact: bool) -> None:
    info = _live(store, at)
    if info is None:
        return
    thread = Thread(store, at.thread)
    window = read_window(thread, info.leaf)
    shown = _messages(window)
    start = len(shown) - keep_last
    if start > 0 and keep_last and not exact:
        start = _with_calls(shown, start)
    if start > 0:
        body = _cut(window, shown[start:], info.leaf)
        # A message that was added meanwhile would lie behind the cut or before it by chance, so
        # the cut is made again from the new leaf.
        thread.append("compaction", body, expect=info.leaf)


def _cut(window: Window, shown: list[Entry], leaf: str | None) -> dict[str, Any]:
    """A compaction that keeps these messages, and the summary before them if there is one."""
    before = {entry.id for entry in window.kept}
    first = next((entry for entry in shown if entry.id not in before), None)
    previous = window.compaction
    summary = previous.body.get("summary") if shown and previous is not None else ""
    return compaction_body(
        previous,
        first_kept=None if first is None else first.id,
        through=leaf if first is None else first.parent,
        kept_users=[entry.id for entry in shown if entry.id in before],
        summary=summary or "",
        trigger="truncate",
    )


def _with_calls(entries: list[Entry], start: int) -> int:
    """`start`, moved back as far as a result after it needs its call."""
    found = [tool_ids(formats.view(entry.format, entry.body)) for entry in entries]
    calls, results = zip(*found, strict=True)
    # The message that makes the call may itself hold a result, whose call lies further back.
    while True:
        missing = set().union(*results[start:]) - set().union(*calls[start:])
        earlier = [index for index in range(start) if calls[index] & missing]
        if not earlier:
            return start
        start = earlier[-1]
