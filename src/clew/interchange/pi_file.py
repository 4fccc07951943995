"""Files of pi, written: a thread as a session that pi lists, opens and goes on with.

pi knows many providers, so a reply says whose it is; thinking keeps its signature where pi can send
it again, and is kept as text elsewhere. A summary is a compaction that keeps nothing, and what it
did keep is said again behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clew.interchange.export import Writing
from clew.interchange.handover import (
    Fold,
    Piece,
    Raw,
    Said,
    Seat,
    line,
    pieces,
    raw_line,
    seat_of,
    time_text,
    uuid_of,
)
from clew.interchange.marks import KEY
from clew.interchange.pi import AGENT
from clew.interchange.reader import TEXT_FORMAT
from clew.messages.neutral import Media, Part, Text, Thinking, ToolCall, ToolResult, Usage
from clew.messages.shared.media import placeholder, standard_base64
from clew.thread import Thread

VERSION = 3
Record = dict[str, Any]

# The API as pi calls it, by the format of a request.
_APIS = {
    "anthropic": "anthropic-messages",
    "openai-responses": "openai-responses",
    "openai-chat": "openai-completions",
    "gemini": "google-generative-ai",
}
_COST = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)


def seat(thread: Thread, workspace: str | None = None, fresh: int | None = None) -> Seat:
    return seat_of(thread, AGENT, workspace=workspace, fresh=fresh)


def place(seat: Seat, home: Path, environ: Mapping[str, str]) -> Path:
    """Where pi has a session, or looks for one of that folder."""
    folder = re.sub(r"[/\\:]", "-", re.sub(r"^[/\\]", "", seat.workspace))
    base = Path(environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent")
    own = environ.get("PI_CODING_AGENT_SESSION_DIR")
    sessions = Path(own) if own else base / "sessions" / f"--{folder}--"
    known = sorted(sessions.glob(f"*_{seat.session}.jsonl"))
    if known:
        return known[-1]
    time = time_text(seat.time_us).replace(":", "-").replace(".", "-")
    return sessions / f"{time}_{seat.session}.jsonl"


def commands(seat: Seat, path: Path) -> list[list[str]]:
    return [["pi", "--session", str(path)]]


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    return compose(thread, seat(thread), writing)


def compose(thread: Thread, seat: Seat, writing: Writing) -> Iterator[bytes]:
    """The lines of the session."""
    found = pieces(thread, AGENT, seat, writing, target="plain")
    if seat.is_own and all(isinstance(piece, Raw) for piece in found):
        return (raw_line(piece.entry) for piece in found)
    return map(line, _Records(seat, writing).of(found))


class _Records:
    """The records of a session that pi has not written, or not as this one."""

    def __init__(self, seat: Seat, writing: Writing) -> None:
        self._seat = seat
        self._writing = writing
        self._last: str | None = None
        self._ids: set[str] = set()

    def of(self, found: list[Piece]) -> Iterator[Record]:
        seat = self._seat
        # Without a mark: pi looks for the header in the first 512 bytes.
        yield {
            "type": "session",
            "version": VERSION,
            "id": seat.session,
            "timestamp": time_text(seat.time_us),
            "cwd": seat.workspace,
        }
        for piece in found:
            if isinstance(piece, Raw):
                yield from self._raw(piece)
            elif isinstance(piece, Fold):
                yield self._fold(piece)
            elif isinstance(piece, Said):
                for number, message in enumerate(self._messages(piece)):
                    id = self._id(f"{piece.key}\n{number}")
                    yield self._record(piece, id, "message", message=message)
        if seat.title is not None and seat.title_source != "prompt" and found:
            id = self._id("title")
            yield self._record(found[-1], id, "session_info", name=seat.title)

    def _id(self, seed: str) -> str:
        whole = uuid_of(f"{AGENT}\n{seed}").hex
        return next(id for n in range(8, 33) if (id := whole[:n]) not in self._ids or n == 32)

    def _record(self, piece: Piece, id: str, kind: str, **fields: Any) -> Record:
        record = {
            "type": kind,
            "id": id,
            "parentId": self._last,
            "timestamp": time_text(piece.entry.time_us),
            **fields,
            KEY: self._seat.mark(piece.mark),
        }
        self._ids.add(id)
        self._last = id
        return record

    def _raw(self, piece: Raw) -> Iterator[Record]:
        record = piece.entry.body
        if piece.entry.format == TEXT_FORMAT or not isinstance(record, dict):
            return
        if record.get("type") == "session":
            return
        record = {**record, KEY: self._seat.mark(piece.mark)}
        if not isinstance(record.get("id"), str):  # of the first version
            record["id"] = piece.entry.id
            kept = piece.entry.meta.get("told", {}).get("first_kept_entry_id")
            record |= {} if kept is None else {"firstKeptEntryId": kept}
        if record.get("parentId") not in self._ids:
            record["parentId"] = self._last
        self._ids.add(record["id"])
        self._last = record["id"]
        yield record

    def _fold(self, piece: Fold) -> Record:
        id = self._id(piece.key)
        summary = {"summary": piece.text, "firstKeptEntryId": id, "tokensBefore": 0}
        return self._record(piece, id, "compaction", **summary)

    # --- messages ---

    def _messages(self, piece: Said) -> Iterator[Record]:
        message, time = piece.message, piece.entry.time_us // 1000
        if message.role == "system":
            text = "instructions were left out: pi has its own"
            self._writing.change("system_left_out", text, piece.entry.id)
        elif message.role == "user":
            yield {"role": "user", "content": self._content(message.parts), "timestamp": time}
        elif message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    yield self._result(part, time)
        else:
            yield self._reply(piece, time)

    def _result(self, part: ToolResult, time: int) -> Record:
        return {
            "role": "toolResult",
            "toolCallId": part.call,
            "toolName": part.name or "tool",
            "content": self._content(part.content),
            "isError": part.is_error,
            "timestamp": time,
        }

    def _reply(self, piece: Said, time: int) -> Record:
        message = piece.message
        format, provider = piece.made_by
        api = _APIS.get(format, _APIS["openai-chat"])
        calls = any(isinstance(part, ToolCall) for part in message.parts)
        return {
            "role": "assistant",
            "content": [self._said(part, api) for part in message.parts],
            "api": api,
            "provider": provider,
            "model": message.model or self._seat.model or "unknown",
            "usage": _usage(message.usage),
            "stopReason": "toolUse" if calls else "stop",
            "timestamp": time,
        }

    def _said(self, part: Part, api: str) -> Record:
        match part:
            case Thinking():
                found: Record = {"type": "thinking", "thinking": part.text}
                if part.signature and part.format == "anthropic" and api == "anthropic-messages":
                    found["thinkingSignature"] = part.signature
                    if isinstance(part.raw, dict) and part.raw.get("type") == "redacted_thinking":
                        found["redacted"] = True
                return found
            case ToolCall():
                given = part.arguments if isinstance(part.arguments, dict) else {}
                return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": given}
        (block,) = self._content([part]) or [_text("")]
        return block

    def _content(self, parts: Any) -> list[Record]:
        return [self._block(part) for part in parts]

    def _block(self, part: Part) -> Record:
        match part:
            case Text():
                return _text(part.text)
            case Media(kind="image", mime=str(mime), data=str(data)):
                return {"type": "image", "data": standard_base64(data), "mimeType": mime}
            case Media():
                self._writing.change("media_dropped", placeholder(part)[1:-1])
                return _text(placeholder(part))
        self._writing.change("block_dropped", "a block that only its own format knows")
        return _text("[a block that only its own format knows was left out]")


def _text(text: str) -> Record:
    return {"type": "text", "text": text}


def _usage(used: Usage | None) -> Record:
    used = used or Usage()
    counts = {
        "input": used.input_tokens,
        "output": used.output_tokens,
        "cacheRead": used.cache_read_tokens,
        "cacheWrite": used.cache_write_tokens,
    }
    return {**counts, "totalTokens": sum(counts.values()), "cost": dict(_COST)}
