"""The sessions of a store."""

from __future__ import annotations

import copy
import heapq
import os
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any

from clew import _facets, messages
from clew._facets import Address
from clew.errors import ClewError, Conflict, InvalidInput, LeaseHeld, NotFound
from clew.messages.neutral import Usage
from clew.model import Entry, Page, ThreadInfo, to_us
from clew.sessions import reading, saving
from clew.sessions.document import (
    Event,
    Session,
    SessionInfo,
    Sync,
    document_of,
    has_user_interaction,
    info_of,
)
from clew.sessions.markdown import export_session_markdown
from clew.sessions.usage import add_call, call_body
from clew.sessions.workspace import (
    current_workspace_path,
    fact_name,
    identity_tag,
    normalize_workspace_path,
    workspace_identity,
)
from clew.store import Store
from clew.thread import Thread
from clew.window import read_window

FACET = "session"

_TRIES = 100
_PAGE = 200


class Sessions:
    """The sessions of a store, by id.

    Calls that take a session or an id: with the document they store all that is new in it and
    keep it up to date, with the id they write that one thing and need nothing else.
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
            id=_address(fresh if id is None else id).key,
            created_at=now,
            updated_at=now,
            workspace=normalize_workspace_path(path),
            vendor=vendor,
            endpoint=endpoint,
            model=model,
        )

    # --- writing ---

    def save(self, session: Session, *, format: str | None = None) -> bool:
        """Store what is new in the document; False, and nothing, if no user has spoken yet.

        Nothing stored is rewritten or dropped. What others have appended since the document was
        loaded stays, and what is new here comes after it. If messages that were stored already
        are changed, the changed history stands for the old one from here on, as a checkpoint
        does; `load(full=True)` still gives the old one. A deleted session comes back.
        """
        return self._write(session, format)

    def append_message(
        self,
        session: Session | str,
        message: Any,
        *,
        usage: Usage | Mapping[str, Any] | None = None,
        model: str | None = None,
        format: str | None = None,
    ) -> bool:
        """Append a message, and what the call that made it has used.

        The first text of a user becomes the title, if there is none. False if it stays in the
        document only, because no user has spoken yet. On an error the document is as before.
        """
        document = self._document(session)
        draft = _facets.message_draft(self.store, message, format)
        calls = [] if usage is None else [call_body(usage, model or document.model)]
        body = message if type(message) is dict else messages.as_body(message)
        document.messages.append(body)
        document.sync.calls.extend(calls)
        try:
            stored = self._write(document, draft.format, sure_messages=1)
        except BaseException:
            document.messages.pop()
            document.sync.calls = document.sync.calls[: len(document.sync.calls) - len(calls)]
            raise
        if not stored:
            for call in calls:
                add_call(document.usage, call)
        return stored

    def append_event(self, session: Session | str, event: Event) -> bool:
        """Append an event of a UI or a tunnel. False if it stays in the document for now."""
        document = self._document(session)
        document.events.append(event)
        try:
            return self._write(document, None, sure_events=1)
        except BaseException:
            document.events.pop()
            raise

    def append_checkpoint(
        self, session: Session | str, compacted_messages: list[Any], token_count: int
    ) -> None:
        """Let a compacted history stand for all before it, so that a resume need not compact.

        `load` gives the compacted messages and what comes after; nothing is deleted, and
        `load(full=True)` gives all. The messages of the document stay as they are.
        """
        _facets.check_count(token_count, "token_count")
        bodies = _facets.as_bodies(compacted_messages, "compacted_messages")
        _facets.message_drafts(self.store, bodies, None)
        checkpoint = saving.Checkpoint(bodies, token_count)
        self._write(self._document(session), None, checkpoint=checkpoint)

    def ensure_meta(self, session: Session) -> bool:
        """Store the metadata if the session is not stored, but no message. False as in `save`.

        For callers that write the messages by id.
        """
        bare = copy.copy(session)
        bare.messages, bare.events = [], []
        at = _address(session.id)
        if not session.sync.known and _facets.find_info(self.store, at) is None:
            if not has_user_interaction(session):
                return False
            _facets.ensure(self.store, at, time=session.created_at)
            bare.sync = Sync(known=True)
            self._write(bare, None)
        return True

    def set_title(self, session: Session | str, text: str, *, source: str = "user") -> None:
        """Name a session; `source` says who did: user, provider (a model) or host. NotFound."""
        id = session.id if isinstance(session, Session) else session
        Thread(self.store, self._info(id).id).set_title(text, source=source)
        if isinstance(session, Session):
            session.title = session.sync.title = text

    def delete(self, id: str) -> None:
        """Put a tombstone on a session; fine if there is none. LeaseHeld while it is at work."""
        _facets.tombstone(self.store, _address(id).thread)

    def restore(self, id: str) -> None:
        """Take the tombstone away again. NotFound if there is no such session."""
        at = _address(id)
        if _facets.find_info(self.store, at) is None:
            raise NotFound("session", id)
        self.store.restore(at.thread)

    def cleanup_older_than(self, time: datetime) -> int:
        """Delete the sessions that were last updated before a time; how many they were.

        Tombstones: `restore` brings each back. One that is leased, or written to meanwhile, and
        archived ones stay.
        """
        before_us = to_us(time)
        found = _facets.infos(
            self.store, FACET, cursor=None, limit=_PAGE, before_us=before_us, archived=False
        )
        return sum(self._bury(info) for info in found)

    def _bury(self, info: ThreadInfo) -> bool:
        batch = _facets.burial(info, self.store.clock())
        try:
            self.store.engine.append(info.id, batch, expect=info.leaf)
        except (Conflict, LeaseHeld, NotFound):
            return False
        return True
