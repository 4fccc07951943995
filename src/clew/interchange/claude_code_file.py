"""Files of Claude Code, written: a thread as a session that it lists, opens and resumes.

A reply is a record for each of its blocks, as Claude Code writes it. What was summed up is followed
by a boundary and the summary. Ids follow from the entries that records are made of.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from clew import messages
from clew.core.codec import encode
from clew.interchange.claude_code import AGENT, project_key
from clew.interchange.export import Writing
from clew.interchange.handover import (
    Fold,
    Helper,
    Piece,
    Raw,
    Said,
    Seat,
    beside,
    line,
    pieces,
    raw_line,
    seat_of,
    time_text,
    uuid_of,
)
from clew.interchange.marks import KEY
from clew.interchange.reader import TEXT_FORMAT
from clew.messages.neutral import Message, Usage
from clew.thread import Thread

VERSION = "2.1.219"  # whose records these are like
# Of a sub-agent's file, as an import has told it: stored text, and a part of a path.
_SUBPATH = re.compile(r"subagents(?:/[A-Za-z0-9][A-Za-z0-9_-]{0,127}){1,4}")
Record = dict[str, Any]


def seat(thread: Thread, workspace: str | None = None, fresh: int | None = None) -> Seat:
    return seat_of(thread, AGENT, workspace=workspace, fresh=fresh)


def sub_seat(thread: Thread, main: Seat, helper: Helper) -> Seat:
    """A sub-agent has no session of its own: its file lies in the folder of the one above it."""
    fresh = None if main.is_own else 0
    made = seat_of(thread, AGENT, workspace=beside(main, thread), fresh=fresh, helper=helper)
    told = thread.info.facts.get("subpath")
    known = isinstance(told, str) and _SUBPATH.fullmatch(told) is not None
    return replace(
        made,
        session=main.session,
        is_own=made.is_own and known and made.session == main.session,
        subpath=told if known else f"subagents/agent-a{uuid_of(f'agent{made.session}').hex[:16]}",
    )


def sidecar(seat: Seat, path: Path) -> tuple[Path, bytes] | None:
    """What stands beside the file of a sub-agent about it."""
    helper = seat.helper
    if helper is None:
        return None
    told: Record = {"agentType": helper.role or "general-purpose", "spawnDepth": helper.depth}
    if helper.call is not None:
        told["toolUseId"] = helper.call
    return path.with_name(f"{path.stem}.meta.json"), encode(told)


def place(seat: Seat, home: Path, environ: Mapping[str, str]) -> Path:
    """Where Claude Code looks for a session, or for what a sub-agent did in it."""
    base = Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    folder = environ.get("CLAUDE_CODE_PROJECT_DIR_NAME") or project_key(
        os.path.realpath(seat.workspace)
    )
    below = f"{seat.session}/{seat.subpath}" if seat.subpath else seat.session
    return base / "projects" / folder / f"{below}.jsonl"


def commands(seat: Seat, path: Path) -> list[list[str]]:
    return [["claude", "--resume", seat.session]]


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    return compose(thread, seat(thread), writing)


def compose(thread: Thread, seat: Seat, writing: Writing) -> Iterator[bytes]:
    """The lines of the session."""
    found = pieces(thread, AGENT, seat, writing, target="anthropic")
    if seat.is_own and all(isinstance(piece, Raw) for piece in found):
        return _own_lines(found)
    return map(line, _Records(seat, writing).of(found))


def _own_lines(found: list[Piece]) -> Iterator[bytes]:
    """Records as they are. One that stood there twice, and by which others are placed, does again.

    A record without an id is named by the one before it, and one that hangs on the last record
    hangs on what stands behind that as well.
    """
    lines: dict[str, bytes] = {}
    anchor: str | None = None
    last: str | None = None
    for piece in found:
        entry = piece.entry
        body = None if entry.format == TEXT_FORMAT else entry.body
        uuid = body.get("uuid") if isinstance(body, dict) else None
        if isinstance(uuid, str):
            before = anchor if entry.parent == anchor != last else None
            anchor = uuid
            lines[uuid] = raw_line(entry)
        else:
            named = entry.id.rpartition("+")[0]
            before = named if named != anchor else None
            anchor = before or anchor
        if before in lines:
            yield lines[before]
        yield raw_line(entry)
        last = entry.id


class _Records:
    """The records of a session that Claude Code has not written, or not as this one."""

    def __init__(self, seat: Seat, writing: Writing) -> None:
        self._seat = seat
        self._writing = writing
        self._last: str | None = None  # the record that the next one hangs on
        self._written: set[str] = set()
        # What a record of a sub-agent has beside its own.
        self._aside: Record = {}
        if seat.subpath is not None:
            name = seat.subpath.rpartition("/")[2].removeprefix("agent-")
            self._aside = {"isSidechain": True, "agentId": name}

    def of(self, found: list[Piece]) -> Iterator[Record]:
        for piece in found:
            if isinstance(piece, Raw):
                yield from self._raw(piece)
            elif isinstance(piece, Fold):
                yield from self._fold(piece)
            elif isinstance(piece, Said):
                yield from self._said(piece)
        seat = self._seat
        if seat.title is not None and seat.title_source != "prompt" and seat.helper is None:
            kind, key = (
                ("custom-title", "customTitle")
                if seat.title_source == "host"
                else ("ai-title", "aiTitle")
            )
            yield {
                "type": kind,
                key: seat.title,
                "sessionId": seat.session,
                KEY: seat.mark(),
            }

    def _said(self, piece: Said) -> Iterator[Record]:
        if piece.message.role == "assistant":
            yield from self._reply(piece)
        elif piece.message.role == "system":
            text = "instructions were left out: Claude Code has its own"
            self._writing.change("system_left_out", text, piece.entry.id)
        else:
            yield from self._input(piece)

    def _raw(self, piece: Raw) -> Iterator[Record]:
        record = piece.entry.body
        if piece.entry.format == TEXT_FORMAT or not isinstance(record, dict):
            return
        record = {**record, KEY: self._seat.mark(piece.mark)}
        if "sessionId" in record:
            record["sessionId"] = self._seat.session
        if "uuid" in record:
            record |= self._aside
        if record.get("parentUuid") is not None and record["parentUuid"] not in self._written:
            record["parentUuid"] = self._last
        uuid = record.get("uuid")
        if isinstance(uuid, str):
            self._written.add(uuid)
            self._last = uuid
        yield record

    def _record(self, piece: Said | Fold, part: int, kind: str, **fields: Any) -> Record:
        seat = self._seat
        uuid = str(uuid_of(f"{AGENT}\n{piece.key}\n{part}"))
        record = {
            "parentUuid": self._last,
            "isSidechain": False,
            **self._aside,
            "userType": "external",
            "cwd": seat.workspace,
            "sessionId": seat.session,
            "version": VERSION,
            "gitBranch": seat.branch or "",
            "type": kind,
            **fields,
            "uuid": uuid,
            "timestamp": time_text(piece.entry.time_us),
            KEY: seat.mark(piece.mark),
        }
        self._written.add(uuid)
        self._last = uuid
        return record

    def _blocks(self, piece: Said) -> list[Record]:
        """The content of a message as Anthropic's API has it."""
        written = messages.write("anthropic", [piece.message])
        for loss in written.losses:
            self._writing.change(loss.code, loss.message, piece.entry.id)
        found: list[Record] = [block for one in written.messages for block in one["content"]]
        return found

    def _input(self, piece: Said) -> Iterator[Record]:
        blocks = self._blocks(piece)
        texts = [block["text"] for block in blocks if block.keys() == {"type", "text"}]
        content: Any = texts[0] if len(texts) == len(blocks) == 1 else blocks
        meta = {"isMeta": True} if piece.is_aside else {}
        message = {"role": "user", "content": content}
        yield self._record(piece, 0, "user", message=message, **meta)

    def _reply(self, piece: Said) -> Iterator[Record]:
        blocks = self._blocks(piece)
        reply = uuid_of(f"reply\n{piece.key}").hex[:24]
        stop = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
        for part, block in enumerate(blocks):
            message = {
                "model": piece.message.model or self._seat.model or "unknown",
                "id": f"msg_{reply}",
                "type": "message",
                "role": "assistant",
                "content": [block],
                "stop_reason": stop if part == len(blocks) - 1 else None,
                "stop_sequence": None,
                "usage": _usage(piece.message),
            }
            yield self._record(piece, part, "assistant", message=message)

    def _fold(self, piece: Fold) -> Iterator[Record]:
        before, self._last = self._last, None
        yield self._record(
            piece,
            0,
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            isMeta=False,
            level="info",
            logicalParentUuid=before,
            compactMetadata={"trigger": "manual", "preTokens": 0},
        )
        yield self._record(
            piece,
            1,
            "user",
            message={"role": "user", "content": piece.text},
            isCompactSummary=True,
            isVisibleInTranscriptOnly=True,
        )


def _usage(message: Message) -> Record:
    used = message.usage or Usage()
    return {
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "cache_creation_input_tokens": used.cache_write_tokens,
        "cache_read_input_tokens": used.cache_read_tokens,
    }
