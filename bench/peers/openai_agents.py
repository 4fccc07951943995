"""openai-agents: SQLiteSession. It ships with a write-ahead log and full syncs, as Clew does."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from bench.messages import Message


class OpenAIAgents:
    label = "openai-agents SQLiteSession"
    length = 1000

    def __init__(self, path: Path) -> None:
        self._path = path
        self._session = SQLiteSession("conversation", path)
        self._runner = asyncio.Runner()

    def prepare(self, batch: list[Message]) -> list[Any]:
        return batch

    def append_all(self, prepared: list[Any]) -> None:
        async def append() -> None:
            for message in prepared:
                await self._session.add_items([message])

        self._runner.run(append())

    def fill(self, prepared: list[Any]) -> None:
        self._runner.run(self._session.add_items(prepared))

    def crowd(self, prepared: list[Any]) -> None:
        rows = [(f"other-{n}", json.dumps(message)) for n, message in enumerate(prepared)]
        with closing(sqlite3.connect(self._path)) as file, file:
            names = [(name,) for name, _ in rows]
            file.executemany("INSERT INTO agent_sessions (session_id) VALUES (?)", names)
            sql = "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)"
            file.executemany(sql, rows)

    def load(self) -> int:
        return len(self._runner.run(self._session.get_items()))

    def close(self) -> None:
        self._session.close()
        self._runner.close()


SETTINGS = (OpenAIAgents,)
