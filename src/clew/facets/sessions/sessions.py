"""The sessions of a store."""

from __future__ import annotations

import copy
import heapq
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from typing import Any

from clew import messages
from clew.context.window import read_window
from clew.core.errors import ClewError, Conflict, LeaseHeld, NotFound
from clew.core.model import Entry, Order, Page, Record, ThreadInfo, to_us
from clew.core.removal import Purged
from clew.facets import _base
from clew.facets._base import FacetKey
from clew.facets.sessions import save
from clew.facets.sessions.document import (
    FACET,
    Event,
    Session,
    SessionInfo,
    Sync,
    call_body,
    document_of,
    has_user_interaction,
    info_of,
    is_listed,
    is_stored,
)
from clew.facets.sessions.markdown import export_session_markdown
from clew.facets.sessions.save import CompactedHistory, SessionSave
from clew.facets.sessions.workspace import (
    current_workspace_path,
    fact_name,
    identity_tag,
    normalize_workspace_path,
    workspace_identity,
)
from clew.messages.incoming import message_draft, message_drafts, message_list
from clew.messages.neutral import Usage
from clew.store import Store
from clew.thread import Thread

_TRIES = 100
_PAGE = 200

# `list` is a method of Sessions, and so no type inside of it.
Messages = list[Any]
Records = list[Record]


