"""The conversations of a store, by key, and one of them."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, Unpack

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from clew.context.window import Window, read_window
from clew.core import drafts
from clew.core.codec import new_id
from clew.core.errors import ClewError, Conflict, InvalidInput, NotFound
from clew.core.model import Draft, Entry, Page, ThreadInfo, to_time
from clew.facets import _base
from clew.facets._base import FacetKey
from clew.facets.conversations import history, storage
from clew.facets.conversations.storage import Reclaimed
from clew.messages.incoming import message_draft, message_drafts, message_list
from clew.store import Store
from clew.thread import Thread

if TYPE_CHECKING:
    from clew.core.options import ForkFields, ForkOptions

T = TypeVar("T")

FACET = "conversation"
FAILURES_KEPT = 100

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
        self._counting = threading.Lock()

    def get(self, key: str) -> Conversation:
        """The conversation of a key. Reads and writes nothing: it is made on the first write."""
        if self.on_error == "raise":
            _base.facet_key(FACET, key, "key")
        return Conversation(self, key)

    def get_or_create(self, key: str) -> Conversation:
        """The conversation of a key, made if there is none: of several callers all get it."""
        conversation = self.get(key)
        conversation._attempt("get_or_create", conversation._begin, None)
        return conversation

    def of(self, thread: Thread | str) -> Conversation:
        """The conversation that a thread holds, given the thread or its id. NotFound.

        For the thread of a key this is the same as `get`. Any other thread will do as well: a
        fork with an id of its own, a sub-agent's. Its `key` is the thread's id then, and it is
        not in the lists.
        """
        id = thread if isinstance(thread, str) else thread.id
        adopted = FacetKey(FACET, id, id, adopted=True)

        def read() -> FacetKey:
            info = self.store.get(id).info
            if not _base.is_of(info, FACET):
                return adopted
            at = _base.facet_key(FACET, _base.key_of(info), "key")
            return at if at.thread == info.id else adopted

        at = self._attempt(id, "of", read, adopted)
        return Conversation(self, at.key, at)

    def fork(
        self, key: str, new_key: str | None = None, **options: Unpack[ForkFields]
    ) -> Conversation:
        """See `Conversation.fork`."""
        return self.get(key).fork(new_key, **options)

    def thread(self, key: str) -> Thread:
        """The thread behind a key, to fork, rewind, compact. NotFound before the first write.

        Its id is `conversation:` and the key, or the hash of a key that can be no part of an id.
        `of` is the way back.
        """
        return self.get(key).thread

    def all(self) -> Iterator[ConversationInfo]:
        """Every conversation, the last made first, page after page. Reads no message.

        What is written meanwhile changes nothing about it: none is missed or seen twice.
        """
        found = _base.every(self.store, FACET)
        while True:
            info = self._attempt(None, "all", lambda: next(found, None), None)
            if info is None:
                return
            yield _info(info)

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

    def add_message(
        self,
        key: str,
        role: str,
        content: Any,
        *,
        format: str | None = None,
        id: str | None = None,
    ) -> None:
        """See `Conversation.add`."""
        self.get(key).add(role, content, format=format, id=id)

    def add_full_message(
        self, key: str, message: Any, *, format: str | None = None, id: str | None = None
    ) -> None:
        """See `Conversation.add_message`."""
        self.get(key).add_message(message, format=format, id=id)

    def get_history(self, key: str) -> Messages:
        """See `Conversation.history`."""
        return self.get(key).history()

    def get_summary(self, key: str) -> str:
        """See `Conversation.summary`."""
        return self.get(key).summary

    def set_summary(self, key: str, text: str) -> None:
        """See `Conversation.set_summary`."""
        self.get(key).set_summary(text)

    def set_history(
        self,
        key: str,
        messages: Iterable[Any],
        *,
        ids: Iterable[str | None] | None = None,
        format: str | None = None,
        expect: str | UnsetType | None = UNSET,
    ) -> str | None:
        """See `Conversation.set_history`."""
        return self.get(key).set_history(messages, ids=ids, format=format, expect=expect)

    def truncate_history(self, key: str, keep_last: int, *, exact: bool = False) -> None:
        """See `Conversation.truncate`."""
        self.get(key).truncate(keep_last, exact=exact)

    def compact_storage(self, key: str, *, drop_branches: bool = False) -> Reclaimed:
        """See `Conversation.compact_storage`."""
        return self.get(key).compact_storage(drop_branches=drop_branches)

    def save(self, key: str) -> None:
        """See `Conversation.save`."""
        self.get(key).save()

    def delete(self, key: str) -> None:
        """See `Conversation.delete`."""
        self.get(key).delete()

    def close(self) -> None:
        """Let go of the store, and so of its files or connections: as `Store.close`.

        For a program that has nothing but the conversations. One that uses the store for other
        things as well closes the store, when it has done with all of them.
        """
        self._attempt(None, "close", self.store.close, None)


class Conversation:
    """One conversation. A handle without state; any number may be used at once."""

    def __init__(self, owner: Conversations, key: str, at: FacetKey | None = None) -> None:
        self.key = key
        self._owner = owner
        self._store = owner.store
        self._place = at

    @property
    def thread(self) -> Thread:
        """The thread behind it, to fork, rewind, compact. NotFound before the first write."""
        return self._store.get(self._at().thread)

    # --- writing ---

    def add(
        self, role: str, content: Any, *, format: str | None = None, id: str | None = None
    ) -> None:
        """Add a message of a role and a text, or of a role and content blocks."""
        self.add_message({"role": role, "content": content}, format=format, id=id)

    def add_message(
        self, message: Any, *, format: str | None = None, id: str | None = None
    ) -> None:
        """Add a message as the provider gave it, all its fields included.

        What is taken, and what is refused with InvalidInput and its place, is the same as in
        `Thread.append_message`, but for one thing: a result need not have its call before it,
        because histories are cut. With an `id` of yours a retry adds nothing twice.
        """

        def call() -> None:
            self._write([message_draft(message, format, id=id, clock=self._store.clock)])

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

    def set_history(
        self,
        messages: Iterable[Any],
        *,
        ids: Iterable[str | None] | None = None,
        format: str | None = None,
        expect: str | UnsetType | None = UNSET,
    ) -> str | None:
        """Replace the history, as one step: either all of the new one is there, or the old one.

        Only what comes after the common beginning of both is stored. What the old one has after
        it stays in the thread as a branch, and so does a message that another writer has added
        since you looked. With `expect`, the `leaf` you know of, that is a Conflict instead. `ids`
        are the ids of your own for the messages, None where a message has none: `rewind`, labels
        and snapshots go by them. An id that is stored with other content, or behind other
        messages, is a Conflict. The summary is not touched. The leaf is returned.
        """

        def call() -> str | None:
            new = message_drafts(message_list(messages), format, clock=self._store.clock)
            own = history.check_ids(ids, len(new))
            named = [
                draft if id is None else replace(draft, id=id)
                for draft, id in zip(new, own, strict=True)
            ]
            given = history.Given(named, own)
            if expect is UNSET:
                return _base.retried(lambda: self._replace(given, UNSET))
            return self._replace(given, expect)

        return self._attempt("set_history", call, None)

    def _replace(self, given: history.Given, expect: str | UnsetType | None) -> str | None:
        at = self._at()
        thread = Thread(self._store, at.thread)
        info = self._find(at)
        if info is None:
            if expect not in (UNSET, None):
                raise _stands_elsewhere(at, expect, None)
            _base.ensure(self._store, at)
            info = thread.info
        gone = _base.is_gone(info)
        leaf = None if gone else info.leaf
        window = Window([]) if gone else read_window(thread, leaf)
        if expect not in (UNSET, leaf) and not given.is_stored(history.shown(window)):
            raise _stands_elsewhere(at, expect, leaf)
        batch, after = history.replacement(self._store, thread, leaf, window, given)
        if info.deleted_at is not None:
            batch = [*_base.revival(info, self._store.clock()), *batch]
        if batch:
            thread.write(batch, expect=info.leaf)
        return after

    def truncate(self, keep_last: int, *, exact: bool = False) -> None:
        """Show only the last messages from now on; 0 clears. What is there already stays stored.

        Where the cut would part a tool's result from its call, more is kept, back to the call;
        `exact` cuts all the same. Writes nothing if there are no more messages than that. A
        negative number is refused: it is a sum that went wrong, and would hide everything.
        """

        def call() -> None:
            _base.check_count(keep_last, "keep_last")
            _base.retried(cut)

        def cut() -> None:
            info = self._live()
            if info is not None:
                history.truncate(Thread(self._store, info.id), info.leaf, keep_last, exact)

        self._attempt("truncate", call, None)

    def compact_storage(self, *, drop_branches: bool = False) -> Reclaimed:
        """Give back the space of what is not shown any more; says how much. Cannot be undone.

        What goes is what `truncate` has hidden. What a fork shares, a snapshot is pinned to or a
        label names stays. Branches need what they stand on: while there are any, nothing goes,
        unless `drop_branches` lets go of them too. It takes the lease: LeaseHeld while another
        owner is at work, and for writers while it lasts. `store.sweep` frees the blobs. If the
        process dies in it, the next call of any method goes on from there.
        """
        key = str(self.key)

        def call() -> Reclaimed:
            at = self._at()
            if at.adopted:
                raise InvalidInput("key", f"thread {at.thread!r} is not the thread of a key")
            return storage.compact_storage(self._store, at, drop_branches)

        return self._attempt("compact_storage", call, Reclaimed(key=key))

    def fork(self, new_key: str | None = None, **options: Unpack[ForkFields]) -> Conversation:
        """A new conversation that shares the history up to an entry, by reference. NotFound.

        Without a key it gets one that is reserved for it: `key#fork-1`, then `-2`, …. The summary
        comes along. `options` are those of `Store.fork`: at, before, title, parent, facts, time.
        AlreadyExists if there is a conversation of the new key, also a deleted one.
        """
        fallback = f"{self.key}#fork-{new_id()}" if new_key is None else new_key

        def call() -> Conversation:
            info = self._live()
            if info is None:
                raise NotFound("conversation", self.key)
            key = new_key
            if key is None:
                number = self._store.fork_id(info.id).rpartition("-")[2]
                key = f"{self.key}#fork-{number}"
            at = _base.facet_key(FACET, key, "new_key")
            facts = _base.key_facts(at)
            if "summary" in info.facts:
                facts["summary"] = info.facts["summary"]
            facts |= options.get("facts") or {}
            all_options: ForkOptions = {**options, "facts": facts, "id": at.thread}
            self._store.fork(info.id, **all_options)
            return self._owner.get(key)

        return self._attempt("fork", call, Conversation(self._owner, fallback))

    def save(self) -> None:
        """Nothing to do: what was added is durable already. Kept for loops that call it."""

    def delete(self) -> None:
        """Put a tombstone on it; the next write begins anew. Deleting twice is fine."""

        def call() -> None:
            at = self._at()
            info = self._find(at)
            # The tombstone that stands while the storage is compacted is not the user's.
            if info is not None and _base.COMPACTING in info.facts:
                thread = Thread(self._store, at.thread)
                thread.write(_base.revival(info, self._store.clock()), expect=info.leaf)
            _base.tombstone(self._store, at)

        self._attempt("delete", call, None)

    # --- reading ---

    def history(self) -> list[Any]:
        """The messages, oldest first, as they were added. Reads no more than it returns."""
        return [entry.body for entry in self.entries()]

    def entries(self) -> list[Entry]:
        """The messages as entries: with the id, time and format of each."""

        def read() -> list[Entry]:
            info = self._live()
            if info is None:
                return []
            return history.shown(read_window(Thread(self._store, info.id), info.leaf))

        return self._attempt("history", read, [])

    @property
    def summary(self) -> str:
        """The summary that was set; empty if there is none."""

        def read() -> str:
            info = self._live()
            if info is None:
                return ""
            damage = _base.read_facts(info, _SHAPES)[1]
            _base.check_whole(f"conversation {self.key!r}", damage, "Set the summary anew")
            return _info(info).summary

        return self._attempt("summary", read, "")

    @property
    def leaf(self) -> str | None:
        """The entry that it stands on, for `expect`; None while it is empty.

        Read it before the history: what is added in between is then noticed.
        """

        def read() -> str | None:
            info = self._live()
            return None if info is None else info.leaf

        return self._attempt("leaf", read, None)

    def _write(self, batch: Sequence[Draft]) -> None:
        at = self._at()
        _base.write(self._store, at, batch, restored=partial(storage.settle, self._store, at))

    def _begin(self) -> None:
        at = self._at()
        self._find(at)
        _base.begin(self._store, at)

    def _find(self, at: FacetKey) -> ThreadInfo | None:
        info = _base.find_info(self._store, at)
        # It may be missing because its storage is being compacted, by a process that has died.
        if not at.adopted and storage.is_unsettled(info) and storage.settle(self._store, at):
            info = _base.find_info(self._store, at)
        if at.adopted and (info is None or info.deleted_at is not None):
            raise NotFound(
                "thread", at.thread, deleted_at=None if info is None else info.deleted_at
            )
        return info

    def _live(self) -> ThreadInfo | None:
        info = self._find(self._at())
        return None if info is None or _base.is_gone(info) else info

    def _at(self) -> FacetKey:
        return self._place or _base.facet_key(FACET, self.key, "key")

    def _attempt(self, operation: str, call: Callable[[], T], otherwise: T) -> T:
        return self._owner._attempt(self.key, operation, call, otherwise)

    def __repr__(self) -> str:
        return f"<clew.Conversation {self.key!r}>"


def _stands_elsewhere(at: FacetKey, expect: Any, leaf: str | None) -> Conflict:
    return Conflict(
        f"conversation {at.key!r} stands on {leaf!r}, not on {expect!r}; nothing was written."
        " Read what came in between, then decide",
        field="leaf",
        expected=expect,
        actual=leaf,
    )


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
