"""opencode: its database, its folder of JSON files from before 1.2, and what `export` writes.

A session becomes the thread `opencode:<session id>`, whichever way it comes. Every message is an
entry with its parts, under its id; a message that was changed later stands beside what it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from clew import foreign_file
from clew.core.codec import parse_value
from clew.core.errors import ClewError, Unavailable
from clew.core.model import EntryDraft
from clew.core.names import is_name
from clew.interchange import reader
from clew.interchange.reader import Head, Session, Source, Stored
from clew.interchange.values import Unreadable, Value, read_document
from clew.messages.opencode import NAME, is_message, parts_of

AGENT = "opencode"
ENDINGS = (".db", ".json")
Row = dict[str, Any]


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    yield from sorted(data.glob("opencode*.db"))
    yield data / "storage" / "session"


def identify(head: Head) -> Session | None:
    first = head.first
    info = first.get("info") if isinstance(first.get("messages"), list) else None
    if info is None and head.path.suffix == ".json" and "session" in head.path.parts:
        info = first if {"id", "time"} <= first.keys() else None  # one of its folder
    if not isinstance(info, dict) or not is_name(info.get("id")):
        return None
    facts = {"agent": AGENT, "session_id": info["id"]}
    parent = info.get("parentID") or info.get("parent_id")
    return Session(
        agent=AGENT,
        thread=f"opencode:{info['id']}",
        parent=f"opencode:{parent}" if is_name(parent) else None,
        facts=facts,
    )


class Reader(reader.Reader):
    format = NAME

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self._reverted: str | None = None
        self._leaf: str | None = None
        self._is_reverted = False
        super().__init__(session, stored, fresh=fresh)

    @classmethod
    def files(cls, path: Path) -> Iterable[Path]:
        """The files of a session in the folder of JSON files; of an export, the one."""
        if path.suffix != ".json" or "session" not in path.parts:
            return (path,)
        base = path.parents[2]
        messages = sorted((base / "message" / path.stem).glob("*.json"))
        parts = [part for one in messages for part in (base / "part" / one.stem).glob("*.json")]
        return (path, *messages, *sorted(parts))

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any]:
        first = head.first
        if isinstance(first.get("messages"), list):
            return [first.get("info"), *first["messages"]]
        return [first, *_gathered(head.path)]

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if not is_message(record):
            if isinstance(record, dict):
                self._tell(record)
            time = record.get("time") if isinstance(record, dict) else None
            created = time.get("created") if isinstance(time, dict) else None
            made = self.draft(value, "thread_info", parent=None, time=created)
            self.last = None  # it is rewritten all the time, and nothing depends on it
            return made
        info = record["info"]
        self.fact("model", info.get("modelID"))
        if info["role"] == "user":
            self.prompt(record)
        compacts = any(part.get("type") == "compaction" for part in parts_of(record))
        kind = "compaction" if compacts and info["role"] == "user" else self.kind(record)
        time = info.get("time")
        created = time.get("created") if isinstance(time, dict) else None
        made = self.draft(value, kind, id=info.get("id"), time=created)
        self._is_reverted = self._is_reverted or made.id == self._reverted
        if not self._is_reverted:
            self._leaf = made.id
        return made

    def _tell(self, info: Row) -> None:
        title = info.get("title")
        if isinstance(title, str) and not title.startswith("New session - "):
            self.title(title, "model")
        self.workspace(info.get("directory"))
        self.fact("agent_version", info.get("version"))
        revert = info.get("revert")
        if isinstance(revert, dict) and is_name(revert.get("messageID")):
            self._reverted = revert["messageID"]

    def leaf(self) -> str | UnsetType | None:
        """Before the message that the user went back to, if he did."""
        return UNSET if self._leaf is None or not self._is_reverted else self._leaf


def _gathered(path: Path) -> Iterator[Row]:
    """The messages of a session with their parts, from the folder of JSON files."""
    base = path.parents[2]
    for message in sorted((base / "message" / path.stem).glob("*.json")):
        parts = sorted((base / "part" / message.stem).glob("*.json"))
        yield {"info": read_document(message), "parts": [read_document(part) for part in parts]}


# --- the database ----------------------------------------------------------------------------


def sources(path: Path) -> list[Source] | None:
    """The sessions of a database. What is in them is read when they have changed."""
    if path.suffix != ".db":
        return None
    with _opened(path) as db:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        if not {"session", "message", "part"} <= names:
            return None
        sizes: dict[str, tuple[int, int]] = {}
        for table in ("message", "part"):
            for id, size, newest in db.execute(
                f"SELECT session_id, sum(length(data)), max(time_updated) FROM {table}"
                " GROUP BY session_id"
            ):
                known = sizes.get(id, (0, 0))
                sizes[id] = (known[0] + size, max(known[1], newest))
        found = []
        for id, updated in db.execute("SELECT id, time_updated FROM session ORDER BY id"):
            size, newest = sizes.get(id, (0, 0))
            place = path.with_name(f"{path.name}#{id}")
            head = partial(_read, path, id, place)
            changed = max(newest, updated or 0)
            found.append(Source(path=place, size=size, mtime_ns=changed, head=head))
        return found


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with foreign_file.reading(path) as db:
            db.row_factory = sqlite3.Row
            yield db
    except sqlite3.Error as error:
        raise Unreadable(f"cannot be read as a database: {error}") from error
    except Unavailable as error:
        raise Unreadable(str(error)) from error


def _read(path: Path, id: str, place: Path) -> Head:
    """A session as `opencode export` writes it."""
    with _opened(path) as db:
        session = dict(db.execute("SELECT * FROM session WHERE id = ?", (id,)).fetchone())
        parts: dict[str, list[Row]] = {}
        for row in db.execute("SELECT * FROM part WHERE session_id = ? ORDER BY id", (id,)):
            parts.setdefault(row["message_id"], []).append(_data(row, messageID=row["message_id"]))
        query = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
        messages = [
            {"info": _data(row), "parts": parts.get(row["id"], [])}
            for row in db.execute(query, (id,))
        ]
    return Head(place, [{"info": _info(session), "messages": messages}])


def _data(row: sqlite3.Row, **more: str) -> Row:
    """The JSON of a row, with the ids that are columns."""
    value = _parsed(row["data"])
    data = value if isinstance(value, dict) else {"data": value}
    return {**data, "id": row["id"], "sessionID": row["session_id"], **more}


def _info(session: Row) -> Row:
    """The row of a session, with the names that its export has."""
    names = {"project_id": "projectID", "parent_id": "parentID", "workspace_id": "workspaceID"}
    info = {
        names.get(key, key): _parsed(value) for key, value in session.items() if value is not None
    }
    created, updated = info.pop("time_created", None), info.pop("time_updated", None)
    return {**info, "time": {"created": created, "updated": updated}}


def _parsed(value: Any) -> Any:
    if not isinstance(value, str) or value[:1] not in ("{", "["):
        return value
    try:
        return parse_value(value)[1]
    except ClewError:
        return value
