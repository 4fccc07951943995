"""openai-agents: SQLAlchemySession on PostgreSQL, by the driver that its documentation uses."""

from __future__ import annotations

import asyncio
from typing import Any

from agents.extensions.memory import SQLAlchemySession

from bench.peers.openai_agents import OpenAIAgents


class OpenAIAgentsPostgres(OpenAIAgents):
    label = "openai-agents SQLAlchemySession"

    def __init__(self, dsn: Any) -> None:
        url = str(dsn).replace("postgresql://", "postgresql+asyncpg://", 1).partition("?")[0]
        self._runner = asyncio.Runner()
        self._session: Any = SQLAlchemySession.from_url("conversation", url=url, create_tables=True)

    def close(self) -> None:
        self._runner.run(self._session.engine.dispose())
        self._runner.close()


SETTINGS = (OpenAIAgentsPostgres,)
