"""openai-agents: SQLiteSession. It ships with a write-ahead log and full syncs, as Clew does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import SQLiteSession

from bench.messages import Message


class OpenAIAgents:
    label = "openai-agents SQLiteSession"
    length = 1000

    def __init__(self, path: Path) -> None:
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

    def load(self) -> int:
        return len(self._runner.run(self._session.get_items()))

    def close(self) -> None:
        self._session.close()
        self._runner.close()


SETTINGS = (OpenAIAgents,)
