"""The way over: what SQLiteSession and AdvancedSQLiteSession keep in a file, as threads.

A session becomes the thread of its id, a branch a fork of it. Entries get their ids from the rows
that they come from, so an import that was interrupted goes on where it was, and a second one
brings only what is new.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew.adapters._imports import Imported, reading
from clew.adapters._stores import AnyStore, open_store
from clew.adapters.openai_agents.items import FORMAT, item_draft
from clew.adapters.openai_agents.session import MAIN, TAG, branch_facts, branch_thread
from clew.adapters.openai_agents.turns import usage_body
from clew.core.drafts import draft
from clew.core.engine import Progress
from clew.core.errors import InvalidInput
from clew.core.model import EntryDraft, to_us
from clew.store import Store
from clew.thread import Thread

_BATCH = 500
_ENTRY = "openai-sqlite:"  # the ids of entries from an import begin so


class _Row(Struct, frozen=True):
    """A message of the file: its number, its JSON text, and when it was stored."""

    number: int
    data: str
    time: datetime

    @property
    def entry(self) -> str:
        return f"{_ENTRY}{self.number}"


def import_sqlite(
    path: str | os.PathLike[str],
    store: AnyStore,
    *,
    progress: Progress | None = None,
    sessions_table: str = "agent_sessions",
    messages_table: str = "agent_messages",
) -> Imported:
    """Bring every session of a file of the SDK into a store. The file is only read.

    Branches and what runs have cost come along. A thread of the same id that did not come from an
    import, or was written to on both sides since, is left as it is, and named in the answer.
    `progress(done, total)` is told of sessions. NotFound: there is no file. Unsupported: it is
    none of the SDK.
    """
    done = Imported()
    tables = (sessions_table, messages_table)
    with reading(path, "the Agents SDK's sessions", tables) as db:
        opened, is_ours = open_store(store)
        try:
            source = _Source(db, *tables)
            sessions = source.sessions()
            for number, session in enumerate(sessions):
                if progress is not None:
                    progress(number, len(sessions))
                _import_session(source, session, opened, done)
            if progress is not None:
                progress(len(sessions), len(sessions))
        finally:
            if is_ours:
                opened.close()
    return done


class _Source:
    """The tables of a file. The names of the first two are the user's to choose."""

    def __init__(self, db: sqlite3.Connection, sessions: str, messages: str) -> None:
        self._db = db
        self._sessions, self._messages = (_quoted(name) for name in (sessions, messages))
        tables = "SELECT name FROM sqlite_master WHERE type = 'table'"
        self._tables = {name for (name,) in db.execute(tables)}

    def sessions(self) -> list[str]:
        query = f"SELECT session_id FROM {self._sessions} ORDER BY created_at, session_id"
        return [id for (id,) in self._db.execute(query)]

    def branches(self, session: str) -> dict[str, list[_Row]]:
        """The rows of each branch, the main one first, then as they were made."""
        found: dict[str, list[_Row]] = {MAIN: []}
        if "message_structure" in self._tables:
            query = (
                "SELECT s.branch_id, m.id, m.message_data, m.created_at FROM message_structure s "
                f"JOIN {self._messages} m ON m.id = s.message_id "
                "WHERE s.session_id = ? AND m.session_id = ? ORDER BY s.sequence_number"
            )
            for branch, *row in self._db.execute(query, (session, session)):
                found.setdefault(branch, []).append(_Row(row[0], row[1], _time(row[2])))
        if any(found.values()):
            return found
        query = (
            f"SELECT id, message_data, created_at FROM {self._messages} "
            "WHERE session_id = ? ORDER BY id"
        )
        rows = self._db.execute(query, (session,))
        return {MAIN: [_Row(number, data, _time(made)) for number, data, made in rows]}

    def usage(self, session: str, branch: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """What the turns of a branch have cost, each with the number of its first message."""
        if not {"turn_usage", "message_structure"} <= self._tables:
            return
        query = (
            "SELECT u.id, requests, input_tokens, output_tokens, total_tokens, "
            "input_tokens_details, output_tokens_details, (SELECT min(message_id) FROM "
            "message_structure s WHERE s.session_id = u.session_id AND s.branch_id = u.branch_id "
            "AND s.user_turn_number = u.user_turn_number "
            "AND (s.message_type = 'user' OR s.user_turn_number = 0)) "
            "FROM turn_usage u WHERE session_id = ? AND branch_id = ? ORDER BY user_turn_number"
        )
        keys = ("requests", "input_tokens", "output_tokens", "total_tokens")
        for number, *told, given, gave, first in self._db.execute(query, (session, branch)):
            if first is not None:
                body = usage_body(
                    {
                        **dict(zip(keys, told, strict=True)),
                        "input_tokens_details": json.loads(given or "{}"),
                        "output_tokens_details": json.loads(gave or "{}"),
                    }
                )
                yield number, {**body, "turn_entry": f"{_ENTRY}{first}"}


def _quoted(table: str) -> str:
    if not isinstance(table, str) or "\0" in table:
        raise InvalidInput("table", f"{table!r} is no name of a table")
    return '"' + table.replace('"', '""') + '"'


def _time(text: Any) -> datetime:
    """A time of the file, which is in UTC; the beginning of time, if it is none."""
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except (TypeError, ValueError):
        return datetime.fromtimestamp(0, UTC)


# --- a session, branch by branch ---


def _import_session(source: _Source, session: str, store: Store, done: Imported) -> None:
    ready: dict[str, list[str]] = {}  # the entries of the branches that are done
    for branch, rows in source.branches(session).items():
        if branch != MAIN and not ready:
            return  # the session itself could not be brought, so there is nothing to fork
        thread = _thread_for(store, session, branch, rows, ready)
        if isinstance(thread, str):
            done.left.append(thread)
            continue
        kept, left = _readable(rows, store)
        done.left += [f"session {session!r}: {reason}" for reason in left]
        written = _bring(thread, kept)
        if written is None:
            done.left.append(f"thread {thread.id!r} was written to on both sides since its import")
            continue
        ready[branch] = [one.id for one in kept]
        _bring_usage(thread, source.usage(session, branch))
        done.entries += written
        done.threads += 1


def _thread_for(
    store: Store, session: str, branch: str, rows: list[_Row], ready: dict[str, list[str]]
) -> Thread | str:
    """The thread for a branch, made if need be; why not, if it cannot be used."""
    id = session if branch == MAIN else branch_thread(session, branch)
    found = store.find(id)
    if found is not None:
        if found.facts.get("imported") == "openai-sqlite":
            return found
        return f"thread {id!r} is there already, and did not come from an import"
    facts: dict[str, Any] = {"imported": "openai-sqlite"}
    time = rows[0].time if rows else None
    if branch == MAIN:
        return store.create(id, tags=[TAG], facts=facts, time=time)
    facts |= branch_facts(branch, [])
    # A branch shares its first rows with the one that it was made from: the longest such part.
    entries = [row.entry for row in rows]
    shared, origin = max((_common(entries, ids), name) for name, ids in ready.items())
    if not shared:
        return store.create(id, parent=session, facts=facts, time=time)
    start = session if origin == MAIN else branch_thread(session, origin)
    return store.fork(start, at=entries[shared - 1], id=id, parent=session, facts=facts)


def _common(left: list[str], right: list[str]) -> int:
    """How long the beginning is that two lists have in common."""
    for place, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return place
    return min(len(left), len(right))


def _readable(rows: list[_Row], store: Store) -> tuple[list[EntryDraft], list[str]]:
    """The rows as entries to be appended, and what is wrong with those that are none."""
    kept: list[EntryDraft] = []
    left: list[str] = []
    for row in rows:
        try:
            one = item_draft(json.loads(row.data), store.clock)
        except (ValueError, TypeError, RecursionError, InvalidInput) as error:
            left.append(f"row {row.number} is no item: {error}")
            continue
        kept.append(replace(one, id=row.entry, time_us=to_us(row.time), fresh=False))
    return kept, left


def _bring(thread: Thread, rows: list[EntryDraft]) -> int | None:
    """Append the rows that a thread lacks; how many. None if it has gone its own way since."""
    path = [entry.id for entry in thread.path() if not entry.id.startswith(f"{_ENTRY}usage:")]
    wanted = [row.id for row in rows]
    # The oldest items may have been removed from the file; here they stay.
    start = path.index(wanted[0]) if wanted and wanted[0] in path else 0
    shared = _common(path[start:], wanted)
    rest, own = rows[shared:], path[start + shared :]
    if not rest and own and all(id.startswith(_ENTRY) for id in own):
        thread.move(wanted[-1] if wanted else None)  # they were popped from the session
    elif rest and own and not all(id.startswith(_ENTRY) for id in own):
        return None
    for place in range(0, len(rest), _BATCH):
        part = rest[place : place + _BATCH]
        if place == 0 and own:
            part[0] = replace(part[0], parent=wanted[shared - 1] if shared else None)
        thread.append(part)
    return len(rest)


def _bring_usage(thread: Thread, told: Iterator[tuple[int, dict[str, Any]]]) -> None:
    stored = {entry.id for entry in thread.path() if entry.kind == "usage"}
    batch = [
        draft("usage", body, id=f"{_ENTRY}usage:{number}", format=FORMAT)
        for number, body in told
        if f"{_ENTRY}usage:{number}" not in stored
    ]
    if batch:
        thread.append(batch)