class Sessions:
    """The sessions of a store, by id.

    Wherever an id is taken, that of the session's thread does as well, unless another session has
    that very id. Calls that take a session or an id: with the document they store all that is new
    in it and keep it up to date, with the id they write that one thing and need nothing else.
    """

    def __init__(self, store: Store) -> None:
        self.store = store

    def new(
        self,
        vendor: str = "",
        endpoint: str = "",
        model: str = "",
        *,
        workspace: str | None = None,
        id: str | None = None,
    ) -> Session:
        """A document that is not stored before a user has spoken in it.

        The workspace is the current folder unless one is given.
        """
        now = self.store.now()
        fresh = f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(8)}"
        path = current_workspace_path() if workspace is None else workspace
        return Session(
            id=_facet_key(fresh if id is None else id).key,
            created_at=now,
            updated_at=now,
            workspace=normalize_workspace_path(path),
            vendor=vendor,
            endpoint=endpoint,
            model=model,
        )

    # --- writing ---

    def save(
        self,
        session: Session,
        *,
        format: str | None = None,
        fence: int | None = None,
        updated_at: datetime | None = None,
    ) -> bool:
        """Store what is new in the document; False, and nothing, if no user has spoken yet.

        Nothing stored is rewritten or dropped. What other writers have appended since the
        document was loaded stays, and what is new here comes after it. If messages that were
        stored already are changed, the changed history stands for the old one from here on, as a
        checkpoint does; `load(full=True)` gives the old one. A deleted session comes back.
        LeaseHeld while another owner holds the lease of the thread; the holder gives its `fence`.
        `updated_at` is the time of the save, for a session that comes from elsewhere.
        """
        updated_us = None if updated_at is None else to_us(updated_at, "updated_at")
        return self._write(session, format, fence=fence, updated_us=updated_us) is not None

    def append_message(
        self,
        session: Session | str,
        message: Any,
        *,
        usage: Usage | Mapping[str, Any] | None = None,
        model: str | None = None,
        format: str | None = None,
        fence: int | None = None,
    ) -> Entry:
        """Append a message, and what the call that made it has used; the entry that it became.

        Durable when it returns. A document that is not stored yet is stored in the same step,
        whoever speaks in it. The first text of a user becomes the title, if there is none. On an
        error the document is as before.
        """
        document = self._document(session)
        message_draft(message, format)  # checked before the document is touched
        calls = [] if usage is None else [call_body(usage, model or document.model)]
        document.messages.append(messages.as_body(message))
        document.sync.calls.extend(calls)
        try:
            written = self._write(document, format, fence=fence, always=True, sure_messages=1)
        except BaseException:
            document.messages.pop()
            document.sync.calls = document.sync.calls[: len(document.sync.calls) - len(calls)]
            raise
        return _last(written, _base.is_message)

    def append_event(
        self, session: Session | str, event: Event, *, fence: int | None = None
    ) -> Entry:
        """Append an event of a UI or a tunnel: as `append_message` does."""
        document = self._document(session)
        save.check_event(event)
        document.events.append(event)
        try:
            written = self._write(document, None, fence=fence, always=True, sure_events=1)
        except BaseException:
            document.events.pop()
            raise
        return _last(written, lambda entry: entry.kind == "event")

    def append_checkpoint(
        self,
        session: Session | str,
        compacted_messages: Messages,
        token_count: int,
        *,
        fence: int | None = None,
    ) -> Entry:
        """Let a compacted history stand for all before it, so that a resume need not compact.

        `load` gives the compacted messages and what comes after; nothing is deleted, and
        `load(full=True)` gives all. The messages of the document stay as they are. With the
        document, messages that other writers have appended since it was loaded come after too;
        with the id, the checkpoint stands for all that is stored.
        """
        _base.check_count(token_count, "token_count")
        given = message_list(compacted_messages, "compacted_messages")
        message_drafts(given)  # checked; they are stored inside of the checkpoint, not as entries
        checkpoint = CompactedHistory([messages.as_body(m) for m in given], token_count)
        document = self._document(session)
        written = self._write(document, None, fence=fence, always=True, checkpoint=checkpoint)
        return _last(written, lambda entry: entry.kind == "compaction")

    def ensure_meta(self, session: Session) -> bool:
        """Store the metadata if the session is not stored, but no message. False as in `save`.

        For callers that write the messages by id.
        """
        bare = copy.copy(session)
        bare.messages, bare.events = [], []
        if session.sync.known:
            return True
        at, info = _base.claim(self.store, _facet_key(session.id))
        if info is None:
            if not has_user_interaction(session):
                return False
            _base.ensure(self.store, at, time=session.created_at)
            bare.sync = Sync(known=True, thread=at.thread)
            if not self._write(bare, None):  # no metadata either: it is stored all the same
                Thread(self.store, at.thread).move(None)
        return True

    def fork(
        self,
        session: str,
        *,
        id: str | None = None,
        at: str | None = None,
        before: str | None = None,
        title: str | None = None,
    ) -> Session:
        """A session of its own that begins as this one is, or was: one row, at any length.

        `at` and `before` name an entry, as in `Store.fork`. Without an `id` it is the session's
        with `#fork-1` behind it, or the next number that is free. The title comes along unless
        you give one; cost and usage, too, the usage as far as it belongs to what they share.
        NotFound.
        """
        info = self._info(session)
        named = title if title is not None else info_of(info).title or None
        made = _base.fork(self.store, FACET, info, id, at=at, before=before, title=named)
        return self.load(made.id)

    def set_title(self, session: Session | str, text: str, *, source: str = "user") -> None:
        """Name a session; `source` says who did: user, provider (a model) or host. NotFound."""
        id = session.id if isinstance(session, Session) else session
        Thread(self.store, self._info(id).id).set_title(text, source=source)
        if isinstance(session, Session):
            session.title = session.sync.title = text

    def delete(self, id: str) -> None:
        """Put a tombstone on a session; fine if there is none. LeaseHeld while it is at work."""
        _base.tombstone(self.store, _base.claim(self.store, _facet_key(id))[0])

    def restore(self, id: str) -> None:
        """Take the tombstone away again. NotFound if there is no such session."""
        self.store.restore(self._info(id, deleted=True).id)

    def purge(self, id: str) -> Purged:
        """Remove a session for good, deleted before or not: see `Store.purge`. NotFound."""
        return self.store.purge(self._info(id, deleted=True).id)

    def cleanup_older_than(self, time: datetime) -> int:
        """Delete the sessions that were last updated before a time; how many they were.

        Tombstones: `restore` brings each back. One that is leased, or written to meanwhile,
        archived ones and damaged ones stay.
        """
        before_us = to_us(time)
        found = _base.infos(
            self.store, FACET, cursor=None, limit=_PAGE, before_us=before_us, archived=False
        )
        deleted = 0
        for info in found:
            if info_of(info).damaged is not None:
                continue  # when it was last used, and whether it was archived, is not sure
            with suppress(Conflict, LeaseHeld, NotFound):
                _base.bury(self.store, info)
                deleted += 1
        return deleted

    # --- reading ---

    def load(self, id: str, *, full: bool = False, events: bool = True) -> Session:
        """The document: what the last checkpoint brings and all after it, or the `full` history.

        Without a checkpoint both are the same. Events before a checkpoint have to be looked for
        in all of the thread; without `events` they are not. NotFound.
        """
        info = self._info(id)
        thread = Thread(self.store, info.id)
        window = read_window(thread, info.leaf, compacted=not full)
        happened = save.stored_events(thread, info, window) if events else []
        session = document_of(info, save.shown(window), happened)
        session.sync.messages = _base.copied(session.messages)
        return session

    def list(
        self,
        workspace: str | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        archived: bool | None = False,
    ) -> Page[SessionInfo]:
        """One page of sessions without their messages, the last updated first.

        With a workspace: those of that folder, and those of a folder with the same place in the
        same repository that is no longer where it was. A damaged session is listed with what is
        wrong in `damaged`.
        """
        _base.check_limit(limit)
        found = found_in(self.store, workspace, cursor=cursor, limit=limit, archived=archived)
        return _base.page_of(filter(is_listed, found), limit, info_of)

    def all(
        self, workspace: str | None = None, *, archived: bool | None = False
    ) -> Iterator[SessionInfo]:
        """Every session that `list` would give, page after page, the last begun one first.

        One that is written to meanwhile is neither missed nor given twice.
        """
        options = {"cursor": None, "limit": _PAGE, "archived": archived}
        found = found_in(self.store, workspace, order="created", **options)
        return map(info_of, filter(is_listed, found))

    def latest(self, workspace: str) -> SessionInfo | None:
        """The session of a workspace that was updated last; None if there is none."""
        return next(iter(self.list(workspace, limit=1).items), None)

    def thread(self, id: str) -> Thread:
        """The thread behind a session, to fork, rewind, compact. NotFound."""
        return Thread(self.store, self._info(id).id)

    def calls(self, id: str) -> Iterator[Entry]:
        """The usage entries of a session, a call each: its model and the provider's numbers."""
        return (entry for entry in self.thread(id).entries() if entry.kind == "usage")

    def has_user_interaction(self, session: Session) -> bool:
        """Whether a user has said or shown something in it."""
        return has_user_interaction(session)

    def export_markdown(self, session: Session | str) -> str:
        """The session as Markdown: a document as it is, an id with its full history."""
        if isinstance(session, str):
            session = self.load(session, full=True, events=False)
        return export_session_markdown(session)

    # --- documents and threads ---

    def _info(self, id: str, *, deleted: bool = False) -> ThreadInfo:
        info = _base.find(self.store, _facet_key(id))
        if info is None or not is_stored(info):
            raise NotFound("session", id)
        if info.deleted_at is not None and not deleted:
            raise NotFound("session", id, deleted_at=info.deleted_at)
        return info

    def _document(self, session: Session | str) -> Session:
        """The caller's document; for an id one that knows of no message, and so adds only."""
        return document_of(self._info(session), [], []) if isinstance(session, str) else session

    def _write(
        self,
        session: Session,
        format: str | None,
        *,
        fence: int | None = None,
        always: bool = False,
        checkpoint: CompactedHistory | None = None,
        sure_messages: int = 0,
        sure_events: int = 0,
        updated_us: int | None = None,
    ) -> Records | None:
        """Save the document, as records; None if no user has spoken in it, unless `always`.

        Of its messages and events the last `sure_…` are new for sure.
        """
        save.check(session)
        at = _facet_key(session.id)
        for _ in range(_TRIES):
            if not session.sync.known and not self._meet(session, at, always=always):
                return None
            thread = Thread(self.store, session.sync.thread)
            try:
                one = SessionSave(self.store, session, format, checkpoint, updated_us)
                if not one.batch:
                    return []
                written = thread.write(one.batch, expect=session.sync.leaf, fence=fence)
                one.settle()
                return written
            except Conflict as error:
                last: ClewError = error
                self._catch_up(session, sure_messages, sure_events)
            except NotFound as error:
                last = error
                if error.deleted_at is not None:
                    self.store.restore(thread.id)
                else:  # it was purged: all of the document is new
                    session.sync = Sync(calls=session.sync.calls)
        raise last

    def _meet(self, session: Session, at: FacetKey, *, always: bool) -> bool:
        """Find what is stored under the document's id, or make it.

        What is made is no session before the first write, so both are one step to all who look.
        """
        at, info = _base.claim(self.store, at)
        calls = session.sync.calls
        if info is None:
            if not always and not has_user_interaction(session):
                return False
            _base.ensure(self.store, at, time=session.created_at)
            session.sync = Sync(known=True, thread=at.thread, calls=calls)
            return True
        thread = Thread(self.store, at.thread)
        window = read_window(thread, info.leaf)
        stored = document_of(info, [], save.stored_events(thread, info, window))
        session.sync = stored.sync
        session.sync.calls = calls
        view = save.shown(window)
        same = _base.shared(view, session.messages)
        session.sync.messages = _base.copied(session.messages[:same])
        session.sync.unseen = view[same:]
        same = _base.shared(stored.events, session.events)
        session.sync.events = session.events[:same]
        return True

    def _catch_up(self, session: Session, messages: int, events: int) -> None:
        """Another writer was first: what is new here comes after, unless it is there already.

        The last `messages` and `events` are new for sure: a call that appends the same words twice
        means two messages, while a document that was saved twice means one.
        """
        sync = session.sync
        thread = Thread(self.store, sync.thread)
        leaf = thread.leaf
        # Read after the leaf was: what is appended in between is another Conflict.
        try:
            later = thread.path(leaf, after=sync.leaf)
        except NotFound:
            later = []  # the thread was moved to another branch
        mine = session.messages[len(sync.messages) : len(session.messages) - messages]
        theirs = save.bodies(later)
        same = _base.shared(theirs, mine)
        sync.messages = sync.messages + _base.copied(mine[:same])
        sync.unseen = sync.unseen + theirs[same:]
        happened = session.events[len(sync.events) : len(session.events) - events]
        same = _base.shared(save.events(later), happened)
        sync.events = sync.events + happened[:same]
        sync.leaf = leaf


