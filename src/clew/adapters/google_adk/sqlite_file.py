"""Sessions from a file of ADK: of its SqliteSessionService, or DatabaseSessionService on SQLite."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from clew.adapters._imports import Imported, reading
from clew.adapters._stores import AnyStore, open_store
from clew.adapters.google_adk import state as states
from clew.adapters.google_adk.events import FORMAT, event_time, kind_of
from clew.core import drafts
from clew.core.codec import decode, digest, encode, parse
from clew.core.engine import Progress
from clew.core.errors import ClewError, InvalidInput, Unsupported
from clew.core.model import Draft, FactDraft, to_us
from clew.store import Store

_BATCH = 500

Row = tuple[Any, ...]


def import_sqlite(
    path: str | os.PathLike[str], store: AnyStore, *, progress: Progress | None = None
) -> Imported:
    """Bring the sessions, events and states of ADK's file into a store. The file is only read.

    Events are taken as they stand in the file. A second import brings what is new. An event that
    is no JSON, or that cannot be written, is named in `left`; the others are there. `progress`
    is told how many sessions are done, of how many. NotFound: there is no file. Unsupported: it is
    none of ADK's, or has its old tables.
    """
    with reading(path, "ADK", ("sessions", "events")) as file:
        columns = {row[1] for row in file.execute("PRAGMA table_info(events)")}
        if "event_data" not in columns:
            raise Unsupported(
                f"{path} has ADK's old tables, which hold pickles, and those are not opened here. "
                "Migrate it with `adk migrate session`, then import what that makes"
            )
        opened, here = open_store(store)
        try:
            return _Import(file, opened).run(progress)
        finally:
            if here:
                opened.close()


class _Import:
    def __init__(self, file: sqlite3.Connection, store: Store) -> None:
        self._file = file
        self._store = store
        self._done = Imported()

    def run(self, progress: Progress | None) -> Imported:
        columns = "app_name, user_id, id, state, create_time, update_time"
        rows = self._file.execute(f"SELECT {columns} FROM sessions ORDER BY create_time, id")
        sessions = rows.fetchall()
        for number, row in enumerate(sessions, 1):
            try:
                self._session(*row)
                self._done.threads += 1
            except ClewError as error:
                self._done.left.append(f"session {row[2]!r} of {row[0]!r}, {row[1]!r}: {error}")
            if progress is not None:
                progress(number, len(sessions))
        for app, state in self._file.execute("SELECT app_name, state FROM app_states"):
            self._shared(states.app_thread(app), state)
        for app, user, state in self._file.execute(
            "SELECT app_name, user_id, state FROM user_states"
        ):
            self._shared(states.user_thread(app, user), state)
        return self._done

    def _session(
        self, app: str, user: str, name: str, state: Any, created: Any, updated: Any
    ) -> None:
        name = name.strip()
        last = self._object(state, f"state of session {name!r}")
        # The file has the state as it is now. What no event has set is what it began with.
        set_by_events: set[str] = set()
        for body in self._bodies(app, user, name, quiet=True):
            set_by_events |= states.scopes(states.changes_of(body))[0].keys()
        initial = {key: value for key, value in last.items() if key not in set_by_events}
        session = {"app": app, "user": user, "session": name, "state": initial}
        thread = self._store.get_or_create(
            states.session_thread(app, user, name),
            facts={"adapter": states.ADAPTER, states.SESSION: session},
            time=_time(created),
        )
        state_at: str | None = None
        batches = self._bodies(app, user, name)
        while bodies := list(islice(batches, _BATCH)):
            batch: list[Draft] = []
            for body in bodies:
                if states.scopes(states.changes_of(body))[0]:
                    state_at = body["id"]
                batch.append(_draft(body, state_at))
            before = thread.info.seq
            thread.write(batch)
            self._done.entries += thread.info.seq - before
        changed = {key: value for key, value in last.items() if key in set_by_events}
        cause = f"import.{digest(encode([state, str(updated)]))}"
        facts = list(states.state_facts(changed, to_us(_time(updated)), cause))
        if state_at is not None:
            data, id = encode(state_at), f"{cause}.state_at"
            now = to_us(_time(updated))
            facts.append(FactDraft(id=id, key=states.STATE_AT, data=data, time_us=now))
        if facts:
            thread.write(facts)

    def _bodies(
        self, app: str, user: str, name: str, *, quiet: bool = False
    ) -> Iterator[dict[str, Any]]:
        """The events of a session in their order, those that can be read."""
        rows = self._file.execute(
            "SELECT id, event_data FROM events WHERE app_name = ? AND user_id = ?"
            " AND trim(session_id) = ? ORDER BY timestamp, rowid",
            (app, user, name),
        )
        for id, data in rows:
            try:
                body = decode(parse(data))
                if not isinstance(body, dict) or not isinstance(body.get("id"), str):
                    raise InvalidInput("event_data", "is no event: it has no id")
                _draft(body, None)
            except (ClewError, TypeError) as error:
                if not quiet:
                    self._done.left.append(f"event {id!r} of session {name!r}: {error}")
                continue
            yield body

    def _shared(self, thread: str, state: Any) -> None:
        try:
            found = self._object(state, f"state of {thread!r}")
            if not found:
                return
            made = self._store.get_or_create(
                thread, facts={"adapter": states.ADAPTER, "archived": True}
            )
            cause = f"import.{digest(encode(found))}"
            made.write(list(states.state_facts(found, self._store.clock(), cause)))
        except ClewError as error:
            self._done.left.append(f"state of {thread!r}: {error}")

    def _object(self, text: Any, what: str) -> dict[str, Any]:
        try:
            value = decode(parse(text))
        except (ClewError, TypeError) as error:
            raise InvalidInput("state", f"{what} is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise InvalidInput("state", f"{what} is no object")
        return value


def _draft(body: dict[str, Any], state_at: str | None) -> Draft:
    timestamp, invocation = body.get("timestamp"), body.get("invocation_id")
    return drafts.draft(
        kind_of(body),
        body,
        id=body["id"],
        format=FORMAT,
        turn=invocation if isinstance(invocation, str) and invocation else None,
        meta={} if state_at is None else {"state": state_at},
        time=event_time(0.0 if timestamp is None else timestamp),
    )


def _time(value: Any) -> datetime:
    """A time as the file spells it: seconds, or what SQLAlchemy makes of a datetime in UTC."""
    if isinstance(value, str):
        try:
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        except ValueError:
            raise InvalidInput("time", f"{value!r} is no time") from None
    return event_time(value)
