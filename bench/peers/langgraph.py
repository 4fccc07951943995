"""langgraph: SqliteSaver. It ships with a write-ahead log and full syncs, as Clew does.

Its unit is a checkpoint of the whole state. A graph writes at least one for each step, so each
message costs one `put`: the least that the interface allows, with plain dicts as messages.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver

from bench.messages import Message


class LangGraph:
    label = "langgraph SqliteSaver"
    length = 300

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._start(SqliteSaver(self._db))

    def _start(self, saver: Any, name: str = "conversation") -> None:
        self._saver = saver
        self._config: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self._messages: list[Message] = []

    def prepare(self, batch: list[Message]) -> list[Message]:
        return batch

    def append_all(self, prepared: list[Message]) -> None:
        for message in prepared:
            self._messages.append(message)
            self._put()

    def fill(self, prepared: list[Message]) -> None:
        self._messages.extend(prepared)
        self._put()

    def _put(self) -> None:
        step = len(self._messages)
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": self._messages}
        checkpoint["channel_versions"] = {"messages": step}
        metadata: Any = {"source": "loop", "step": step}
        self._config = self._saver.put(self._config, checkpoint, metadata, {"messages": step})

    def crowd(self, prepared: list[Message]) -> None:
        self._db.execute("PRAGMA synchronous = OFF")
        for number, message in enumerate(prepared):
            other = LangGraph.__new__(LangGraph)
            other._start(self._saver, f"other-{number}")
            other.fill([message])
        self._db.execute("PRAGMA synchronous = FULL")

    def load(self) -> int:
        found = self._saver.get_tuple({"configurable": {"thread_id": "conversation"}})
        assert found is not None
        return len(found.checkpoint["channel_values"]["messages"])

    def close(self) -> None:
        self._db.close()


SETTINGS = (LangGraph,)
