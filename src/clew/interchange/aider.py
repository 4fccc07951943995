"""aider: `.aider.chat.history.md` in a project, with all chats that were had there.

Each chat becomes a thread, `aider:<place>-<number>`. aider notes no ids and no models. A block of
lines of one speaker is an entry, with its marks; the chats together are the file again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from clew.core.codec import digest
from clew.core.model import EntryDraft
from clew.interchange import reader
from clew.interchange.reader import Head, Session, Source
from clew.interchange.values import DOCUMENT_BYTES_MAX, Unreadable, Value

AGENT = "aider"
ENDINGS = (".aider.chat.history.md",)
_BEGIN = re.compile(r"^# aider chat started at (.*)$")


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield home / ".aider.chat.history.md"


def sources(path: Path) -> list[Source] | None:
    """The chats of a history, each with its blocks."""
    stat = path.stat()
    if stat.st_size > DOCUMENT_BYTES_MAX:
        raise Unreadable(f"has {stat.st_size:,} bytes; at most {DOCUMENT_BYTES_MAX:,} are read")
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    found = []
    for number, chat in enumerate(_chats(text), 1):
        place = path.with_name(f"{path.name}#{number}")
        blocks = list(_blocks(chat))
        size = sum(len(block["text"]) for block in blocks)
        head = partial(Head, place, [{"aider": blocks, "folder": str(path.parent)}])
        found.append(Source(path=place, size=size, mtime_ns=stat.st_mtime_ns, head=head))
    return found


def identify(head: Head) -> Session | None:
    if "aider" not in head.first:
        return None
    file, _, number = str(head.path).rpartition("#")
    place = digest(file.encode("utf-8", "surrogateescape"))[3:15]
    facts = {"agent": AGENT, "workspace": head.first["folder"]}
    return Session(agent=AGENT, thread=f"aider:{place}-{number}", facts=facts)


def _chats(text: str) -> Iterator[list[str]]:
    chat: list[str] = []
    for line in text.splitlines(keepends=True):
        if _BEGIN.match(line.rstrip()) and any(one.strip() for one in chat):
            yield chat
            chat = []
        chat.append(line)
    if any(line.strip() for line in chat):
        yield chat


def _blocks(lines: list[str]) -> Iterator[dict[str, str]]:
    """Neighbouring lines of one speaker; a blank line belongs to what stands before it."""
    role, block = "", ""
    for line in lines:
        speaker = role or "tool"
        if _BEGIN.match(line.rstrip()):
            speaker = "start"
        elif line.startswith("####"):
            speaker = "user"
        elif line.startswith(">"):
            speaker = "tool"
        elif line.strip():
            speaker = "assistant"
        if speaker != role and block:
            yield {"role": role, "text": block}
            block = ""
        role, block = speaker, block + line
    yield {"role": role, "text": block}


class Reader(reader.Reader):
    format = "aider"

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any]:
        found: list[Any] = head.first["aider"]
        return found

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        begin = _BEGIN.match(record["text"].strip()) if record["role"] == "start" else None
        if record["role"] == "user":
            self.title(record["text"].replace("#### ", ""), "prompt")
        kind = {"start": "thread_info", "tool": "event"}.get(record["role"])
        time = None if begin is None else begin.group(1)
        return self.draft(value, kind or self.kind(record), time=time)
