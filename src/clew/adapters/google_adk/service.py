"""The session service: what ADK asks for, on a store."""

from __future__ import annotations

import copy
import threading
from typing import Any
from weakref import WeakValueDictionary

from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions.base_session_service import (
    BaseSessionService,
    GetSessionConfig,
    ListSessionsResponse,
)
from google.adk.sessions.session import Session
from msgspec import to_builtins

from clew.adapters._stores import AnyStore, open_store
from clew.adapters.google_adk import state as states
from clew.adapters.google_adk.events import (
    backwards,
    cut,
    event_drafts,
    event_time,
    is_event,
    newest_entries,
    newest_event,
    to_events,
)
from clew.adapters.google_adk.state import SessionFact
from clew.aio.hop import hop
from clew.core import drafts
from clew.core.codec import decode, digest, encode, new_id
from clew.core.errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    ReadOnly,
)
from clew.core.model import (
    PAGE_MAX,
    Draft,
    Entry,
    FactDraft,
    ThreadInfo,
    ThreadQuery,
    decode_cursor,
    to_us,
)
from clew.thread import Thread

# A list of all sessions is one page: an engine finds and sorts what is asked for once a page.
_PAGE_OF_ALL = 100_000

# What a session of a list is a copy of. To make each by itself would check what is made here.
_BLANK = Session(id="", app_name="", user_id="")

_STALE = (
    "the session was changed since this copy of it was read: the thread {thread!r} stands on "
    "{actual!r}, and the copy on {expected!r}. Nothing was written; get the session again"
)


class SessionPage(ListSessionsResponse):
    """Some sessions, the one that was used last first, and where the next page begins."""

    cursor: str | None = None


