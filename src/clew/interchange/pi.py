"""pi: `sessions/--<folder>--/<time>_<id>.jsonl` under its home; OpenClaw writes the same files.

A session becomes the thread `pi:<session id>`, with pi's own tree: what a record names as its
parent is its parent, and pi goes on at the last line. The first version had neither ids nor
branches. The header stands beside the tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from clew.core.codec import encode
from clew.core.model import Entry, EntryDraft
from clew.core.names import is_name
from clew.interchange.reader import Head, Session, Stored, TreeReader
from clew.interchange.values import Value
from clew.messages.pi import NAME, is_message

AGENT = "pi"
ENDINGS = (".jsonl",)
_KINDS = {
    "session": "thread_info",
    "model_change": "model_change",
    "compaction": "compaction",
    "branch_summary": "branch_summary",
    "context_edit": "context_edit",
    "label": "label",
    "usage": "usage",
}


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    own = environ.get("PI_CODING_AGENT_SESSION_DIR")
    yield Path(own) if own else home / ".pi" / "agent" / "sessions"
    for name in (".openclaw", ".clawdbot"):
        yield home / name / "agents"


def identify(head: Head) -> Session | None:
    first = head.first
    is_header = first.get("type") == "session" and is_name(first.get("id"))
    if not head.path.name.endswith(ENDINGS) or not is_header or "payload" in first:
        return None
    claw = {".openclaw", ".clawdbot"} & set(head.path.parts)
    facts = {"agent": "openclaw" if claw else AGENT, "session_id": first["id"]}
    source = first.get("parentSession") or first.get("branchedFrom")
    if isinstance(source, str) and is_name(source):
        named = re.search(r"_([^_/\\]+)\.jsonl$", source)
        facts["forked_from"] = named.group(1) if named else source
    return Session(agent=AGENT, thread=f"pi:{first['id']}", facts=facts)


class Reader(TreeReader):
    format = NAME
    id_key, parent_key = "id", "parentId"

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self._lines: list[str] = []  # the entries of the lines, which the first version counts
        self._header: str | None = None
        super().__init__(session, stored, fresh=fresh)

    def resume(self, tail: list[Entry]) -> None:
        super().resume(tail)
        if any("id" not in entry.body for entry in tail if isinstance(entry.body, dict)):
            self._lines = self.stored.ids()

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if not value.text and isinstance(record, dict) and record.get("type") == "session":
            return self._take_header(value, record)
        begins = self.last == self._header
        made = super().take(value)
        kept = None if value.text else self._kept(record)
        if begins and isinstance(record, dict) and "parentId" not in record:
            made = replace(made, parent=None)
        return self._line(made if kept is None else replace(made, meta_data=kept))

    def _take_header(self, value: Value, record: dict[str, Any]) -> EntryDraft:
        self.workspace(record.get("cwd"))
        self.fact("model", record.get("modelId"))
        last = self.last
        made = self.draft(value, "thread_info", parent=None, time=record.get("timestamp"))
        if last is None:
            self._header = made.id
        else:
            self.last = last  # one more header, in the middle of the file
        return self._line(made)

    def _line(self, made: EntryDraft) -> EntryDraft:
        self._lines.append(made.id)
        return made

    def kind_of(self, record: dict[str, Any]) -> str:
        if is_message(record):
            return self.kind(record)
        return _KINDS.get(str(record.get("type")), "custom")

    def _kept(self, record: Any) -> bytes | None:
        """The first entry that a compaction of the first version keeps, by its place."""
        if not isinstance(record, dict) or record.get("type") != "compaction":
            return None
        index = record.get("firstKeptEntryIndex")
        if type(index) is not int:
            return None
        if not 0 <= index < len(self._lines):
            return None
        return encode({"told": {"first_kept_entry_id": self._lines[index]}})

    def tell(self, record: dict[str, Any]) -> None:
        """What a record says about the whole session."""
        match record.get("type"):
            case "session_info":
                self.title(record.get("name"), "host")
            case "model_change":
                self.fact("model", record.get("modelId"))
            case "label" if is_name(record.get("targetId")):
                label = record.get("label")
                self.facts[f"label.{record['targetId']}"] = label if is_name(label) else None
            case "message":
                message = record.get("message")
                if isinstance(message, dict) and message.get("role") == "assistant":
                    self.fact("model", message.get("model"))
                elif isinstance(message, dict) and message.get("role") == "user":
                    self.prompt(record)
