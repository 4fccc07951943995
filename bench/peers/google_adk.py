"""google-adk: SqliteSessionService. It ships with a rollback journal and full syncs.

It opens a connection for each operation. For the comparison at equal settings the file is put
into WAL mode, and a connection that does nothing keeps the log alive between operations, which
is in the peer's favour: else every close would bring the log back into the file.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

from google.adk.events import Event
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from bench.messages import Message

_KEY: dict[str, Any] = {"app_name": "bench", "user_id": "user", "session_id": "conversation"}


class GoogleADK:
    label = "google-adk SqliteSessionService"
    length = 1000
    journal_mode = "delete"

    def __init__(self, path: Path) -> None:
        self._keeper = sqlite3.connect(path)
        self._keeper.execute(f"PRAGMA journal_mode={self.journal_mode}")
        self._keeper.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the log
        self._runner = asyncio.Runner()
        self._service = SqliteSessionService(str(path))
        self._session = self._runner.run(self._service.create_session(**_KEY))

    def prepare(self, batch: list[Message]) -> list[Event]:
        return [_event(message) for message in batch]

    def append_all(self, prepared: list[Event]) -> None:
        async def append() -> None:
            for event in prepared:
                await self._service.append_event(self._session, event)

        self._runner.run(append())

    def fill(self, prepared: list[Event]) -> None:
        """Past the service, which opens the file for each event."""
        rows = [
            (event.id, event.timestamp, event.model_dump_json(exclude_none=True))
            for event in prepared
        ]
        sql = "INSERT INTO events VALUES (?1, 'bench', 'user', 'conversation', 'turn', ?2, ?3)"
        with self._keeper:
            self._keeper.executemany(sql, rows)

    def crowd(self, prepared: list[Event]) -> None:
        for number, event in enumerate(prepared):
            name, moment = f"other-{number}", event.timestamp
            body = event.model_dump_json(exclude_none=True)
            self._keeper.execute(
                "INSERT INTO sessions VALUES ('bench', 'user', ?1, '{}', ?2, ?2)", (name, moment)
            )
            self._keeper.execute(
                "INSERT INTO events VALUES (?1, 'bench', 'user', ?2, 'turn', ?3, ?4)",
                (event.id, name, moment, body),
            )
        self._keeper.commit()

    def load(self) -> int:
        session = self._runner.run(self._service.get_session(**_KEY))
        assert session is not None
        return len(session.events)

    def close(self) -> None:
        self._runner.run(self._service.close())
        self._runner.close()
        self._keeper.close()


class GoogleADKInWAL(GoogleADK):
    label = "google-adk in WAL mode"
    journal_mode = "wal"


def _event(message: Message) -> Event:
    author = "user" if message["role"] == "user" else "agent"
    role = "model" if message["role"] == "assistant" else "user"
    content = types.Content(role=role, parts=_parts(message))
    return Event(author=author, invocation_id="turn", content=content)


def _parts(message: Message) -> list[types.Part]:
    if message["role"] == "tool":
        response = {"output": message["content"]}
        return [types.Part.from_function_response(name="tool", response=response)]
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return [
        types.Part.from_text(text=message["content"]),
        *(
            types.Part.from_function_call(name=call["name"], args=json.loads(call["arguments"]))
            for call in calls
        ),
    ]


SETTINGS = (GoogleADK, GoogleADKInWAL)