class ClewSessionService(BaseSessionService):
    """ADK's sessions in a Clew store. `store` is one that is open, or the address of one.

    An event is written once, with the keys of the state that it changes, in one atomic step. It is
    refused with StaleSessionError if the session has another last event than the copy in hand.
    The calls run in worker threads, under asyncio and trio.
    """

    def __init__(self, store: AnyStore) -> None:
        self.store, self._opened_here = open_store(store)
        self._gates: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._mutex = threading.Lock()

    # --- what ADK asks for ---

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """A new session. AlreadyExistsError if there is one with this id.

        One that was deleted makes room: what was left of it is removed for good.
        """
        name = _stripped(session_id or "") or platform_uuid.new_uuid()
        return await hop(self._create, app_name, user_id, name, state or {})

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """A session with its events, or the last of them; None if there is none.

        Reads as many events as it gives. What others appended to the thread is there as events.
        """
        config = config or GetSessionConfig()
        return await hop(self._get, app_name, user_id, _stripped(session_id), config)

    async def list_sessions(
        self, *, app_name: str, user_id: str | None = None
    ) -> ListSessionsResponse:
        """All sessions of an app or a user with their state, the one used last at the end."""
        found = await hop(self._all, app_name, user_id)
        found.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=found)

    async def list_page(
        self,
        *,
        app_name: str,
        user_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> SessionPage:
        """One page of sessions, the one used last first; `cursor` is that of the page before."""
        return await hop(self._page, app_name, user_id, limit, cursor)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Delete a session. `store.restore` brings it back, `store.purge` ends it."""
        await hop(self._delete, app_name, user_id, _stripped(session_id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """What the sessions of a user share; keys without `user:`."""
        return await hop(self._shared, states.user_thread(app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event, durably, and change the state as it says.

        StaleSessionError if another writer was there since the session was read: nothing is
        written. The same event again is written once.
        """
        if event.partial:
            return event
        return await hop(self._append, session, event)

    async def close(self) -> None:
        """Close the store, if it was opened here."""
        if self._opened_here:
            await hop(self.store.close)

    # --- what ADK does not ask for ---

    async def fork_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        at: str | None = None,
        new_session_id: str | None = None,
    ) -> Session:
        """A new session that shares the events up to `at` (default: all) by reference.

        Its state is the one after that event. From the last event it costs the same at any length;
        from an earlier one the events up to it are read for the state.
        """
        name = _stripped(new_session_id or "", "new_session_id") or platform_uuid.new_uuid()
        return await hop(self._fork, app_name, user_id, _stripped(session_id), at, name)

    async def adopt_thread(
        self,
        thread: str,
        *,
        app_name: str,
        user_id: str,
        session_id: str | None = None,
        agent: str = "model",
    ) -> Session:
        """A session that goes on where a thread stands, which others wrote; the thread stays.

        `agent` becomes the author of what the model said. The history is shared by reference.
        """
        name = _stripped(session_id or "") or platform_uuid.new_uuid()
        return await hop(self._adopt, thread, app_name, user_id, name, agent)

    def thread(self, *, app_name: str, user_id: str, session_id: str) -> Thread:
        """The thread of a session: its context, its forks, its export. NotFound."""
        return self.store.get(states.session_thread(app_name, user_id, _stripped(session_id)))

    # --- sessions ---

    def _create(self, app: str, user: str, name: str, state: dict[str, Any]) -> Session:
        # ADK's own serialiser makes values fit for JSON, in the same way for every event.
        given = EventActions(state_delta=state).model_dump(mode="json")["state_delta"]
        own, of_app, of_user = states.scopes(given)
        shared = {"app": of_app, "user": of_user} if of_app or of_user else None
        known = SessionFact(app, user, name, own, shared, made=new_id())
        thread = states.session_thread(app, user, name)
        try:
            fact = to_builtins(known)
            self._make(thread, {"adapter": states.ADAPTER, states.SESSION: fact})
        except AlreadyExists:
            raise AlreadyExistsError(f"Session with id {name} already exists.") from None
        self._share(thread, app, user, of_app, of_user, cause=known.made or "")
        return self._got(known)

    def _get(self, app: str, user: str, name: str, config: GetSessionConfig) -> Session | None:
        found = self._find(app, user, name)
        if found is None:
            return None
        info, known = found
        thread = Thread(self.store, info.id)
        entries, newest = newest_entries(thread, info.leaf, config)
        body = None if newest is None else newest.body
        self._finish(info, known, newest, body)
        at = None if newest is None else newest.meta.get("state")
        state = states.state_of(info, known.state)
        if states.state_at(info) != at:
            state = self._state_again(info, known, at)
        session = Session(
            id=name,
            app_name=app,
            user_id=user,
            state=states.merged(
                state,
                self._shared(states.app_thread(app)),
                self._shared(states.user_thread(app, user)),
            ),
            events=cut(to_events(entries, known.agent or "model"), config),
            last_update_time=_last_update(info, newest, body),
        )
        session._storage_update_marker = _marker(info.leaf, at)
        return session

    def _state_again(self, info: ThreadInfo, known: SessionFact, at: str | None) -> dict[str, Any]:
        """The state at the leaf, from the path, after the leaf was moved.

        It becomes the facts, too, unless another writer is faster.
        """
        thread = Thread(self.store, info.id)
        state = states.state_after(thread.path(info.leaf), known.state)
        time_us, cause = self.store.clock(), new_id()
        batch = [
            *states.forgotten_facts(info, state, time_us, cause),
            *states.state_facts(state, time_us, cause),
            *drafts.facts({states.STATE_AT: at}, time_us),
        ]
        try:
            thread.write(batch, expect=info.leaf)
        except (Conflict, NotFound, ReadOnly):
            pass
        return state

    def _delete(self, app: str, user: str, name: str) -> None:
        found = self._find(app, user, name)
        if found is not None:
            try:
                self.store.delete(found[0].id)
            except NotFound:
                pass  # it was purged meanwhile

    # --- events ---

    def _append(self, session: Session, event: Event) -> Event:
        owner = session.app_name, session.user_id
        thread = Thread(self.store, states.session_thread(*owner, _stripped(session.id)))
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        body = event.model_dump(mode="json", exclude_none=True)
        own, of_app, of_user = states.scopes(states.changes_of(body))
        # ADK lets the branches of one run share a session: they take turns, each after the last.
        with self._gate(thread.id):
            leaf, at = self._place(thread, session)
            if own:
                at = event.id
            meta: dict[str, Any] = {} if at is None else {"state": at}
            if of_app or of_user:
                meta["shares"] = True
            time_us = _us(event.timestamp)
            batch: list[Draft] = [*event_drafts(thread, leaf, event, body, meta, time_us)]
            if own:
                batch += states.state_facts(own, time_us, f"{event.id}.state")
                fact = encode(at)
                id = f"{event.id}.state_at"
                batch.append(FactDraft(id=id, key=states.STATE_AT, data=fact, time_us=time_us))
            entries = self._write(thread, batch, leaf, session, event)
            if of_app or of_user:
                self._share(thread.id, *owner, of_app, of_user, cause=entries[0].hash)
            stored_before = entries[0].parent != leaf
            if stored_before and any(known.id == event.id for known in session.events):
                return event
            if not stored_before:
                session._storage_update_marker = _marker(entries[-1].id, at)
                session.last_update_time = event.timestamp
            return self._commit_event_to_session(session, event)

    def _write(
        self, thread: Thread, batch: list[Draft], leaf: str | None, session: Session, event: Event
    ) -> list[Entry]:
        try:
            records = thread.write(batch, expect=leaf)
        except NotFound:
            raise SessionNotFoundError(f"Session {session.id} not found.") from None
        except Conflict as error:
            if error.field != "leaf":
                raise AlreadyExistsError(
                    f"Event {event.id} of session {session.id} is stored with other content; "
                    "nothing was written."
                ) from error
            told = {"thread": thread.id, "actual": error.actual, "expected": error.expected}
            raise StaleSessionError(_STALE.format(**told)) from error
        return [record for record in records if isinstance(record, Entry)]

    def _place(self, thread: Thread, session: Session) -> tuple[str | None, str | None]:
        """The leaf that a copy of a session was read at, and the last change of its state."""
        place = _read_marker(session._storage_update_marker)
        if place is not None:
            return place
        # It was made by hand, or went through JSON: its events and its time have to tell.
        info = self._info(thread.id)
        if info is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        newest = newest_event(thread, info.leaf)
        known = session.events[-1].id if session.events else None
        last = next((e.id for e in backwards(thread, info.leaf, 1) if is_event(e)), None)
        if known != last and (known is not None or info.updated_us > _us(session.last_update_time)):
            told = {"thread": thread.id, "actual": last, "expected": known}
            raise StaleSessionError(_STALE.format(**told))
        return info.leaf, None if newest is None else newest.meta.get("state")

    def _gate(self, thread: str) -> threading.Lock:
        with self._mutex:
            return self._gates.setdefault(thread, threading.Lock())

    # --- state that sessions share ---

    def _shared(self, thread: str) -> dict[str, Any]:
        info = self._info(thread)
        return {} if info is None else states.state_of(info, {})

    def _share(
        self,
        session: str,
        app: str,
        user: str,
        of_app: dict[str, Any],
        of_user: dict[str, Any],
        *,
        cause: str,
    ) -> None:
        """Change what sessions share, each key by itself; the same cause again changes nothing."""
        unique = digest(encode([session, cause]))
        for thread, changes in (
            (states.app_thread(app), of_app),
            (states.user_thread(app, user), of_user),
        ):
            if not changes:
                continue
            batch = list(states.state_facts(changes, self.store.clock(), unique))
            try:
                self.store.engine.append(thread, batch)
            except NotFound:
                try:
                    self._make(thread, {"adapter": states.ADAPTER, "archived": True})
                except AlreadyExists:
                    pass  # another writer was first
                self.store.engine.append(thread, batch)

    def _finish(
        self, info: ThreadInfo, known: SessionFact, newest: Entry | None, body: Any
    ) -> None:
        """Complete what a crash may have left between a last event and the shared state.

        Only the last event can be in doubt: the writer of the next one has read the session.
        """
        if self.store.properties.read_only:
            return
        if newest is None and info.leaf is None and known.shared is not None:
            of_app, of_user = known.shared.get("app", {}), known.shared.get("user", {})
            cause = known.made or ""
            self._share(info.id, known.app, known.user, of_app, of_user, cause=cause)
        elif newest is not None and newest.meta.get("shares"):
            # By the thread that it was written in: a fork shares events, and repeats none.
            _, of_app, of_user = states.scopes(states.changes_of(body))
            self._share(newest.thread, known.app, known.user, of_app, of_user, cause=newest.hash)

    # --- lists ---

    def _page(self, app: str, user: str | None, limit: int, cursor: str | None) -> SessionPage:
        drafts.check_number(limit, "limit", 1, PAGE_MAX)
        found, cursor = self._listed(app, user, limit, cursor)
        return SessionPage(sessions=found, cursor=cursor)

    def _all(self, app: str, user: str | None) -> list[Session]:
        every, cursor = self._listed(app, user, _PAGE_OF_ALL, None)
        while cursor is not None:
            found, cursor = self._listed(app, user, _PAGE_OF_ALL, cursor)
            every += found
        return every

    def _listed(
        self, app: str, user: str | None, limit: int, cursor: str | None
    ) -> tuple[list[Session], str | None]:
        above = states.app_thread(app) if user is None else states.user_thread(app, user)
        place = None if cursor is None else decode_cursor(cursor)
        page = self.store.engine.threads(
            ThreadQuery(order="updated", prefix=f"{above}/", limit=limit, cursor=place)
        )
        of_app = self._shared(states.app_thread(app))
        of_users: dict[str, dict[str, Any]] = {}
        found: list[Session] = []
        # Each is let go of when it has become a session: thousands of both at once would set off
        # Python's garbage collector, which takes longer than all of this.
        infos = page.items
        infos.reverse()
        while infos:
            info = infos.pop()
            known = states.session_fact(info)
            if known is None or known.app != app or user not in (None, known.user):
                continue
            if known.user not in of_users:
                of_users[known.user] = self._shared(states.user_thread(app, known.user))
            state = states.state_of(info, known.state)
            if of_app or of_users[known.user]:
                # Each session gets a copy: what its reader does to it is no other reader's affair.
                state = states.merged(state, *copy.deepcopy((of_app, of_users[known.user])))
            said = {
                "id": known.session,
                "app_name": app,
                "user_id": known.user,
                "state": state,
                "events": [],
                "last_update_time": info.updated_us / 1e6,
            }
            found.append(_BLANK.model_copy(update=said))
        return found, page.cursor

    # --- forks ---

    def _fork(self, app: str, user: str, name: str, at: str | None, new: str) -> Session:
        found = self._find(app, user, name)
        if found is None:
            raise SessionNotFoundError(f"Session {name} not found.")
        info, known = found
        thread = Thread(self.store, info.id)
        at = info.leaf if at is None else thread.get(at).id
        newest = newest_event(thread, at)
        state_at = None if newest is None else newest.meta.get("state")
        state = states.state_of(info, known.state)
        if states.state_at(info) != state_at:
            state = states.state_after(thread.path(at), known.state)
        first = known.state
        changed = {key: value for key, value in state.items() if (key, value) not in first.items()}
        facts = {fact.key: decode(fact.data) for fact in states.state_facts(changed, 0, "")}
        if state_at is not None:
            facts[states.STATE_AT] = state_at
        fact = SessionFact(app, user, new, first, agent=known.agent)
        return self._forked(info.id, at, fact, facts)

    def _adopt(self, thread: str, app: str, user: str, name: str, agent: str) -> Session:
        return self._forked(thread, None, SessionFact(app, user, name, agent=agent), {})

    def _forked(
        self, source: str, at: str | None, known: SessionFact, facts: dict[str, Any]
    ) -> Session:
        facts |= {"adapter": states.ADAPTER, states.SESSION: to_builtins(known)}
        id = states.session_thread(*known.owner)
        try:
            self.store.fork(source, at=at, id=id, facts=facts)
        except AlreadyExists:
            raise AlreadyExistsError(f"Session with id {known.session} already exists.") from None
        return self._got(known)

    def _got(self, known: SessionFact) -> Session:
        """A session that was just made."""
        found = self._get(*known.owner, GetSessionConfig())
        if found is None:
            raise SessionNotFoundError(f"Session {known.session} not found.")
        return found

    # --- threads ---

    def _find(self, app: str, user: str, name: str) -> tuple[ThreadInfo, SessionFact] | None:
        """The thread of a session, and whose it says that it is."""
        info = self._info(states.session_thread(app, user, name))
        known = None if info is None else states.session_fact(info)
        if info is None or known is None or known.owner != (app, user, name):
            return None
        return info, known

    def _info(self, thread: str) -> ThreadInfo | None:
        """What a thread's row says; None if there is none, or it is deleted."""
        try:
            info = self.store.engine.thread(thread)
        except NotFound:
            return None
        # Not by a look at all facts: the state is among them, and is decoded but once.
        is_deleted = "deleted_us" in info.fact_data and info.deleted_at is not None
        return None if is_deleted else info

    def _make(self, thread: str, facts: dict[str, Any]) -> None:
        """Create a thread. What is deleted makes room, as ADK's users expect of a deletion."""
        try:
            self.store.create(thread, facts=facts)
        except AlreadyExists as error:
            if error.deleted_at is None:
                raise
            self.store.purge(thread)
            self.store.create(thread, facts=facts)


# --- names and times ------------------------------------------------------------------------


def _last_update(info: ThreadInfo, newest: Entry | None, body: Any) -> float:
    """When a session was last changed: as the event itself says it, if that was an event."""
    if newest is not None and newest.time_us == info.updated_us:
        timestamp = body.get("timestamp") if isinstance(body, dict) else None
        if isinstance(timestamp, float):
            return timestamp
    return info.updated_us / 1e6


def _stripped(name: str, field: str = "session_id") -> str:
    """The id of a session as ADK takes it: without spaces around it."""
    if not isinstance(name, str):
        raise InvalidInput(field, f"must be text, not {name!r}")
    return name.strip()


def _us(timestamp: float) -> int:
    return to_us(event_time(timestamp))


# --- the marker that ADK keeps in a copy of a session: where the copy was read ---------------


def _marker(leaf: str | None, state_at: str | None) -> str:
    return encode([leaf, state_at]).decode()


def _read_marker(marker: str | None) -> tuple[str | None, str | None] | None:
    if marker is None:
        return None
    try:
        leaf, state_at = decode(marker.encode())
    except (Corrupt, ValueError, TypeError):
        return None  # of another service
    return leaf, state_at
