"""Copilot CLI: `session-state/<session>/events.jsonl` under its home.

A session becomes the thread `copilot:<session id>`; its events hang on one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clew.core.names import is_name
from clew.interchange.reader import Head, Session, TreeReader
from clew.messages.copilot import NAME, is_message

AGENT = "copilot"
ENDINGS = (".jsonl",)
_KINDS = {
    "session.start": "thread_info",
    "session.model_change": "model_change",
}


def places(home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    yield home / ".copilot" / "session-state"
    yield home / ".copilot" / "history-session-state"


def identify(head: Head) -> Session | None:
    events = [one for one in head.objects if {"type", "data", "id", "parentId"} <= one.keys()]
    if not head.path.name.endswith(ENDINGS) or not events or len(events) < len(head.values) // 2:
        return None
    data = [event["data"] for event in events if isinstance(event["data"], dict)]
    ids = (one.get("sessionId") for one in data if is_name(one.get("sessionId")))
    named = head.path.parent.name if head.path.stem == "events" else head.path.stem
    id = next(ids, named)
    facts: dict[str, Any] = {"agent": AGENT, "session_id": id}
    version = next((one.get("copilotVersion") for one in data if "copilotVersion" in one), None)
    if is_name(version):
        facts["agent_version"] = version
    return Session(agent=AGENT, thread=f"copilot:{id}", facts=facts)


class Reader(TreeReader):
    format = NAME
    id_key, parent_key = "id", "parentId"

    def kind_of(self, record: dict[str, Any]) -> str:
        if is_message(record):
            return self.kind(record)
        return _KINDS.get(str(record.get("type")), "event")

    def tell(self, record: dict[str, Any]) -> None:
        data = record.get("data")
        if not isinstance(data, dict):
            return
        context = data.get("context")
        if isinstance(context, dict):
            self.workspace(context.get("cwd"))
            self.fact("git_branch", context.get("branch"))
        match record.get("type"):
            case "session.model_change":
                self.fact("model", data.get("newModel"))
            case "assistant.message":
                self.fact("model", data.get("model"))
            case "user.message":
                self.title(data.get("content"), "prompt")
