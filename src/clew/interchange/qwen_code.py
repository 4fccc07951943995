"""Qwen Code: `projects/<folder>/chats/<session>.jsonl` under its home.

A session becomes the thread `qwen:<session id>`. Its records form a tree, whose end is the last
one. Several records may have one id: the pieces of a reply, which are kept beside each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clew.core.names import is_name
from clew.interchange.reader import Head, Session, TreeReader
from clew.messages.gemini_cli import NAME, is_message

AGENT = "qwen-code"
ENDINGS = (".jsonl",)


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield home / ".qwen" / "projects"
    yield home / ".qwen" / "tmp"


def identify(head: Head) -> Session | None:
    if not head.path.name.endswith(ENDINGS) or not any(map(_is_record, head.objects)):
        return None
    ids = (one["sessionId"] for one in head.objects if is_name(one.get("sessionId")))
    id = next(ids, head.path.stem)
    facts = {"agent": AGENT, "session_id": id}
    return Session(agent=AGENT, thread=f"qwen:{id}", facts=facts)


def _is_record(record: dict[str, Any]) -> bool:
    message = record.get("message")
    spoken = isinstance(message, dict) and isinstance(message.get("parts"), list)
    return {"uuid", "parentUuid", "sessionId"} <= record.keys() and (
        spoken or "systemPayload" in record
    )


class Reader(TreeReader):
    format = NAME
    id_key, parent_key = "uuid", "parentUuid"

    def kind_of(self, record: dict[str, Any]) -> str:
        if is_message(record):
            return self.kind(record)
        compressed = record.get("subtype") == "chat_compression"
        return "compaction" if compressed else "event"

    def tell(self, record: dict[str, Any]) -> None:
        self.workspace(record.get("cwd"))
        self.fact("git_branch", record.get("gitBranch"))
        self.fact("agent_version", record.get("version"))
        self.fact("model", record.get("model"))
        payload = record.get("systemPayload")
        told: dict[str, Any] = payload if isinstance(payload, dict) else {}
        if record.get("subtype") == "custom_title":
            source = "host" if told.get("titleSource") == "manual" else "model"
            self.title(told.get("customTitle"), source)
        elif record.get("type") == "user":
            if isinstance(told.get("displayText"), str):
                self.title(told["displayText"], "prompt")
            else:
                self.prompt(record)
