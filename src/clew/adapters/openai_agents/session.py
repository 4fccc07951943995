"""The session of the Agents SDK on a thread of a store."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

from agents.memory.session import _CompactionSnapshot
from agents.memory.session_settings import (
    SessionSettings,
    coerce_session_settings,
    resolve_session_limit,
)

from clew.adapters._ownership import Owner, Ownership
from clew.adapters._stores import AnyStore, open_store
from clew.adapters.openai_agents import turns
from clew.adapters.openai_agents.items import (
    Tail,
    append_items,
    item_drafts,
    pop_item,
    read_items,
    read_tail,
    replace_all,
    replace_tail,
)
from clew.aio.appends import append
from clew.aio.hop import hop
from clew.core import drafts
from clew.core.codec import new_id
from clew.core.errors import AlreadyExists, InvalidInput
from clew.core.model import Draft, Order, Page, ThreadInfo
from clew.core.names import check_name
from clew.thread import Thread

TAG = "openai-agents"  # of the threads that are sessions, so that an index lists them
MAIN = "main"

T = TypeVar("T")


class ClewSession:
    """A session that lasts, with the methods of SQLiteSession and AdvancedSQLiteSession.

    Each session is the thread of that id: `session.thread`. Give `db_path`, a file of its own or
    ":memory:", or `store`, which is an open store or the address of one. Several sessions, event
    loops, threads and processes may use one store. A branch is a fork of the thread.

    With `ownership="lease"` the first write takes the thread's lease, and `close` gives it back:
    another process that writes the session meanwhile gets LeaseHeld.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self,
        session_id: str,
        db_path: str | os.PathLike[str] = ":memory:",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        *,
        store: AnyStore | None = None,
        branch_id: str = MAIN,
        ownership: Ownership = None,
    ) -> None:
        self.session_id = check_name(session_id, "session_id")
        self.session_settings = coerce_session_settings(session_settings or {})
        if store is None:
            store = ":memory:" if str(db_path) == ":memory:" else db_path
        elif str(db_path) != ":memory:":
            raise InvalidInput("db_path", "give either db_path or store, not both")
        self.store, self._opened_here = open_store(store)
        self._owner = Owner(self.store, ownership)
        self._branch = branch_id
        self._known: set[str] = set()  # threads that were seen to be there
        if branch_id != MAIN:
            self._check_branch(branch_id)

    @property
    def thread(self) -> Thread:
        """The thread of the current branch, with the whole of Clew. NotFound before an item."""
        return self.store.get(self._thread_id(self._branch))

    @property
    def branch_id(self) -> str:
        """The branch that this object reads and writes; "main" at first."""
        return self._branch

    def close(self) -> None:
        """Give leases back, and close the store if it was opened here."""
        self._owner.release()
        if self._opened_here:
            self.store.close()

    # --- the session protocol ---

    async def get_items(self, limit: int | None = None, branch_id: str | None = None) -> list[Any]:
        """The items of a branch (default: the current one), or the newest `limit` of them."""
        count = resolve_session_limit(limit, self.session_settings)
        if count is not None and type(count) is not int:
            raise InvalidInput("limit", f"must be a whole number or None, not {count!r}")
        if count is not None and count < 0:
            count = None  # as SQLite understands it
        return await hop(self._read, branch_id, lambda thread: read_items(thread, count), [])

    async def add_items(self, items: list[Any]) -> None:
        """Append items, all of them or none."""
        id = self._thread_id(self._branch)
        if items and id in self._known and not self._owner.is_asked:
            thread = Thread(self.store, id)
            await append(thread, lambda: item_drafts(thread, items))
        elif items:
            await hop(self._write, lambda thread, fence: append_items(thread, items, fence))

    async def pop_item(self) -> Any:
        """Take the newest item off, and give it. It stays in the journal, on a branch beside."""
        return await hop(self._write_if_there, pop_item)

    async def clear_session(self) -> None:
        """Begin anew, on the main branch. What was said stays in the journal, until it is purged.

        The branches are deleted, as `delete_branch` does it.
        """
        await hop(self._clear)

    def _clear(self) -> None:
        for info in self._branches():
            self._delete_branch(info.id)
        self._branch = MAIN
        now = self.store.clock()
        batch: list[Draft] = [drafts.move(None, now), *drafts.facts({turns.CLEARED: now}, now)]
        self._write_if_there(lambda thread, fence: thread.write(batch, fence=fence))

    # --- compaction: what OpenAIResponsesCompactionSession asks a store for ---

    async def _get_compaction_snapshot(
        self, limit: int, *, prune_prefix: Callable[[Any], bool] | None = None
    ) -> _CompactionSnapshot | None:
        """The newest items, with a way to put others into the place of a suffix of them.

        `prune_prefix` would remove items for good, which is not for a session to do: those that
        it names stay stored, unseen.
        """
        # One more, to see whether there is more.
        read: Callable[[Thread], Tail | None] = lambda t: read_tail(t, limit + 1)  # noqa: E731
        tail = await hop(self._read, None, read, Tail([], None))
        if tail is None:
            return None
        found = tail.items[-limit:]

        async def replace_suffix(start: int, output: list[Any]) -> bool:
            return bool(
                await hop(
                    self._write_if_there,
                    lambda thread, fence: replace_tail(thread, found[start:], output, fence),
                )
            )

        complete = len(tail.items) <= limit
        return _CompactionSnapshot([item for _, item in found], complete, replace_suffix)

    async def _atomic_replace_items(self, items: list[Any]) -> bool:
        await hop(self._write, lambda thread, fence: replace_all(thread, items, fence))
        return True

    # --- branches ---

    async def create_branch_from_turn(
        self, turn_number: int, branch_name: str | None = None
    ) -> str:
        """Branch off before a user message, counted from 1, or from -1 back; and switch to it.

        ValueError if there is no such turn, or the name is used. It costs one row; to count from
        the beginning the turns have to be read, to count from the end only those.
        """
        return await hop(
            self._create_branch, lambda t: turns.before_turn(t, turn_number), branch_name
        )

    async def create_branch_from_content(
        self, search_term: str, branch_name: str | None = None
    ) -> str:
        """Branch off before the first user message with these words in it."""
        found = await self.find_turns_by_content(search_term)
        if not found:
            raise ValueError(f"No user turns found containing '{search_term}'")
        entry = found[0]["entry_id"]
        return await hop(self._create_branch, lambda thread: thread.get(entry).parent, branch_name)

    async def create_branch_from_item(
        self, entry_id: str | None = None, branch_name: str | None = None
    ) -> str:
        """Branch off after any entry of the thread, by default the newest; and switch to it.

        It costs one row, at any length. `session.thread.path()` has the entries with their ids.
        """
        return await hop(self._create_branch, lambda thread: entry_id or thread.leaf, branch_name)

    def _create_branch(self, place: Callable[[Thread], str | None], name: str | None) -> str:
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ValueError("Branch name cannot be empty")
        if name == MAIN:
            raise ValueError(f"Branch ID '{MAIN}' has already been used. Choose a new branch ID.")
        source = self.store.find(self._thread_id(self._branch))
        if source is None:
            raise ValueError(f"Branch '{self._branch}' has no items to branch off from")
        at = place(source)
        made = name or f"branch_{new_id()}"
        try:
            thread = self._fork(source, at, made)
        except AlreadyExists:
            raise ValueError(
                f"Branch ID '{made}' has already been used. Choose a new branch ID."
            ) from None
        self._known.add(thread.id)
        self._branch = made
        return made

    def _fork(self, source: Thread, at: str | None, name: str) -> Thread:
        about: dict[str, Any] = {
            "id": self._thread_id(name),
            "parent": self.session_id,
            "facts": branch_facts(name, [*source.info.tags]),
        }
        # Before the first item there is nothing to share.
        return self.store.create(**about) if at is None else source.fork(at=at, **about)

    async def switch_to_branch(self, branch_id: str) -> None:
        """Let this object read and write another branch. ValueError if there is none."""
        await hop(self._check_branch, branch_id)
        self._branch = branch_id

    async def delete_branch(self, branch_id: str, force: bool = False) -> None:
        """Delete a branch; `store.restore` brings it back. Its name stays taken.

        ValueError for the main branch, for one that is not there and, without `force`, for the
        current one.
        """
        if not isinstance(branch_id, str) or not branch_id.strip():
            raise ValueError("Branch ID cannot be empty")
        if branch_id == MAIN:
            raise ValueError("Cannot delete the 'main' branch")
        if branch_id == self._branch and not force:
            raise ValueError(
                f"Cannot delete current branch '{branch_id}'. Use force=True or switch branches "
                "first"
            )
        thread = await hop(self._check_branch, branch_id)
        if branch_id == self._branch:
            self._branch = MAIN
        await hop(self._delete_branch, thread)

    def _delete_branch(self, thread: str) -> None:
        self._owner.release(thread)  # what is deleted needs no owner, and the lease would stop it
        self.store.delete(thread)
        self._known.discard(thread)

    async def list_branches(self) -> list[dict[str, Any]]:
        """The branches with how much is in each, oldest first. Reads all of them."""
        return await hop(self._list_branches)

    def _list_branches(self) -> list[dict[str, Any]]:
        main = self.store.find(self.session_id)
        if main is None:
            return []
        found = [(MAIN, main.info), *[(info.facts["branch"], info) for info in self._branches()]]
        return [
            {
                "branch_id": name,
                **turns.counts(self.store.get(info.id)),
                "is_current": name == self._branch,
                "created_at": turns.as_text(info.created_at),
            }
            for name, info in found
        ]

    def _branches(self) -> list[ThreadInfo]:
        """The threads of the branches, oldest first. Reads an index."""
        found = self.store.threads(parent=self.session_id, archived=None)
        return [info for info in found if "branch" in info.facts][::-1]

    def _check_branch(self, branch_id: str) -> str:
        """The id of a branch's thread; ValueError if there is no such branch."""
        id = self._thread_id(branch_id)
        found = self.store.find(id)
        if branch_id != MAIN and (found is None or not _is_branch(found.info, self.session_id)):
            raise ValueError(f"Branch '{branch_id}' does not exist")
        return id

    def _thread_id(self, branch_id: str) -> str:
        if branch_id == MAIN:
            return self.session_id
        return branch_thread(self.session_id, branch_id)

    # --- turns, tools, usage ---

    async def get_conversation_turns(self, branch_id: str | None = None) -> list[dict[str, Any]]:
        """The user's messages, each with its number, its words and the id of its entry."""
        return await hop(self._read, branch_id, turns.conversation_turns, [])

    async def find_turns_by_content(
        self, search_term: str, branch_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Those of the turns whose words hold the term, whatever the case of its letters."""
        return await hop(
            self._read, branch_id, lambda thread: turns.find_turns(thread, search_term), []
        )

    async def get_conversation_by_turns(
        self, branch_id: str | None = None
    ) -> dict[int, list[dict[str, str | None]]]:
        """For each turn, the types of its items and the names of their tools."""
        return await hop(self._read, branch_id, turns.by_turns, {})

    async def get_tool_usage(self, branch_id: str | None = None) -> list[tuple[str, int, int]]:
        """How often each tool was called, by turn: (tool, calls, turn)."""
        return await hop(self._read, branch_id, turns.tool_usage, [])

    async def store_run_usage(self, result: Any) -> None:
        """Store what a run has cost, for the current turn. A second call replaces the first."""
        usage = result.context_wrapper.usage
        await hop(
            self._write_if_there, lambda thread, fence: turns.store_usage(thread, usage, fence)
        )

    async def get_session_usage(self, branch_id: str | None = None) -> dict[str, int] | None:
        """The sum over a branch or, by default, over all; None if nothing was stored.

        What was spent on turns that were popped or compacted since counts as well.
        """
        return await hop(self._session_usage, branch_id)

    def _session_usage(self, branch_id: str | None) -> dict[str, int] | None:
        names = [branch_id or MAIN]
        if branch_id is None:
            names += [info.facts["branch"] for info in self._branches()]
        found = [self.store.find(self._check_branch(name)) for name in names]
        return turns.summed([thread for thread in found if thread is not None])

    async def get_turn_usage(
        self, user_turn_number: int | None = None, branch_id: str | None = None
    ) -> list[dict[str, Any]] | dict[str, Any]:
        """What one turn has cost, or each of them."""
        found: list[dict[str, Any]] = await hop(self._read, branch_id, turns.turn_usage, [])
        if user_turn_number is None:
            return found
        for one in found:
            if one.pop("user_turn_number") == user_turn_number:
                return one
        return {}

    # --- the way to the thread ---

    def _find(self, branch_id: str | None = None) -> Thread | None:
        """The thread of a branch, by default of the current one; None if it is not made yet."""
        branch = self._branch if branch_id is None else branch_id
        id = self._thread_id(branch)
        if id not in self._known:
            if branch == MAIN:
                found = self.store.find(id)
                if found is None:
                    return None
                _check_session(found)
            else:
                self._check_branch(branch)
            self._known.add(id)
        return Thread(self.store, id)

    def _read(self, branch_id: str | None, look: Callable[[Thread], T], otherwise: T) -> T:
        """What a look at a branch gives; something else while the session has no thread yet."""
        thread = self._find(branch_id)
        return otherwise if thread is None else look(thread)

    def _write(self, do: Callable[[Thread, int | None], T]) -> T:
        """Write to the current branch; the first write of a session makes its thread."""
        thread = self._find()
        if thread is None:
            thread = self.store.get_or_create(self.session_id, tags=[TAG])
            self._known.add(thread.id)
        return do(thread, self._owner.fence(thread.id))

    def _write_if_there(self, do: Callable[[Thread, int | None], T]) -> T | None:
        """Write to the current branch; nothing while the session has no thread yet."""
        thread = self._find()
        return None if thread is None else do(thread, self._owner.fence(thread.id))


async def list_sessions(
    store: AnyStore, *, order: Order = "updated", limit: int = 50, cursor: str | None = None
) -> Page[ThreadInfo]:
    """One page of the sessions of a store, newest first. Reads an index, never an item."""

    def look() -> Page[ThreadInfo]:
        opened, is_ours = open_store(store)
        try:
            return opened.list(tag=TAG, order=order, limit=limit, cursor=cursor)
        finally:
            if is_ours:
                opened.close()

    return await hop(look)


def branch_thread(session_id: str, branch_id: str) -> str:
    """The id of the thread of a branch, which a person can recognise."""
    return f"{session_id}#{branch_id}"


def branch_facts(branch_id: str, tags: list[str]) -> dict[str, Any]:
    """The facts of the thread of a branch. It is no session, and not tagged as one."""
    return {"branch": branch_id, "tags": [tag for tag in tags if tag != TAG]}


def _check_session(thread: Thread) -> None:
    """InvalidInput for the thread of a branch: its items are those of another session."""
    info = thread.info
    if "branch" in info.facts and info.parent is not None:
        reason = f"{thread.id!r} is branch {info.facts['branch']!r} of session {info.parent!r}"
        raise InvalidInput("session_id", reason)


def _is_branch(info: ThreadInfo, session_id: str) -> bool:
    """Whether a thread is a branch of this very session: an id alone could be made to look so."""
    return info.parent == session_id and "branch" in info.facts
