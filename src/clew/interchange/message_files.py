"""Files of messages as providers' APIs have them: one a line, a list of them, or one list a line.

A file with a message a line, or one list, becomes a thread; in a file with a list a line, as
training data has it, every line becomes one. Which API a message is of shows in its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from clew import messages
from clew.core.codec import digest
from clew.core.errors import InvalidInput
from clew.core.model import EntryDraft
from clew.interchange import reader
from clew.interchange.reader import Head, Session, Source
from clew.interchange.values import Lines, Value, open_values
from clew.messages.incoming import kind_for

AGENT = "messages"
ENDINGS = (".jsonl", ".json", ".jsonl.zst")


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    return iter(())  # they may be anywhere


def identify(head: Head) -> Session | None:
    if not head.values:
        return None
    found = _listed(head.values[0])
    if head.path.suffix == ".json" or "#" in head.path.name:
        likely = found or []
    else:
        likely = list(head.objects)
    if not likely or not all(map(_is_message, likely)):
        return None
    place = digest(str(head.path).encode("utf-8", "surrogateescape"))[3:11]
    thread = f"messages:{head.path.name[:200]}-{place}"
    return Session(agent=AGENT, thread=thread, facts={"agent": AGENT})


def _is_message(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    spoken = {"content", "parts", "tool_calls"} & value.keys()
    item = value.get("type") in ("function_call", "function_call_output", "reasoning")
    return (isinstance(value.get("role"), str) and bool(spoken)) or item


def _listed(value: Any) -> list[Any] | None:
    """The messages that a value holds as a list."""
    found = value.get("messages") if isinstance(value, dict) else value
    return found if isinstance(found, list) and any(map(_is_message, found)) else None


def sources(path: Path) -> list[Source] | None:
    """The lists of messages in a file that has one a line."""
    if path.suffix == ".json":
        return None
    found: list[Source] = []
    with open_values(path) as file:
        for value in Lines(file, lambda name, place: None):
            if value.text or _listed(value.value) is None:
                return None
            place = path.with_name(f"{path.name}#{value.line}")
            size, mark = len(value.data), int(digest(value.data)[3:17], 16)
            head = partial(Head, place, [value.value])
            found.append(Source(path=place, size=size, mtime_ns=mark, head=head))
    return found or None


class Reader(reader.Reader):
    format = "plain"

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any] | None:
        if head.path.suffix != ".json" and "#" not in head.path.name:
            return None
        document = head.values[0]
        rest = {k: v for k, v in document.items() if k != "messages"} if _has(document) else {}
        return [*([rest] if rest else []), *(_listed(document) or [])]

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if value.text or not _is_message(record):
            begins = self.last is None
            made = self.draft(value, "custom")
            self.last = None if begins else self.last  # what is told first may change later
            return made
        format = messages.detect(record)
        try:
            kind = kind_for(record, None)
        except InvalidInput:
            kind = "custom"
        self.fact("model", record.get("model"))
        if kind == "user_message":
            self.format = format
            self.prompt(record)
        time = record.get("timestamp") or record.get("created_at") or record.get("ts")
        return self.draft(value, kind, time=time, format=format)


def _has(document: Any) -> bool:
    return isinstance(document, dict) and "messages" in document
