"""Transcripts as Claude Code writes them, made up: records with the fields that matter."""

from __future__ import annotations

import uuid
from typing import Any

Record = dict[str, Any]

SESSION = "5f0c9a52-7f43-4c1d-9a3f-0d5b1f6a7c11"


class Transcript:
    """Records that go on from each other, unless they are told on what they hang."""

    def __init__(self, session: str = SESSION, *, sidechain: bool = False) -> None:
        self.session = session
        self.records: list[Record] = []
        self._last: str | None = None
        self._sidechain = sidechain
        self._numbers = uuid.UUID(session).int

    def user(self, content: Any, **fields: Any) -> str:
        return self._add("user", {"role": "user", "content": content}, fields)

    def assistant(self, *blocks: Record, id: str, **fields: Any) -> str:
        """One record of a reply. Claude Code writes one for each block."""
        message = {
            "id": id,
            "type": "message",
            "role": "assistant",
            "model": "claude-test",
            "content": list(blocks),
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }
        return self._add("assistant", message, {"requestId": f"req_{id}", **fields})

    def result(self, call: str, text: str, **fields: Any) -> str:
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return self.user([block], toolUseResult={"stdout": text}, **fields)

    def aside(self, type: str, **fields: Any) -> None:
        """A record without a uuid, which is not in the tree."""
        self.records.append({"type": type, "sessionId": self.session, **fields})

    def linked(self, type: str, **fields: Any) -> str:
        """A record of the tree that is no message."""
        return self._add(type, None, fields)

    def _add(self, type: str, message: Record | None, fields: Record) -> str:
        number = len(self.records)
        name = str(uuid.UUID(int=(self._numbers + number + 1) % 2**128))
        record = {
            "parentUuid": self._last,
            "isSidechain": self._sidechain,
            "cwd": "/home/me/project",
            "sessionId": self.session,
            "version": "2.1.199",
            "gitBranch": "main",
            "type": type,
            **({} if message is None else {"message": message}),
            "uuid": name,
            "timestamp": f"2026-03-01T10:{number // 60 % 60:02}:{number % 60:02}.000Z",
            **fields,
        }
        self.records.append(record)
        self._last = record["uuid"]
        return self._last


def text(words: str) -> Record:
    return {"type": "text", "text": words}


def call(id: str, name: str = "Bash", **arguments: Any) -> Record:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def conversation(session: str = SESSION) -> Transcript:
    """A question, two calls at once, an answer; and what Claude Code writes beside them."""
    made = Transcript(session)
    made.aside("mode", mode="normal")
    made.user("Which files are there?")
    made.aside("file-history-snapshot", messageId="m", snapshot={"trackedFileBackups": {}})
    made.assistant(text("I look."), id="msg_1")
    first = made.assistant(call("toolu_1", command="ls"), id="msg_1")
    second = made.assistant(call("toolu_2", command="pwd"), id="msg_1", parentUuid=first)
    made.result("toolu_1", "a.py", parentUuid=first, sourceToolAssistantUUID=first)
    made.result("toolu_2", "/home/me/project", parentUuid=second, sourceToolAssistantUUID=second)
    made.assistant(text("There is a.py."), id="msg_2")
    made.linked("system", subtype="turn_duration", durationMs=38)
    made.aside("last-prompt", lastPrompt="Which files are there?")
    return made
