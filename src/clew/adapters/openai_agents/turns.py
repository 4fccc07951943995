"""The turns of a session: what the user said, which tools were called, what it cost.

A turn begins with a message of the user. What it cost is a usage entry that names the entry of
that message, so that it is found again wherever the usage itself lies in the thread.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from clew import messages
from clew.adapters.openai_agents.items import FORMAT, is_item, items_of
from clew.core.model import Entry, Fact
from clew.messages.neutral import Usage
from clew.thread import Thread

CLEARED = "cleared_us"  # the fact of a thread that was cleared: what was spent before is forgotten
_SHOWN = 100  # characters of a message in a list of turns
_COUNTS = ("requests", "input_tokens", "output_tokens", "total_tokens")
_DETAILS = ("input_tokens_details", "output_tokens_details")


def as_text(time: datetime) -> str:
    """A time as the sessions of the SDK give it."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


# --- the turns of a path ---


def _numbered(path: Iterable[Entry]) -> Iterator[tuple[int, Entry, Any]]:
    """Every item with its turn and its entry; 0 is what comes before the first turn."""
    turn = 0
    for entry in path:
        for item in items_of(entry) if is_item(entry) else ():
            turn += _is_user(item)
            yield turn, entry, item


def _is_user(item: Any) -> bool:
    return isinstance(item, dict) and item.get("role") == "user"


def _has_user(entry: Entry) -> bool:
    """Whether a turn begins with an entry. A message of another kind need not be looked into."""
    return (
        entry.kind in ("user_message", "custom")
        and is_item(entry)
        and any(map(_is_user, items_of(entry)))
    )


def counts(thread: Thread) -> dict[str, int]:
    """How many items and turns a thread has."""
    turn, number = 0, 0
    for number, (turn, _, _) in enumerate(_numbered(thread.path()), 1):  # noqa: B007
        pass
    return {"message_count": number, "user_turns": turn}


def before_turn(thread: Thread, number: int) -> str | None:
    """The entry before a turn, counted from 1, or from the end by -1 and so on. ValueError."""
    if type(number) is not int:
        raise ValueError(f"A turn is counted by a whole number, not by {number!r}")
    limit = 64 if number < 0 else None
    while True:
        path = thread.path(limit=limit)
        users = [entry for entry in path if _has_user(entry)]
        if 0 < abs(number) <= len(users):
            return users[number - 1 if number > 0 else number].parent
        if limit is None or not path or path[0].parent is None:
            raise ValueError(f"Turn {number} does not contain a user message")
        limit *= 8


def conversation_turns(thread: Thread) -> list[dict[str, Any]]:
    return [_turn(*found, shown=_SHOWN) for found in _numbered(thread.path()) if _is_user(found[2])]


def find_turns(thread: Thread, term: str) -> list[dict[str, Any]]:
    wanted = re.compile(re.escape(term), re.IGNORECASE)
    return [
        _turn(turn, entry, item)
        for turn, entry, item in _numbered(thread.path())
        if _is_user(item) and any(wanted.search(text) for text in _texts(item.get("content")))
    ]


def _turn(number: int, entry: Entry, item: Any, shown: int | None = None) -> dict[str, Any]:
    content = item.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    is_long = shown is not None and len(text) > shown
    return {
        "turn": number,
        "content": f"{text[:shown]}..." if is_long else text,
        "full_content": content,
        "timestamp": as_text(entry.time),
        "can_branch": True,
        "entry_id": entry.id,
    }


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    return [text for text in texts if isinstance(text, str)]


# --- tools ---


def by_turns(thread: Thread) -> dict[int, list[dict[str, str | None]]]:
    found: dict[int, list[dict[str, str | None]]] = {}
    for turn, _, item in _numbered(thread.path()):
        about = {"type": _type_of(item), "tool_name": _tool_of(item)}
        found.setdefault(turn, []).append(about)
    return found


def tool_usage(thread: Thread) -> list[tuple[str, int, int]]:
    told = [(turn, _type_of(item), _tool_of(item)) for turn, _, item in _numbered(thread.path())]
    searched = {turn for turn, kind, _ in told if kind == "tool_search_call"}
    called = Counter(
        (tool, turn)
        for turn, kind, tool in told
        if tool is not None
        and (
            kind.endswith(("_call", "mcp_approval_request"))
            or (kind == "tool_search_output" and turn not in searched)  # all that is told of it
        )
    )
    return [(tool, number, turn) for (tool, turn), number in called.items()]


