"""OpenHands: a folder for each conversation, with `base_state.json` and a file for each event.

A conversation becomes the thread `openhands:<id>`. Its events follow one another, or hang on the
one that they name. Lines of events, as its tools export them, are read as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from clew.core.codec import encode
from clew.core.model import Entry, EntryDraft
from clew.core.names import is_name
from clew.interchange.reader import Head, Session, Stored, TreeReader
from clew.interchange.values import Value, read_document
from clew.messages.openhands import NAME, is_message

AGENT = "openhands"
_CARRIED_MAX = 100
ENDINGS = ("base_state.json", ".jsonl")


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield home / ".openhands" / "conversations"
    yield home / ".openhands" / "sessions"


def identify(head: Head) -> Session | None:
    first, path = head.first, head.path
    if path.name.endswith("base_state.json"):
        id = first.get("id") if is_name(first.get("id")) else path.parent.name
    elif any(_is_event(one) for one in head.objects) or {"instruction", "history"} <= first.keys():
        id = path.stem
    else:
        return None
    return Session(agent=AGENT, thread=f"openhands:{id}", facts={"agent": AGENT, "session_id": id})


def _is_event(record: dict[str, Any]) -> bool:
    kind = record.get("kind")
    known = isinstance(kind, str) and kind.endswith(("Event", "Condensation"))
    return known and {"id", "timestamp", "source"} <= record.keys()


class Reader(TreeReader):
    format = NAME
    id_key, parent_key = "id", "parent_id"

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self._ids: list[str] = []
        super().__init__(session, stored, fresh=fresh)

    def resume(self, tail: list[Entry]) -> None:
        super().resume(tail)
        self._ids = self.stored.ids()

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if self.last is None and isinstance(record, dict) and "workspace" in record:
            folder = record["workspace"]
            self.workspace(folder.get("working_dir") if isinstance(folder, dict) else None)
        if self.last is None and isinstance(record, dict) and "kind" not in record:
            made = self.draft(value, "thread_info", parent=None)
            self.last = None  # the state is rewritten all the time, and nothing depends on it
            return made
        made = super().take(value)
        if made.kind == "compaction":
            made = replace(made, meta_data=self._kept(value.value.get("forgotten_event_ids")))
        self._ids.append(made.id)
        return made

    def _kept(self, forgotten: Any) -> bytes | None:
        """The events that a condensation leaves as they are: before the forgotten, and after."""
        gone = {id for id in forgotten if is_name(id)} if isinstance(forgotten, list) else set()
        places = [place for place, id in enumerate(self._ids) if id in gone]
        if not places:
            return None
        kept: dict[str, Any] = {"carried_entry_ids": self._ids[: places[0]][:_CARRIED_MAX]}
        if places[-1] + 1 < len(self._ids):
            kept["first_kept_entry_id"] = self._ids[places[-1] + 1]
        return encode({"told": kept})

    @classmethod
    def files(cls, path: Path) -> Iterable[Path]:
        return (path, *_events(path)) if path.name == "base_state.json" else (path,)

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any] | None:
        if not head.path.name.endswith("base_state.json"):
            return None
        return (head.first, *map(read_document, _events(head.path)))

    def kind_of(self, record: dict[str, Any]) -> str:
        if is_message(record):
            return self.kind(record)
        if record.get("kind") == "Condensation":
            return "compaction"
        return "event" if "kind" in record else "custom"

    def tell(self, record: dict[str, Any]) -> None:
        if record.get("kind") == "MessageEvent" and record.get("source") == "user":
            self.prompt(record)


def _events(path: Path) -> list[Path]:
    return sorted((path.parent / "events").glob("event-*.json"))
