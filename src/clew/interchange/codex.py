"""Codex: `sessions/YYYY/MM/DD/rollout-….jsonl` under its home, cold ones compressed.

A rollout becomes the thread `codex:<thread id>`. Its lines follow one another, but for a rollback:
what comes after it goes on from before the turns that were taken back. Entries name their turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from clew.core.codec import encode
from clew.core.model import Entry, EntryDraft
from clew.core.names import is_name
from clew.interchange import reader
from clew.interchange.reader import Head, Session, Stored
from clew.interchange.values import Lines, Value, open_values
from clew.messages.codex import NAME, about, item_of

AGENT = "codex"
ENDINGS = (".jsonl", ".jsonl.zst", ".json")
_KEPT_USERS = 200  # that a summary of an old version stands beside
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TYPES = frozenset("session_meta response_item event_msg turn_context compacted".split())
_KINDS = {
    "session_meta": "thread_info",
    "turn_context": "model_change",
    "compacted": "compaction",
    "event_msg": "event",
}


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    base = Path(environ.get("CODEX_HOME") or home / ".codex")
    yield base / "sessions"
    yield base / "archived_sessions"


def identify(head: Head) -> Session | None:
    first, name = head.first, head.path.name
    if not name.endswith(ENDINGS):
        return None
    wrapped = any(one.get("type") in _TYPES and "payload" in one for one in head.objects)
    bare = {"id", "timestamp", "instructions"} <= first.keys()  # the first versions
    logged = {"ts", "dir", "kind"} <= first.keys()  # what its screen can write down
    whole = isinstance(first.get("session"), dict) and isinstance(first.get("items"), list)
    if not (whole if head.path.suffix == ".json" else wrapped or bare or logged):
        return None
    meta = next((_payload(one) for one in head.objects if one.get("type") == "session_meta"), first)
    meta = first["session"] if whole else meta
    stem = name.removesuffix(".zst").removesuffix(".jsonl").removesuffix(".json")
    named = _ID.search(stem)
    id = meta.get("id") or meta.get("session_id")
    if not is_name(id):
        id = named.group() if named else stem
    parent = meta.get("parent_thread_id") or _spawned_by(meta.get("source"))
    facts: dict[str, Any] = {"agent": AGENT, "session_id": id}
    for key, value in (
        ("forked_from", meta.get("forked_from_id")),
        ("agent_version", meta.get("cli_version")),
        ("surface", meta.get("source")),
        ("agent_role", meta.get("agent_role")),
    ):
        if is_name(value):
            facts[key] = value
    given = _names(head.path).get(str(id))
    if given is not None:
        facts["title"] = {"text": given, "status": "ready", "source": "host"}
    return Session(
        agent=AGENT,
        thread=f"codex:{id}",
        parent=f"codex:{parent}" if is_name(parent) else None,
        facts=facts,
    )


def _names(path: Path) -> dict[str, str]:
    """The names that the user gave to threads: a file of lines beside the folders of rollouts."""
    base = next(
        (p.parent for p in path.parents if p.name in ("sessions", "archived_sessions")), None
    )
    index = None if base is None else base / "session_index.jsonl"
    if index is None or not index.is_file():
        return {}
    return _read_names(index, index.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _read_names(index: Path, mtime_ns: int) -> dict[str, str]:
    found: dict[str, str] = {}
    with open_values(index) as file:
        for value in Lines(file, lambda name, place: None):
            line = value.value
            if isinstance(line, dict) and is_name(line.get("thread_name")):
                found[str(line.get("id"))] = line["thread_name"]  # the newest stands last
    return found


def _payload(record: dict[str, Any]) -> dict[str, Any]:
    payload = record.get("payload")
    return payload if isinstance(payload, dict) else {}


def _spawned_by(source: Any) -> Any:
    """The thread that a sub-agent works for, where only its source tells."""
    for key in ("subagent", "thread_spawn"):
        source = source.get(key) if isinstance(source, dict) else None
    return source.get("parent_thread_id") if isinstance(source, dict) else None


class _Turn(Struct):
    """A turn: the entry that stood before it, and whether the user said something in it."""

    id: str | None
    before: str | None
    asked: bool = False


class Reader(reader.Reader):
    format = NAME

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self._turns: list[_Turn] = []
        self._prompts: list[str] = []  # the entries of what the user has asked
        self._is_whole = True
        super().__init__(session, stored, fresh=fresh)

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any] | None:
        """Of a document, as the version in TypeScript wrote it."""
        if head.path.suffix != ".json":
            return None
        return [head.first["session"], *head.first["items"]]

    def resume(self, tail: list[Entry]) -> None:
        super().resume(tail)
        turn = next((entry.turn for entry in reversed(tail) if entry.turn is not None), None)
        self._turns = [_Turn(turn, None, True)] if tail else []
        self._is_whole = False  # the turns before are read when the session goes back to them

    def _remember(self) -> None:
        """Read the turns that were stored before, and what the user has asked in them."""
        if self._is_whole:
            return
        last, turns, prompts = self.last, self._turns[1:], self._prompts
        self._is_whole, self._turns, self._prompts = True, [], []
        for entry in self.stored.path():
            if entry.format == NAME and isinstance(body := entry.body, dict):
                self.last = entry.parent
                self._turn(body)
                self._count(body, entry.id)
        self.last = last
        self._turns += turns
        self._prompts += prompts

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if value.text or not isinstance(record, dict):
            return self.draft(value, "custom")
        self._tell(record)
        parent = self._turn(record)
        turn = _payload(record).get("turn_id")
        if not is_name(turn):
            turn = self._turns[-1].id if self._turns else None
        meta = None
        if record.get("type") == "compacted":
            self._remember()
            kept = self._prompts[-_KEPT_USERS:]
            if "replacement_history" not in _payload(record) and kept:
                meta = encode({"told": {"kept_user_entry_ids": kept}})
        time = record.get("timestamp") or record.get("ts") or record.get("created_at")
        made = self.draft(value, self._kind(record), parent=parent, time=time, turn=turn, meta=meta)
        self._count(record, made.id)
        return made

    def _kind(self, record: dict[str, Any]) -> str:
        kind = record.get("type")
        if item_of(record) is not None:
            return self.kind(record)
        if kind == "event_msg" and about(record).usage is not None:
            return "usage"
        return _KINDS.get(str(kind), "custom")

    def _tell(self, record: dict[str, Any]) -> None:
        """What a record says about the whole session."""
        payload = _payload(record)
        match record.get("type"):
            case "session_meta" if payload.get("id") in (None, self.session.facts["session_id"]):
                self.workspace(payload.get("cwd"))
                git = payload.get("git")
                self.fact("git_branch", git.get("branch") if isinstance(git, dict) else None)
            case "turn_context":
                self.workspace(payload.get("cwd"))
                self.fact("model", payload.get("model"))
            case "event_msg" if payload.get("type") == "user_message":
                self.title(payload.get("message"), "prompt")
            case "event_msg" if payload.get("type") == "thread_name_updated":
                self.title(payload.get("thread_name"), "host")
            case None:
                git = record.get("git")
                self.fact("git_branch", git.get("branch") if isinstance(git, dict) else None)

    def _turn(self, record: dict[str, Any]) -> str | UnsetType | None:
        """Notice that a turn begins, or that turns are taken back; what the record hangs on."""
        payload = _payload(record)
        name = payload.get("type") if record.get("type") == "event_msg" else record.get("type")
        id = payload.get("turn_id")
        known = self._turns[-1] if self._turns else None
        if name in ("task_started", "turn_started", "turn_context"):
            if known is None or (is_name(id) and known.id != id):
                self._turns.append(_Turn(id if is_name(id) else None, self.last))
        elif name == "user_message":
            if known is None or (known.id is None and known.asked):
                self._turns.append(_Turn(None, self.last))
            self._turns[-1].asked = True
        elif name == "thread_rolled_back":
            return self._rolled_back(payload.get("num_turns"))
        return UNSET

    def _rolled_back(self, count: Any) -> str | UnsetType | None:
        self._remember()
        left = count if type(count) is int else 0
        before: str | UnsetType | None = UNSET
        while left > 0 and self._turns:
            turn = self._turns.pop()
            before = turn.before
            left -= turn.asked
        return before

    def _count(self, record: dict[str, Any], id: str) -> None:
        """Remember what the user has asked; what Codex says in his name has a tag."""
        item = item_of(record)
        if item is None or item.get("role") != "user" or not isinstance(item.get("content"), list):
            return
        texts = [b.get("text") for b in item["content"] if isinstance(b, dict)]
        text = next((text for text in texts if isinstance(text, str)), "")
        if text.strip() and not text.lstrip().startswith(("<", "# AGENTS.md")):
            self._prompts.append(id)
            self.title(text, "prompt")
