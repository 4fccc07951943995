"""The sessions facet: the session document of a coding agent.

    sessions = Sessions(store)
    session = sessions.new(vendor="anthropic", model="claude-sonnet-4")
    sessions.append_message(session, {"role": "user", "content": "Fix the login"})
    sessions.latest(session.workspace)

A document is a view of a thread. Saving adds what the document has and the thread has not; it
never rewrites or drops what is stored. A session that no user has spoken in is not stored at all.
"""

from __future__ import annotations

from clew.facets.sessions.document import Event, Session, SessionInfo, has_user_interaction
from clew.facets.sessions.markdown import export_session_markdown
from clew.facets.sessions.sessions import Sessions
from clew.facets.sessions.workspace import (
    current_workspace_path,
    normalize_workspace_path,
    workspace_identity,
)

__all__ = [
    "Event",
    "Session",
    "SessionInfo",
    "Sessions",
    "current_workspace_path",
    "export_session_markdown",
    "has_user_interaction",
    "normalize_workspace_path",
    "workspace_identity",
]