def _type_of(item: Any) -> str:
    if not isinstance(item, dict):
        return "other"
    if item.get("role") in ("user", "assistant"):
        return str(item["role"])
    return str(item.get("type") or "other")


def _tool_of(item: Any) -> str | None:
    """The name of an item's tool: its own with what it belongs to, or that of a built-in one."""
    if not isinstance(item, dict) or item.get("role") is not None:
        return None
    kind, name, owner = _type_of(item), item.get("name"), item.get("namespace")
    if kind in ("mcp_call", "mcp_approval_request"):
        owner = item.get("server_label")
    elif owner == name:
        owner = None  # so the SDK marks a tool of no namespace that was loaded by a search
    given = [one for one in (owner, name) if isinstance(one, str) and one]
    if given:
        return ".".join(given)
    if kind.startswith("tool_search"):
        return "tool_search"
    return kind if kind.endswith("_call") else None


# --- usage ---


def store_usage(thread: Thread, usage: Any, fence: int | None) -> None:
    """Append what a run has cost to the turn that the thread is in; nothing without an item.

    Before the user has said anything, that is turn 0, which begins with the first item.
    """
    limit = 64
    while True:
        path = thread.path(limit=limit)
        users = [entry for entry in path if _has_user(entry)]
        begins = not path or path[0].parent is None
        if not users and begins:
            users = [entry for entry in path if is_item(entry)][:1]
        if users:
            body = usage_body({key: getattr(usage, key, None) for key in _COUNTS + _DETAILS})
            body["turn_entry"] = users[-1].id
            thread.append("usage", body, format=FORMAT, fence=fence)
        if users or begins:
            return
        limit *= 8


def usage_body(given: dict[str, Any]) -> dict[str, Any]:
    """The body of a usage entry, from what the SDK counts."""
    told: dict[str, Any] = {key: given.get(key) or 0 for key in _COUNTS}
    for key in _DETAILS:
        detail = given.get(key)
        told[key] = detail if isinstance(detail, dict) else dict(getattr(detail, "__dict__", {}))
    counted = messages.read_usage(FORMAT, told) or Usage()
    return {
        "format": FORMAT,
        **{key: getattr(counted, key) for key in Usage.__struct_fields__},
        "usage": told,
    }


def _told(entry: Entry) -> tuple[str, dict[str, Any]] | None:
    """The turn that a usage entry is about, and what the SDK counted; None for others' entries."""
    body = entry.body if entry.kind == "usage" else None
    if not isinstance(body, dict) or not isinstance(body.get("turn_entry"), str):
        return None
    return body["turn_entry"], body["usage"]


def summed(threads: Iterable[Thread]) -> dict[str, int] | None:
    """What the turns of some threads have cost together. A turn that was told twice counts once."""
    total: Counter[str] = Counter()
    for thread in threads:
        latest: dict[str, dict[str, Any]] = {}
        for record in thread.read():
            if isinstance(record, Fact) and record.key == CLEARED:
                latest.clear()
            elif isinstance(record, Entry) and (found := _told(record)) is not None:
                latest[found[0]] = found[1]
        for usage in latest.values():
            total.update({key: usage[key] for key in _COUNTS})
        total["total_turns"] += len(latest)
    return {key: total[key] for key in (*_COUNTS, "total_turns")} if total["total_turns"] else None


def turn_usage(thread: Thread) -> list[dict[str, Any]]:
    path = thread.path()
    # What a turn has cost stays true when its last items are popped, which leaves it beside the
    # path; what a branch shares with another one is on its path alone.
    known = chain(path, (record for record in thread.read() if isinstance(record, Entry)))
    latest = dict(found for entry in known if (found := _told(entry)) is not None)
    return [
        {"user_turn_number": turn, **latest.pop(entry.id)}
        for turn, entry, item in _numbered(path)
        if (turn == 0 or _is_user(item)) and entry.id in latest
    ]
