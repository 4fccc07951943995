"""Google's Agent Development Kit: `ClewSessionService`, its sessions as threads.

    service = ClewSessionService("agents.db")
    runner = Runner(agent=agent, app_name="travel", session_service=service)

A session is a thread, an event an entry of it with the event's own JSON. `service` has the session
service, `events` what becomes of events, `state` the names of threads and the state, which is kept
as facts, `sqlite_file` the import of a file of ADK's SqliteSessionService.
"""

from clew.adapters._imports import Imported
from clew.adapters._versions import require

require("google-adk", extra="google-adk", at_least="2.13", below="3")

from clew.adapters.google_adk.service import ClewSessionService, SessionPage
from clew.adapters.google_adk.sqlite_file import import_sqlite

__all__ = ["ClewSessionService", "Imported", "SessionPage", "import_sqlite"]
