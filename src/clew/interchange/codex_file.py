"""Rollouts of Codex, written: a thread that `codex resume` opens and continues.

What the model sees are items of the Responses API. Beside them stand the events that Codex shows
the conversation from: a turn for each prompt, with what was asked and what was answered. What was
summed up is followed by a record that puts the summary in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clew import messages
from clew.interchange.codex import AGENT
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
from clew.messages.neutral import text_of
from clew.thread import Thread

VERSION = "0.169.0"  # whose records these are like
Record = dict[str, Any]


def seat(thread: Thread, workspace: str | None = None, fresh: int | None = None) -> Seat:
    return seat_of(thread, AGENT, workspace=workspace, fresh=fresh)


def sub_seat(thread: Thread, main: Seat, helper: Helper) -> Seat:
    """A sub-agent has a rollout of its own, which names the thread that it works for."""
    fresh = None if main.is_own else 0
    return seat_of(thread, AGENT, workspace=beside(main, thread), fresh=fresh, helper=helper)


def place(seat: Seat, home: Path, environ: Mapping[str, str]) -> Path:
    """Where Codex has a rollout, or looks for one: by the day on which it began."""
    base = Path(environ.get("CODEX_HOME") or home / ".codex")
    known = sorted((base / "sessions").glob(f"*/*/*/rollout-*-{seat.session}.jsonl*"))
    if known:
        return known[-1]
    time = time_text(seat.time_us)
    year, month, day = time[:10].split("-")
    name = f"rollout-{time[:19].replace(':', '-')}-{seat.session}.jsonl"
    return base / "sessions" / year / month / day / name


def commands(seat: Seat, path: Path) -> list[list[str]]:
    return [["codex", "resume", seat.session]]


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    return compose(thread, seat(thread), writing)


def compose(thread: Thread, seat: Seat, writing: Writing) -> Iterator[bytes]:
    """The lines of the rollout."""
    found = pieces(thread, AGENT, seat, writing, target="openai-responses")
    if seat.is_own and all(isinstance(piece, Raw) for piece in found):
        return (raw_line(piece.entry) for piece in found)
    return map(line, _Records(seat, writing).of(found))


class _Records:
    """The records of a thread that Codex has not written, or not as this one."""

    def __init__(self, seat: Seat, writing: Writing) -> None:
        self._seat = seat
        self._writing = writing
        self._turn: str | None = None
        self._answer: str | None = None  # what the model said last in this turn

    def of(self, found: list[Piece]) -> Iterator[Record]:
        seat = self._seat
        yield self._header()
        items = self._items([piece for piece in found if isinstance(piece, Said)])
        for piece in found:
            if isinstance(piece, Raw):
                yield from self._end(piece)
                yield from self._raw(piece)
            elif isinstance(piece, Fold):
                yield from self._end(piece)
                yield self._fold(piece)
            elif isinstance(piece, Said):
                yield from self._said(piece, next(items))
        if found:
            yield from self._end(found[-1])
            if seat.title is not None and seat.title_source != "prompt":
                named = {"thread_id": seat.session, "thread_name": seat.title}
                yield self._event(found[-1], "thread_name_updated", **named)

    def _header(self) -> Record:
        seat = self._seat
        meta: Record = {
            "session_id": seat.session,
            "id": seat.session,
            "timestamp": time_text(seat.time_us),
            "cwd": seat.workspace,
            "originator": "clew",
            "cli_version": VERSION,
            "source": "cli",
            "model_provider": "openai",
        }
        if seat.branch is not None:
            meta["git"] = {"branch": seat.branch}
        if seat.helper is not None:
            spawned = {
                "parent_thread_id": seat.helper.session,
                "depth": seat.helper.depth,
                "agent_path": None,
                "agent_nickname": None,
                "agent_role": seat.helper.role,
            }
            meta["source"] = {"subagent": {"thread_spawn": spawned}}
            meta["parent_thread_id"] = seat.helper.session
            if seat.helper.role is not None:
                meta["agent_role"] = seat.helper.role
        return {
            "timestamp": time_text(seat.time_us),
            "type": "session_meta",
            "payload": meta,
            KEY: seat.mark(),
        }

    def _record(self, piece: Piece, kind: str, payload: Record) -> Record:
        time = time_text(piece.entry.time_us)
        mark = self._seat.mark(piece.mark)
        return {"timestamp": time, "type": kind, "payload": payload, KEY: mark}

    def _event(self, piece: Piece, name: str, **fields: Any) -> Record:
        return self._record(piece, "event_msg", {"type": name, **fields})

    def _raw(self, piece: Raw) -> Iterator[Record]:
        record = piece.entry.body
        if piece.entry.format == TEXT_FORMAT or not isinstance(record, dict):
            return
        payload = record.get("payload")
        name = payload.get("type") if isinstance(payload, dict) else None
        if record.get("type") == "session_meta" or name == "thread_rolled_back":
            return  # the turns that were taken back are not on the path
        if "payload" not in record:
            if record.get("type") is None:
                return  # the header of the first versions, or their notes
            item = {key: value for key, value in record.items() if key != "timestamp"}
            yield self._record(piece, "response_item", item)
            return
        found = {**record, KEY: self._seat.mark(piece.mark)}
        found.pop("ordinal", None)
        found.setdefault("timestamp", time_text(piece.entry.time_us))
        yield found

    def _fold(self, piece: Fold) -> Record:
        said = {"type": "input_text", "text": piece.text}
        history = [{"type": "message", "role": "user", "content": [said]}]
        payload = {"message": piece.text, "replacement_history": history}
        return self._record(piece, "compacted", payload)

    # --- turns ---

    def _items(self, said: list[Said]) -> Iterator[list[Record]]:
        """The items of each message."""
        written = messages.write("openai-responses", [piece.message for piece in said])
        for loss in written.losses:
            self._writing.change(loss.code, loss.message, said[loss.index].entry.id)
        end = len(written.messages)
        found: list[list[Record]] = []
        for place in reversed(written.places):
            found.append([] if place is None else written.messages[place:end])
            end = end if place is None else place
        return reversed(found)

    def _said(self, piece: Said, items: list[Record]) -> Iterator[Record]:
        role, text = piece.message.role, text_of(piece.message)
        if role == "system":
            told = "instructions were left out: Codex has its own"
            self._writing.change("system_left_out", told, piece.entry.id)
            return
        asks = role == "user" and not piece.is_aside
        if asks:
            yield from self._end(piece)
        if self._turn is None:
            self._turn = str(uuid_of(f"turn\n{piece.key}"))
            fields = {"turn_id": self._turn, "model_context_window": None}
            yield self._event(piece, "task_started", **fields)
        for item in items:
            yield self._record(piece, "response_item", item)
        if asks:
            empty: Record = {"images": [], "local_images": [], "text_elements": []}
            yield self._event(piece, "user_message", message=text, **empty)
        elif role == "assistant" and text:
            self._answer = text
            yield self._event(piece, "agent_message", message=text)

    def _end(self, piece: Piece) -> Iterator[Record]:
        if self._turn is not None:
            fields = {"turn_id": self._turn, "last_agent_message": self._answer}
            yield self._event(piece, "task_complete", **fields)
        self._turn = self._answer = None
