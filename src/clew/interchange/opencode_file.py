"""Sessions of opencode, written: a thread as the document that `opencode import` takes.

A reply holds the outputs of its calls. Ids begin with the time, as opencode orders messages by
them, and are new ones for every session: a message can be in one session only. The mark of an entry
is in the metadata of a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clew.core.codec import encode
from clew.interchange.export import Writing
from clew.interchange.handover import (
    Fold,
    Helper,
    Piece,
    Raw,
    Said,
    Seat,
    beside,
    pieces,
    seat_of,
    uuid_of,
)
from clew.interchange.marks import KEY
from clew.interchange.opencode import AGENT
from clew.messages.neutral import Media, Part, Text, Thinking, ToolCall, ToolResult, Usage
from clew.messages.opencode import is_message, parts_of
from clew.messages.shared.media import data_url, placeholder
from clew.thread import Thread

VERSION = "1.18.33"  # whose documents these are like
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MARKED = frozenset({"text", "reasoning", "tool"})  # parts that have metadata
Row = dict[str, Any]


def seat(
    thread: Thread,
    workspace: str | None = None,
    fresh: int | None = None,
    helper: Helper | None = None,
) -> Seat:
    def name(seed: str) -> str:
        # The newest session comes first in opencode's order, so the time counts downwards.
        return _id("ses", ~(thread.info.updated_us // 1000 * 0x1000), seed)

    return seat_of(thread, AGENT, workspace=workspace, fresh=fresh, helper=helper, name=name)


def sub_seat(thread: Thread, main: Seat, helper: Helper) -> Seat:
    """A sub-agent has a session of its own, whose parent is the one that it works for."""
    return seat(thread, beside(main, thread), None if main.is_own else 0, helper)


def place(seat: Seat, home: Path, environ: Mapping[str, str]) -> Path:
    """A file for opencode to import; its own place is a database, which only it writes."""
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    return cache / "clew" / "opencode" / f"{seat.session}.json"


def commands(seat: Seat, path: Path) -> list[list[str]]:
    return [["opencode", "import", str(path)], ["opencode", "--session", seat.session]]


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    return compose(thread, seat(thread), writing)


def compose(thread: Thread, seat: Seat, writing: Writing) -> Iterator[bytes]:
    """The document of the session."""
    found = pieces(thread, AGENT, seat, writing, target="plain")
    if seat.is_own and all(isinstance(piece, Raw) for piece in found):
        yield encode(_own(found)) + b"\n"
    else:
        yield encode(_Messages(seat, writing).document(found)) + b"\n"


def _own(found: list[Piece]) -> Row:
    """Messages as they are; of one that was changed later, as it was last."""
    info: Any = {}
    said: dict[str, Any] = {}
    for piece in found:
        body = piece.entry.body
        if is_message(body):
            said[str(body["info"].get("id"))] = body
        else:
            info = body
    return {"info": info, "messages": list(said.values())}


def _id(kind: str, time: int, seed: str) -> str:
    """An id as opencode makes it: of a kind, by time, with letters that follow from a text."""
    number, letters = uuid_of(f"{AGENT}\n{seed}").int, ""
    for _ in range(14):
        number, digit = divmod(number, 62)
        letters += _DIGITS[digit]
    return f"{kind}_{time & 0xFFFFFFFFFFFF:012x}{letters}"


class _Messages:
    """The messages of a session that opencode has not written, or not as this one."""

    def __init__(self, seat: Seat, writing: Writing) -> None:
        self._seat = seat
        self._writing = writing
        self._time = 0  # of the last id
        self._asked: str | None = None  # the message that replies belong to
        self._model: Row = {"providerID": "unknown", "modelID": seat.model or "unknown"}
        self._names: dict[str, str] = {}  # ids that opencode gave, and those of this session
        self._made: list[Row] = []

    def document(self, found: list[Piece]) -> Row:
        seat = self._seat
        calls: dict[str, Row] = {}  # parts of calls that wait for their output
        for piece in found:
            if isinstance(piece, Raw):
                self._raw(piece)
            elif isinstance(piece, Fold):
                self._fold(piece)
            elif isinstance(piece, Said):
                self._said(piece, calls)
        first = found[0].entry.time_us // 1000
        info = {
            "id": seat.session,
            "slug": f"clew-{seat.session[-8:].lower()}",
            "projectID": "global",
            "directory": seat.workspace,
            "title": seat.title or "A thread of Clew",
            "version": VERSION,
            "time": {"created": first, "updated": seat.time_us // 1000},
        }
        if seat.helper is not None:
            info["parentID"] = seat.helper.session
        return {"info": info, "messages": self._made}

    def _said(self, piece: Said, calls: dict[str, Row]) -> None:
        role, parts = piece.message.role, piece.message.parts
        if role == "system":
            text = "instructions were left out: opencode has its own"
            self._writing.change("system_left_out", text, piece.entry.id)
        elif role == "user":
            self._ask(piece, piece.key, [self._part(part) for part in parts])
        elif role == "tool":
            for part in parts:
                if isinstance(part, ToolResult) and part.call in calls:
                    self._answer(calls.pop(part.call), part, piece)
            if self._made:
                self._mark(self._made[-1], piece)
        else:
            made = [self._part(part) for part in parts]
            calls |= {part["callID"]: part for part in made if part["type"] == "tool"}
            self._reply(piece, piece.key, made)

    # --- messages ---

    def _new_id(self, kind: str, piece: Piece, seed: str) -> str:
        self._time = max(self._time + 1, piece.entry.time_us // 1000 * 0x1000)
        return _id(kind, self._time, f"{self._seat.session}\n{seed}")

    def _add(self, piece: Piece, key: str, info: Row, parts: list[Row]) -> Row:
        id = self._new_id("msg", piece, key)
        session = self._seat.session
        own = {"sessionID": session, "messageID": id}
        placed = [
            {**part, "id": self._new_id("prt", piece, f"{key}\n{number}"), **own}
            for number, part in enumerate(parts)
        ]
        message = {"info": {**info, "id": id, "sessionID": session}, "parts": placed}
        self._mark(message, piece)
        self._made.append(message)
        return message

    def _mark(self, message: Row, piece: Piece) -> None:
        """Write down of which entry a message is made, in a part that has room for it."""
        parts: list[Row] = message["parts"]
        part = next((one for one in parts if one.get("type") in _MARKED), None)
        if part is None:
            info = message["info"]
            part = {
                "type": "text",
                "text": "",
                "synthetic": True,
                "ignored": True,
                "id": self._new_id("prt", piece, f"{info['id']}\nmark"),
                "sessionID": info["sessionID"],
                "messageID": info["id"],
            }
            parts.append(part)
        part["metadata"] = {**part.get("metadata", {}), KEY: self._seat.mark(piece.mark)}

    def _ask(self, piece: Piece, key: str, parts: list[Row]) -> None:
        time = {"created": piece.entry.time_us // 1000}
        info = {"role": "user", "time": time, "agent": "build", "model": self._model}
        self._asked = self._add(piece, key, info, parts)["info"]["id"]

    def _reply(self, piece: Said | Fold, key: str, parts: list[Row], **more: Any) -> None:
        if self._asked is None:
            self._ask(piece, f"{key}\nasked", [{"type": "text", "text": "(continued)"}])
        used, folder = Usage(), self._seat.workspace
        if isinstance(piece, Said):
            used = piece.message.usage or used
            model = piece.message.model or self._seat.model or "unknown"
            self._model = {"providerID": piece.made_by[1], "modelID": model}
        time = piece.entry.time_us // 1000
        calls = any(part["type"] == "tool" for part in parts)
        info = {
            "role": "assistant",
            "parentID": self._asked,
            "mode": "build",
            "agent": "build",
            "path": {"cwd": folder, "root": folder},
            "cost": 0,
            "tokens": _tokens(used),
            **self._model,
            "time": {"created": time, "completed": time},
            "finish": "tool-calls" if calls else "stop",
            **more,
        }
        self._add(piece, key, info, parts)

    def _fold(self, piece: Fold) -> None:
        self._ask(piece, piece.key, [{"type": "compaction", "auto": False}])
        text = [{"type": "text", "text": piece.text}]
        self._reply(piece, f"{piece.key}\nsummary", text, summary=True)

    def _raw(self, piece: Raw) -> None:
        body = piece.entry.body
        if not is_message(body):
            return
        info = dict(body["info"])
        old = str(info.get("id"))
        if info["role"] == "assistant":
            info["parentID"] = self._names.get(str(info.get("parentID")), self._asked)
        made = self._add(piece, piece.entry.id, info, parts_of(body))
        self._names[old] = made["info"]["id"]
        if info["role"] == "user":
            self._asked = made["info"]["id"]
        for part in made["parts"]:
            if part.get("tail_start_id") in self._names:
                part["tail_start_id"] = self._names[part["tail_start_id"]]

    # --- parts ---

    def _part(self, part: Part) -> Row:
        match part:
            case Text():
                return {"type": "text", "text": part.text}
            case Thinking():
                return {"type": "reasoning", "text": part.text, "time": {"start": 0, "end": 0}}
            case ToolCall():
                given = part.arguments if isinstance(part.arguments, dict) else {}
                error = {"status": "error", "input": given, "error": "no output is known"}
                state = {**error, "time": {"start": 0, "end": 0}}
                return {"type": "tool", "callID": part.id, "tool": part.name, "state": state}
            case Media(data=str(), mime=str(mime)):
                return {"type": "file", "mime": mime, "url": data_url(part)}
            case Media():
                self._writing.change("media_dropped", placeholder(part)[1:-1])
                return {"type": "text", "text": placeholder(part)}
        self._writing.change("block_dropped", "a block that only its own format knows")
        return {"type": "text", "text": "[a block that only its own format knows was left out]"}

    def _answer(self, part: Row, result: ToolResult, piece: Said) -> None:
        """Put the output of a call where opencode has it: into the part of the call."""
        said = [one.text for one in result.content if isinstance(one, Text)]
        for media in result.content:
            if isinstance(media, Media):
                self._writing.change("media_dropped", placeholder(media)[1:-1], piece.entry.id)
                said.append(placeholder(media))
        text, time = "\n".join(said), piece.entry.time_us // 1000
        given = {"input": part["state"]["input"], "time": {"start": time, "end": time}}
        told: Row = (
            {"status": "error", "error": text}
            if result.is_error
            else {"status": "completed", "output": text, "title": "", "metadata": {}}
        )
        for one in self._made[-1]["parts"] if self._made else ():
            if one.get("callID") == part["callID"]:
                one["state"] = {**told, **given}


def _tokens(used: Usage) -> Row:
    return {
        "input": used.input_tokens,
        "output": max(0, used.output_tokens - used.reasoning_tokens),
        "reasoning": used.reasoning_tokens,
        "cache": {"read": used.cache_read_tokens, "write": used.cache_write_tokens},
    }
