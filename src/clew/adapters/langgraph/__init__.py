"""LangGraph: checkpoints in a store, `graph.compile(checkpointer=ClewSaver("threads.db"))`."""

from clew.adapters._imports import Imported
from clew.adapters._versions import require

require("langgraph-checkpoint", extra="langgraph", at_least="4.3", below="5")

from clew.adapters.langgraph.saver import ClewSaver
from clew.adapters.langgraph.sqlite_file import import_sqlite

__all__ = ["ClewSaver", "Imported", "import_sqlite"]
