"""Strands: a session repository, for `RepositorySessionManager`.

A session is the thread of the same id, and its first agent's messages are the thread's own. Every
further agent has a thread `session/agent`, whose parent is the session's. A message's number is
the id of its entry, so that two processes that go on with one session at the same time cannot
both write the next one. What an agent is besides its messages is a fact of its thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew.adapters._versions import require

require("strands-agents", extra="strands", at_least="1.62", below="2")

from strands.agent.conversation_manager import (
    ConversationManager,
    SlidingWindowConversationManager,
)
from strands.multiagent.base import MultiAgentBase
from strands.session.session_repository import SessionRepository
from strands.types.content import Message
from strands.types.exceptions import SessionException
from strands.types.session import (
    Session,
    SessionAgent,
    SessionMessage,
    SessionType,
    decode_bytes_values,
    encode_bytes_values,
)

from clew.adapters._histories import history
from clew.adapters._ownership import Owner, Ownership
from clew.adapters._stores import AnyStore, open_store
from clew.context.bodies import read_edit
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.codec import encode
from clew.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound, TooLarge
from clew.core.model import Entry, EntryDraft, FactDraft
from clew.messages.converse import NAME as FORMAT
from clew.messages.incoming import kind_for, message_draft
from clew.thread import Thread

__all__ = ["ClewSessionRepository", "message_history"]

TAG = "strands"
SESSION = "strands.session"  # facts: the session,
MAIN = "strands.main"  # the agent whose messages are the session's own,
AGENT = "strands.agent"  # and what an agent is besides its messages
MULTI_AGENT = "strands.multi_agent."  # and a fact for each group of agents
META = "strands"  # what is noted with a message: its number and times


def message_history(thread: Thread, **options: Any) -> list[Message]:
    """The context of any thread, for `Agent(messages=…)`."""
    found: list[Message] = decode_bytes_values(thread.context(FORMAT, **options).messages)
    return found


class ClewSessionRepository(SessionRepository):
    """Sessions as threads of a store, or of the store at an address.

    With `ownership="lease"` a session that one process writes is refused to others until it is
    closed, or its process has stopped for longer than `ttl_seconds`. A thread that was not written
    here is read as a session whose agent uses `conversation_manager`, by default the one that
    agents have by default.
    """

    def __init__(
        self,
        store: AnyStore,
        *,
        ownership: Ownership = None,
        ttl_seconds: float = 30.0,
        conversation_manager: ConversationManager | None = None,
    ) -> None:
        self.store, self._opened_here = open_store(store)
        self._owner = Owner(self.store, ownership, ttl_seconds=ttl_seconds)
        manager = conversation_manager or SlidingWindowConversationManager()
        self._manager_state = manager.get_state()

    def close(self) -> None:
        """Give leases back, and close the store if it was given as an address."""
        self._owner.release()
        if self._opened_here:
            self.store.close()

    # --- sessions ---

    def create_session(self, session: Session, **kwargs: Any) -> Session:
        """SessionException if it is there already."""
        id = _checked(session.session_id, "session")
        facts = {
            "adapter": "strands",
            "tags": [TAG],
            SESSION: encode_bytes_values(session.to_dict()),
        }
        try:
            self.store.create(id, facts=facts)
        except AlreadyExists as error:
            raise SessionException(f"Session {id} already exists: {error}") from error
        return session

    def read_session(self, session_id: str, **kwargs: Any) -> Session | None:
        thread = self._find(_checked(session_id, "session"))
        if thread is None:
            return None
        info = thread.info
        if SESSION in info.facts:
            return Session.from_dict(decode_bytes_values(info.facts[SESSION]))
        return Session(
            session_id=session_id,
            session_type=SessionType.AGENT,
            created_at=info.created_at.isoformat(),
            updated_at=info.updated_at.isoformat(),
        )

    def delete_session(self, session_id: str, **kwargs: Any) -> None:
        """Remove a session and its agents for good. SessionException if there is none."""
        if self._find(_checked(session_id, "session")) is None:
            raise SessionException(f"Session {session_id} does not exist")
        agents = [info.id for info in self.store.threads(parent=session_id, archived=None)]
        for thread in [*agents, session_id]:
            self._owner.release(thread)
            self.store.purge(thread)

    # --- agents ---

    def create_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """SessionException if the session is not there."""
        session = self._session(session_id)
        agent_id = _checked(session_agent.agent_id, "agent")
        if not self._takes_session(session, agent_id):
            facts = {"adapter": "strands", "tags": [TAG]}
            self.store.get_or_create(
                f"{session_id}/{agent_id}", title=agent_id, parent=session_id, facts=facts
            )
        self._known_agent(session_id, agent_id).set_facts({AGENT: session_agent.to_dict()})

    def _takes_session(self, session: Thread, agent_id: str) -> bool:
        """Whether the messages of an agent are the session's own; the first one's are."""
        main = session.facts.get(MAIN)
        if main is None:
            # Facts are not compared and set, but the ids of records are: one of them is first.
            claim = FactDraft(id=MAIN, key=MAIN, data=encode(agent_id), time_us=self.store.clock())
            try:
                session.write([claim])
                return True
            except Conflict:
                main = session.facts.get(MAIN)
        return bool(main == agent_id)

    def read_agent(self, session_id: str, agent_id: str, **kwargs: Any) -> SessionAgent | None:
        thread = self._agent(session_id, _checked(agent_id, "agent"))
        if thread is None:
            return None
        info = thread.info
        kept = info.facts.get(AGENT)
        if kept is not None:
            return SessionAgent.from_dict(kept)
        if MAIN in info.facts or info.leaf is None:
            return None  # it is being made, or there is nothing to go on from
        return SessionAgent(
            agent_id=agent_id,
            state={},
            conversation_manager_state=self._manager_state,
            created_at=info.created_at.isoformat(),
        )

    def update_agent(self, session_id: str, session_agent: SessionAgent, **kwargs: Any) -> None:
        """SessionException if the agent is not there."""
        agent_id = session_agent.agent_id
        previous = self.read_agent(session_id, agent_id)
        if previous is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        session_agent.created_at = previous.created_at
        thread = self._known_agent(session_id, agent_id)
        if MAIN not in thread.facts and thread.id == session_id:
            self._takes_session(thread, agent_id)  # a thread of others becomes a session
        thread.set_facts({AGENT: session_agent.to_dict()})

    # --- messages ---

    def create_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """SessionException if another message has its number, or the agent is not there."""
        thread = self._known_agent(session_id, agent_id)
        number = _number(session_message.message_id)
        batch = [
            message_draft(
                encode_bytes_values(session_message.message),
                FORMAT,
                id=str(number),
                meta={
                    META: {
                        "message_id": number,
                        "created_at": session_message.created_at,
                        "updated_at": session_message.updated_at,
                    }
                },
                clock=self.store.clock,
            )
        ]
        if session_message.redact_message is not None:
            batch.append(self._edit(session_message))
        try:
            thread.append(batch, fence=self._owner.fence(thread.id))
        except Conflict as error:
            raise SessionException(
                f"Message {number} of agent {agent_id} in session {session_id} is another one: "
                "another writer has gone on with the session. Restore the agent and try again."
            ) from error

    def read_message(
        self, session_id: str, agent_id: str, message_id: int, **kwargs: Any
    ) -> SessionMessage | None:
        number = _number(message_id)
        thread = self._agent(session_id, _checked(agent_id, "agent"))
        if thread is None:
            return None
        found = [one for one in self._tail(thread, number) if one.message_id == number]
        return found[0] if found else None

    def update_message(
        self, session_id: str, agent_id: str, session_message: SessionMessage, **kwargs: Any
    ) -> None:
        """Let another content stand in place of a message's. The first one stays in the journal.

        SessionException if the message is not there.
        """
        thread = self._known_agent(session_id, agent_id)
        number = _number(session_message.message_id)
        try:
            entry = thread.get(str(number))
        except NotFound:
            raise SessionException(f"Message {number} does not exist") from None
        session_message.created_at = _noted(entry).get("created_at", entry.time.isoformat())
        thread.append([self._edit(session_message)], fence=self._owner.fence(thread.id))

    def _edit(self, session_message: SessionMessage) -> EntryDraft:
        """What lets every context, of whatever format, have the other content."""
        message = encode_bytes_values(session_message.to_message())
        kind_for(message, FORMAT)  # for its checks: an edit is not looked into
        target = str(session_message.message_id)
        noted = {
            "message_id": session_message.message_id,
            "updated_at": session_message.updated_at,
            "redacted": session_message.redact_message is not None,
        }
        return drafts.draft(
            "context_edit",
            {"edit": "replace", "target": target, "message": message, "format": FORMAT},
            meta={META: noted},
            clock=self.store.clock,
        )

    def list_messages(
        self,
        session_id: str,
        agent_id: str,
        limit: int | None = None,
        offset: int = 0,
        **kwargs: Any,
    ) -> list[SessionMessage]:
        """Messages from the number `offset` on. What lies before it is not read.

        SessionException if the agent is not there.
        """
        thread = self._known_agent(session_id, agent_id)
        found = [one for one in self._tail(thread, offset) if one.message_id >= offset]
        return found if limit is None else found[: max(limit, 0)]

    def _tail(self, thread: Thread, first: int) -> list[SessionMessage]:
        """The messages of a thread from a number on, and perhaps some before it."""
        size = 32
        while True:
            path = thread.path(limit=size)
            said = [entry for entry in path if entry.kind in MESSAGE_KINDS]
            numbers: list[Any] = [_noted(entry).get("message_id") for entry in said]
            # Numbers are counted where others have written as well; that takes the whole.
            ours = bool(numbers) and all(type(number) is int for number in numbers)
            if not path or path[0].parent is None or (ours and numbers[0] <= first):
                return _session_messages(path)
            size = max(4 * size, numbers[-1] - first + 16 if ours else 0)

    # --- groups of agents ---

    def create_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        state = encode_bytes_values(multi_agent.serialize_state())
        key = f"{MULTI_AGENT}{_checked(multi_agent.id, 'agent')}"
        self._session(session_id).set_facts({key: state})

    def read_multi_agent(
        self, session_id: str, multi_agent_id: str, **kwargs: Any
    ) -> dict[str, Any] | None:
        thread = self._find(_checked(session_id, "session"))
        key = f"{MULTI_AGENT}{_checked(multi_agent_id, 'agent')}"
        state = None if thread is None else thread.facts.get(key)
        return None if state is None else decode_bytes_values(state)

    def update_multi_agent(
        self, session_id: str, multi_agent: MultiAgentBase, **kwargs: Any
    ) -> None:
        """SessionException if the group is not there."""
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            raise SessionException(
                f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            )
        self.create_multi_agent(session_id, multi_agent)

    # --- threads ---

    def _find(self, id: str) -> Thread | None:
        try:
            return self.store.find(id)
        except (InvalidInput, TooLarge):
            return None  # what is no id of a thread is the name of none

    def _session(self, session_id: str) -> Thread:
        found = self._find(_checked(session_id, "session"))
        if found is None:
            raise SessionException(f"Session {session_id} does not exist")
        return found

    def _agent(self, session_id: str, agent_id: str) -> Thread | None:
        session = self._find(_checked(session_id, "session"))
        if session is None:
            return None
        # An agent that asks for a thread of others goes on with it.
        if session.facts.get(MAIN, agent_id) == agent_id:
            return session
        found = self._find(f"{session_id}/{agent_id}")
        # A thread that only happens to have this name is no agent of the session.
        return found if found is not None and found.info.parent == session_id else None

    def _known_agent(self, session_id: str, agent_id: str) -> Thread:
        thread = self._agent(session_id, _checked(agent_id, "agent"))
        if thread is None:
            raise SessionException(f"Agent {agent_id} in session {session_id} does not exist")
        return thread


def _checked(id: Any, what: str) -> str:
    """An id without a slash, as in Strands' own stores: `session/agent` has one meaning only."""
    if not isinstance(id, str) or not id or "/" in id:
        raise ValueError(f"{what}_id={id!r} | id must be text without path separators")
    return id


