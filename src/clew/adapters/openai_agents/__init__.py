"""Sessions of the OpenAI Agents SDK in a store: `Runner.run(…, session=ClewSession("chat-1"))`.

`session` has what the SDK calls, `items` how its items become entries, `turns` what can be asked
of them afterwards, `sqlite_import` the way over from the SDK's own files.
"""

from clew.adapters._imports import Imported
from clew.adapters._versions import require

require("openai-agents", extra="openai-agents", at_least="0.24", below="0.25")

from clew.adapters.openai_agents.session import ClewSession, list_sessions
from clew.adapters.openai_agents.sqlite_import import import_sqlite

__all__ = ["ClewSession", "Imported", "import_sqlite", "list_sessions"]
