"""Claude Code: `projects/<folder>/<session>.jsonl` under its home, and files of its sub-agents.

A session becomes the thread that the adapter of the Claude Agent SDK would make of it, with the
same ids: `claude:<folder>/<session>`, and `…/subagents/agent-<id>` for its sub-agents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from clew.core.codec import digest
from clew.core.model import Entry, EntryDraft
from clew.core.names import is_name
from clew.interchange import reader
from clew.interchange.reader import Head, Session, Stored
from clew.interchange.values import Unreadable, Value, read_document
from clew.messages import claude_code as records
from clew.messages.claude_code import NAME, Beside, Chain

AGENT = "claude-code"
ENDINGS = (".jsonl",)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Records that are about a session and stand in no tree; each has a field that no other agent's has.
_ASIDES = {
    "summary": "leafUuid",
    "file-history-snapshot": "messageId",
    "last-prompt": "lastPrompt",
    "ai-title": "aiTitle",
    "custom-title": "customTitle",
}


_AROUND = ("cwd", "gitBranch", "version", "forkedFrom")


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield Path(environ.get("CLAUDE_CONFIG_DIR") or home / ".claude") / "projects"


def identify(head: Head) -> Session | None:
    if head.path.suffix != ".jsonl" or not any(map(_is_record, head.objects)):
        return None
    if any(map(_is_of_qwen, head.objects)):
        return None
    path = head.path
    folder, session, subpath = _place(path, _first(head, "sessionId"), _first(head, "cwd"))
    thread = f"claude:{_escaped(folder)}/{_escaped(session)}"
    facts = {"agent": AGENT, "adapter": "claude-agent-sdk"}
    facts |= {"project_key": folder, "session_id": session}
    if subpath is not None:
        facts |= {"subpath": subpath, **_beside(path)}
    return Session(
        agent=AGENT,
        thread=thread if subpath is None else f"{thread}/{subpath}",
        parent=None if subpath is None else thread,
        begin=_first(head, "uuid"),
        facts=facts,
    )


def _beside(path: Path) -> dict[str, str]:
    """What stands beside the file of a sub-agent about it."""
    try:
        told = read_document(path.with_name(f"{path.stem}.meta.json"))
    except (OSError, Unreadable):
        return {}
    names = {"agentType": "agent_role", "toolUseId": "tool_call"}
    given = told if isinstance(told, dict) else {}
    return {name: given[key] for key, name in names.items() if is_name(given.get(key))}


def _is_record(record: dict[str, Any]) -> bool:
    kind = record.get("type")
    if not isinstance(kind, str):
        return False
    in_tree = "parentUuid" in record and "uuid" in record
    return (
        in_tree
        or _ASIDES.get(kind, "") in record
        or (kind in _WITH_SESSION and "sessionId" in record)
    )


def _is_of_qwen(record: dict[str, Any]) -> bool:
    """Whether a record only looks the same: Qwen Code has messages of Gemini in it."""
    message = record.get("message")
    return "systemPayload" in record or (isinstance(message, dict) and "parts" in message)


_WITH_SESSION = frozenset("user assistant system queue-operation mode permission-mode".split())


def _first(head: Head, key: str) -> str | None:
    found = (record[key] for record in head.objects if is_name(record.get(key)))
    return next(found, None)


def _place(path: Path, session: str | None, cwd: str | None) -> tuple[str, str, str | None]:
    """The folder of the project, the session, and for a sub-agent its place below that."""
    parts = path.parts
    if "subagents" in parts[:-1]:
        at = len(parts) - 1 - parts[::-1].index("subagents")
        if at >= 2:
            below = "/".join(parts[at:]).removesuffix(".jsonl")
            return parts[at - 2], parts[at - 1], below
    folder = path.parent.name
    if not folder.startswith("-") and path.parent.parent.name != "projects":
        folder = project_key(cwd) if cwd is not None else folder
    if path.stem.startswith("agent-") and session is not None:
        return folder, session, f"subagents/{path.stem}"  # as older versions placed them
    return folder or "-", path.stem if _UUID.fullmatch(path.stem) or not session else session, None


def project_key(folder: str) -> str:
    """The name that Claude Code gives the folder of a project."""
    name = re.sub("[^a-zA-Z0-9]", "-", unicodedata.normalize("NFC", folder))
    if len(name) <= 200:
        return name
    number = 0
    for unit in memoryview(folder.encode("utf-16-le", "surrogatepass")).cast("H"):
        number = (number * 31 + unit) & 0xFFFFFFFF
    number = abs(number - (1 << 32) if number >> 31 else number)
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"{name[:200]}-{digits}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _any(uuid: str) -> bool:
    """What a record hangs on is there, or else it is a root: that is seen to when it is stored."""
    return True


class _Seen(Struct, gc=False):
    """A record in the tree: where it hangs, and whether the conversation can end at it."""

    place: int
    parent: str | None
    is_message: bool
    is_main: bool


class Reader(reader.Reader):
    format = NAME

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self._chain = Chain()
        self._beside = Beside()
        self._anchor: str | None = None
        self._around: tuple[Any, ...] = ()
        self._seen: dict[str, _Seen] = {}
        self._hangs: dict[str | None, str | UnsetType | None] = {}
        self._near: dict[str, str | None] = {}  # of entries: the last message up to them
        self._grown = not fresh
        # What has no uuid and is stored already, perhaps under another id: by the adapter, which
        # sees other neighbours, or from a file that had no more than this then.
        self._asides: dict[str, list[str]] = {}
        if fresh and stored.info is not None:
            for entry in stored.entries():
                if entry.format == NAME and not is_name(entry.body.get("uuid")):
                    self._asides.setdefault(entry.body_hash, []).append(entry.id)
        super().__init__(session, stored, fresh=fresh)

    def resume(self, tail: list[Entry]) -> None:
        super().resume(tail)
        for entry in tail:
            if entry.format == NAME and isinstance(body := entry.body, dict):
                self._chain.take(body, _any)
                if body.get("uuid") == entry.id:
                    self._anchor = entry.id
                elif self._anchor is not None:
                    self._beside.name(f"{self._anchor}+", entry.data)

    def awaits(self, value: Any) -> str | None:
        parent = value.get("parentUuid") if isinstance(value, dict) else None
        if not isinstance(parent, str) or parent == value.get("uuid"):
            return None
        return parent

    def spelled(self, id: str) -> bytes:
        return b'"uuid":"%s"' % id.encode("utf-8", "surrogatepass")

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if value.text or not isinstance(record, dict):
            return self._placed(self.draft(value, "custom", id=self._name(None, value)), False)
        self._tell(record)
        kind = records.kind_of(record)
        uuid = record.get("uuid")
        if not isinstance(uuid, str) or not is_name(uuid):
            uuid = None
        parent = self._chain.take(record, _any)
        if uuid in self._hangs:
            parent = self._hangs[uuid]  # it is written anew, and stands where it stood
        made = self.draft(
            value, kind, id=self._name(uuid, value), parent=parent, time=record.get("timestamp")
        )
        is_message = record.get("type") in ("user", "assistant")
        if uuid is not None:
            self._anchor = uuid
            self._hangs[uuid] = made.parent
            self._see(record, uuid, is_message)
        return self._placed(made, is_message)

    def _name(self, uuid: str | None, value: Value) -> str | None:
        if uuid is not None:
            return uuid
        known = self._asides.get(digest(value.data)) if self._asides else None
        if known:
            return known.pop(0)
        if self._anchor is not None:
            return self._beside.name(f"{self._anchor}+", value.data)
        begin = self.session.begin
        return None if begin is None else self._beside.name(f"{begin}-", value.data)

    def _tell(self, record: dict[str, Any]) -> None:
        """What a record says about the whole session."""
        kind = record.get("type")
        if "customTitle" in record or "aiTitle" in record:
            title = records.title_of(record)
            if title is not None:
                self.title(*title)
        elif kind == "summary":
            self.title(record.get("summary"), "model")
        elif kind == "tag":
            tag = record.get("tag")
            self.facts["tags"] = [tag] if is_name(tag) else []
        # Nearly every record says the same of these as the one before it.
        around = tuple([record.get(key) for key in _AROUND])
        if around != self._around:
            self._around = around
            self.workspace(record.get("cwd"))
            self.fact("git_branch", record.get("gitBranch"))
            self.fact("agent_version", record.get("version"))
            forked = record.get("forkedFrom")
            if isinstance(forked, dict):
                self.fact("forked_from", forked.get("sessionId"))
        message = record.get("message")
        if not isinstance(message, dict):
            return
        if kind == "assistant":
            if message.get("model") != "<synthetic>":
                self.fact("model", message.get("model"))
        elif _is_prompt(record):
            self.prompt(record)

    # --- where the conversation ends ---

    def _see(self, record: dict[str, Any], uuid: str, is_message: bool) -> None:
        parent = record.get("parentUuid")
        aside = record.get("isSidechain") or record.get("isMeta") or record.get("teamName")
        self._seen[uuid] = _Seen(
            len(self._seen), parent if isinstance(parent, str) else None, is_message, not aside
        )

    def _placed(self, draft: EntryDraft, is_message: bool) -> EntryDraft:
        parent = draft.parent if isinstance(draft.parent, str) else None
        self._near[draft.id] = draft.id if is_message else self._nearest(parent)
        return draft

    def _nearest(self, entry: str | None) -> str | None:
        if entry is None or entry in self._near or not self._grown:
            return None if entry is None else self._near.get(entry)
        found = self._near[entry] = self.stored.last_message(entry)
        return found

    def leaf(self) -> str | UnsetType | None:
        """As Claude Code picks it: the last message of the main conversation with none after it."""
        live = self._live()
        if live is None or self._nearest(self.last) == live:
            return UNSET
        return next((id for id in reversed(self._near) if self._near[id] == live), live)

    def _live(self) -> str | None:
        named = {seen.parent for uuid, seen in self._seen.items() if seen.parent != uuid}
        ends = {self._back(uuid) for uuid in self._seen if uuid not in named}
        found = [uuid for uuid in ends if uuid is not None]
        main = [uuid for uuid in found if self._seen[uuid].is_main]
        if main or (found and not self._grown):
            return max(main or found, key=lambda uuid: self._seen[uuid].place)
        # Nothing that was added ends the conversation, so it ends where it did.
        info = self.stored.info
        return None if info is None or not self._grown else self._nearest(info.leaf)

    def _back(self, uuid: str | None) -> str | None:
        """The nearest message on the way from a record to its root."""
        passed = set()
        while uuid is not None and uuid not in passed and uuid in self._seen:
            seen = self._seen[uuid]
            if seen.is_message:
                return uuid
            passed.add(uuid)
            uuid = seen.parent
        return None


def _is_prompt(record: dict[str, Any]) -> bool:
    """Whether a record is what the user has typed."""
    content = record["message"].get("content")
    text = content if isinstance(content, str) else ""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        text = content[0].get("text") or ""
    aside = record.get("isMeta") or record.get("isCompactSummary") or record.get("isSidechain")
    return (
        record.get("type") == "user"
        and not aside
        and isinstance(text, str)
        and bool(text.strip())
        and not text.lstrip().startswith("<")
    )