def _number(message_id: Any) -> int:
    if type(message_id) is not int or message_id < 0:
        raise ValueError(f"message_id=<{message_id}> | message id must be an integer")
    return message_id


def _noted(entry: Entry) -> dict[str, Any]:
    """What was noted with an entry here; nothing with one that others wrote."""
    noted = entry.meta.get(META)
    return noted if isinstance(noted, dict) else {}


def _session_messages(path: Sequence[Entry]) -> list[SessionMessage]:
    """The messages of a path. Those of others are counted, the others have their numbers."""
    edits = {read_edit(entry).target: entry for entry in path if entry.kind == "context_edit"}
    found: list[SessionMessage] = []
    for one in history(path, FORMAT, _is_numbered, system=False):
        free = found[-1].message_id + 1 if found else 0
        if one.entry is None:
            time = one.after.time.isoformat()
            message = decode_bytes_values(one.body)
            found.append(SessionMessage(message, free, created_at=time, updated_at=time))
        else:
            number = max(free, _noted(one.entry)["message_id"])
            found.append(_session_message(one.entry, number, edits.get(one.entry.id)))
    return found


def _is_numbered(entry: Entry) -> bool:
    return type(_noted(entry).get("message_id")) is int


def _session_message(entry: Entry, number: int, edit: Entry | None) -> SessionMessage:
    noted, time = _noted(entry), entry.time.isoformat()
    made = SessionMessage(
        decode_bytes_values(entry.body),
        number,
        created_at=noted.get("created_at", time),
        updated_at=noted.get("updated_at", time),
    )
    if edit is not None:
        noted = _noted(edit)
        message = decode_bytes_values(read_edit(edit).message)
        made.updated_at = noted.get("updated_at", edit.time.isoformat())
        if noted.get("redacted"):
            made.redact_message = message
        else:
            made.message = message
    return made
