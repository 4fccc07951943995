"""Cline and Roo Code: `tasks/<id>/api_conversation_history.json`, and `<id>.messages.json` of late.

A task becomes the thread `cline:<id>`. The files are rewritten with every message; messages that
were there before are known by what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clew.core.model import EntryDraft
from clew.core.names import is_name
from clew.interchange import reader
from clew.interchange.reader import Head, Session
from clew.interchange.values import Value

AGENT = "cline"
ENDINGS = ("api_conversation_history.json", ".messages.json")
_EXTENSIONS = ("saoudrizwan.claude-dev", "rooveterinaryinc.roo-cline")
_CODES = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield home / ".cline" / "data" / "sessions"
    for code in _CODES:
        for base in (home / ".config", home / "Library" / "Application Support"):
            for extension in _EXTENSIONS:
                yield base / code / "User" / "globalStorage" / extension / "tasks"


def identify(head: Head) -> Session | None:
    if not head.path.name.endswith(ENDINGS) or not head.values:
        return None
    messages = _messages(head)
    if messages is None:
        return None
    id = head.first.get("sessionId")
    if not is_name(id):
        stem = head.path.name.removesuffix(".json").removesuffix(".messages")
        id = head.path.parent.name if stem.endswith("api_conversation_history") else stem
    agent = "roo-code" if "roo-cline" in str(head.path) else AGENT
    return Session(agent=AGENT, thread=f"cline:{id}", facts={"agent": agent, "session_id": id})


def _messages(head: Head) -> list[Any] | None:
    document = head.values[0]
    found = document.get("messages") if isinstance(document, dict) else document
    fine = isinstance(found, list) and all(isinstance(o, dict) and "role" in o for o in found)
    return found if fine else None


class Reader(reader.Reader):
    format = "cline"

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any]:
        rest = {key: value for key, value in head.first.items() if key != "messages"}
        messages = _messages(head) or []
        return [*([rest] if "version" in rest else []), *messages]

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if "role" not in record:
            made = self.draft(value, "thread_info", parent=None, time=record.get("updated_at"))
            self.last = None  # it is rewritten all the time, and nothing depends on it
            return made
        model = record.get("modelInfo")
        if isinstance(model, dict):
            self.fact("model", model.get("id"))
        if record["role"] == "user":
            self.prompt(record)
        time = record.get("ts") or record.get("timestamp")
        return self.draft(value, self.kind(record), time=time)
