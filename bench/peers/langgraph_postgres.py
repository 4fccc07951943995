"""langgraph: PostgresSaver, as SqliteSaver beside it: one `put` for each message."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.postgres import PostgresSaver
from psycopg import Connection
from psycopg.rows import dict_row

from bench.peers.langgraph import LangGraph


class LangGraphPostgres(LangGraph):
    label = "langgraph PostgresSaver"

    def __init__(self, dsn: Any) -> None:
        self._db: Any = Connection.connect(
            str(dsn), autocommit=True, prepare_threshold=0, row_factory=dict_row
        )
        saver = PostgresSaver(self._db)
        saver.setup()
        self._start(saver)


SETTINGS = (LangGraphPostgres,)