def _facet_key(id: object) -> FacetKey:
    return _base.facet_key(FACET, id, "id")


def _last(written: Records | None, wanted: Callable[[Entry], bool]) -> Entry:
    """The last of the entries of a sort that were written."""
    entries = [record for record in written or () if isinstance(record, Entry)]
    return next(entry for entry in reversed(entries) if wanted(entry))


# --- which sessions belong to a workspace ----------------------------------------------------


def found_in(
    store: Store, workspace: str | None, *, order: Order = "updated", **options: Any
) -> Iterator[ThreadInfo]:
    """The threads of a workspace's sessions, newest first; None stands for all.

    Those of the folder, and those of the same place in the same repository whose own folder is
    gone: it was moved, or was a clone that is not there any more.
    """
    options["order"] = order
    if workspace is None:
        return _base.infos(store, FACET, **options)
    path = normalize_workspace_path(workspace)
    if not path:
        found = _base.infos(store, FACET, **options)
        return (info for info in found if info.workspace is None)
    here = _base.infos(store, FACET, workspace=fact_name(path), **options)
    tag = identity_tag(workspace_identity(path))
    if tag is None:
        return here
    same = _base.infos(store, FACET, tag=tag, **options)
    # Another clone that is still there has sessions of its own, which are not this folder's.
    moved = (info for info in same if not os.path.isdir(info_of(info).workspace))
    # Both come in the order of pages, so that a cursor goes on in the merged list as well. A
    # session of this very folder is in both of them.
    together = heapq.merge(here, moved, key=lambda info: (-getattr(info, f"{order}_us"), info.id))
    return (next(one) for _, one in groupby(together, key=lambda info: info.id))
