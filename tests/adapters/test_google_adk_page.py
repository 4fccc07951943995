"""docs/howto/google-adk.md does what it says, with a scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed")

from docs._pages import DOCS, assert_outputs
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google_adk_support import WHO, agent_of, calls, says


async def _make_file_of_adk(path: Path) -> None:
    service = SqliteSessionService(str(path))
    session = await service.create_session(**WHO, session_id="old")
    for text in ("Hello", "Is this the way to Rome?"):
        await service.append_event(session, says(text))


def test_the_page_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asyncio.run(_make_file_of_adk(tmp_path / "adk.db"))
    agent, _ = agent_of(calls("Rome"), "Rome is in Italy.")
    left = assert_outputs(DOCS / "howto" / "google-adk.md", {"__name__": "page", "agent": agent})
    asyncio.run(left["service"].close())
