"""Gemini CLI: `tmp/<project>/chats/session-….jsonl` under its home, a document before 0.40.

A session becomes the thread `gemini:<session id>`. The lines are operations: a message, the same
message anew, a change of the session's data, and going back to before a message; what comes after
that hangs on what stood before it. The header stands beside the messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from clew.core.model import Entry, EntryDraft
from clew.core.names import is_name
from clew.interchange import reader
from clew.interchange.reader import Head, Session, Stored
from clew.interchange.values import Value
from clew.messages.gemini_cli import NAME, is_message

AGENT = "gemini-cli"
ENDINGS = (".jsonl", ".json")


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield home / ".gemini" / "tmp"


def identify(head: Head) -> Session | None:
    first = head.first
    messages = first.get("messages") if head.path.suffix == ".json" else list(head.objects)
    spoken = isinstance(messages, list) and any(map(_is_record, messages))
    headed = "sessionId" in first and ("projectHash" in first or "startTime" in first)
    if not (headed if head.path.suffix == ".json" else headed or spoken):
        return None
    id = first["sessionId"] if is_name(first.get("sessionId")) else head.path.stem
    facts = {"agent": AGENT, "session_id": id}
    if is_name(first.get("projectHash")):
        facts["project_hash"] = first["projectHash"]
    parent = head.path.parent.name if first.get("kind") == "subagent" else None
    return Session(
        agent=AGENT,
        thread=f"gemini:{id}",
        parent=f"gemini:{parent}" if parent else None,
        facts=facts,
    )


def _is_record(record: Any) -> bool:
    known = isinstance(record, dict) and record.get("type") in ("user", "gemini")
    return known and {"id", "timestamp", "content"} <= record.keys() and "uuid" not in record


class Reader(reader.Reader):
    format = NAME

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self._parents: dict[str, str | None] = {}  # of messages: what stood before them
        self._end: str | None = None
        super().__init__(session, stored, fresh=fresh)

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any] | None:
        if head.path.suffix != ".json":
            return None
        rest = {key: value for key, value in head.first.items() if key != "messages"}
        messages = head.first.get("messages")
        return [rest, *(messages if isinstance(messages, list) else [])]

    def resume(self, tail: list[Entry]) -> None:
        super().resume(tail)
        self._end = None if self.stored.info is None else self.stored.info.leaf
        self._parents = {entry.id: entry.parent for entry in self.stored.path()}

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if value.text or not isinstance(record, dict):
            return self.draft(value, "custom", parent=self._end)
        if "sessionId" in record and "type" not in record:
            self.title(record.get("summary"), "model")
            made = self.draft(value, "thread_info", parent=None, time=record.get("startTime"))
            self.last = None  # what follows does not depend on it: it is rewritten all the time
            return made
        self._tell(record)
        id = record.get("id")
        kind, parent = self._place(record)
        anew = kind == "context_edit"
        made = self.draft(
            value, kind, id=None if anew else id, parent=parent, time=record.get("timestamp")
        )
        if not anew:
            self._parents[made.id] = made.parent if isinstance(made.parent, str) else None
        self._end = made.id
        return made

    def _place(self, record: dict[str, Any]) -> tuple[str, str | UnsetType | None]:
        """The kind of an operation, and what it hangs on."""
        back, given = record.get("$rewindTo"), record.get("$set")
        if isinstance(back, str):
            return "event", self._parents.get(back, self._end)
        if isinstance(given, dict):
            whole = isinstance(given.get("messages"), list)
            return ("compaction" if whole else "custom"), self._end
        if is_name(record.get("id")) and record["id"] in self._parents:
            return "context_edit", self._end
        return (self.kind(record) if is_message(record) else "event"), self._end

    def _tell(self, record: dict[str, Any]) -> None:
        given = record.get("$set")
        if isinstance(given, dict):
            self.title(given.get("summary"), "model")
        if record.get("type") == "gemini":
            self.fact("model", record.get("model"))
        elif record.get("type") == "user":
            self.prompt(record)

    def leaf(self) -> str | UnsetType | None:
        return UNSET if self._end is None or self._end == self.last else self._end
