"""Workflow engines: a claim check in place of the messages that their steps would carry.

Engines such as Temporal and DBOS write down what goes into each step and what comes out of it, so
that they can go on after a crash. Messages are too large for that: each call of a model gets all of
them again. A claim names them instead: a thread of a store, and the entry that the step stands on.

    @DBOS.step()
    def ask(claim: Claim) -> Claim:
        step = f"{DBOS.workflow_id}/{DBOS.step_id}"
        done = claim.after(store, step)
        if done is not None:
            return done
        reply = client.messages.create(messages=claim.context(store, "anthropic").messages, …)
        return claim.append_response(store, reply, step=step)

This needs no engine, and knows none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, Unpack

from clew.adapters._stores import check_thread, sync_store
from clew.context.request import Context
from clew.core.codec import digest, encode
from clew.core.drafts import check_place
from clew.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from clew.core.model import Entry
from clew.core.names import check_name
from clew.exchange import Outputs
from clew.messages.incoming import message_draft, message_list
from clew.store import Store
from clew.thread import Thread

if TYPE_CHECKING:
    from clew.aio.handles import AsyncStore
    from clew.core.options import ContextOptions, EntryFields

__all__ = ["Claim"]

AnyHandle: TypeAlias = "Store | AsyncStore"

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """A place in a thread: all that was said up to an entry. None is before the first one.

    It is small, JSON, and means the same for ever: the entries up to a leaf never change, and what
    is written to the thread later is not in it. `step` is an id that the workflow engine gives a
    step and that all tries of it share. Each method that writes does so once for a claim and a
    step, whichever try comes first, and gives all of them the same claim.
    """

    thread: str
    leaf: str | None = None

    def __post_init__(self) -> None:
        check_name(self.thread, "thread")
        check_place(self.leaf, "leaf")

    @classmethod
    def of(cls, thread: Thread) -> Claim:
        """The place where a thread stands now."""
        return cls(check_thread(thread).id, thread.leaf)

    def to_json(self) -> dict[str, str | None]:
        """An object of two texts, for engines and languages that do not know the class."""
        return {"thread": self.thread, "leaf": self.leaf}

    @classmethod
    def from_json(cls, value: Any) -> Claim:
        """The claim that `to_json` gave. InvalidInput for anything else."""
        if not isinstance(value, Mapping) or set(value) != {"thread", "leaf"}:
            raise InvalidInput("claim", f"must be an object with thread and leaf, not {value!r}")
        return cls(value["thread"], value["leaf"])

    # --- reading ---

    def context(
        self, store: Store, format: str | None = None, **options: Unpack[ContextOptions]
    ) -> Context:
        """The messages for a provider, as of this place: see `Thread.context`."""
        options["leaf"] = self.leaf
        return store.get(self.thread).context(format, **options)

    def after(self, store: Store, step: str) -> Claim | None:
        """Where a step led that an earlier try of it has written; None if none has.

        To be asked before the model is: its reply to an earlier try is paid for and stored.
        """
        thread, id = store.get(self.thread), self._id(step)
        with suppress(NotFound):
            return Claim(self.thread, f"{id}.{thread.get(f'{id}.1').meta['entries']}")
        with suppress(NotFound):
            return Claim(self.thread, thread.get(f"{id}.usage").id)
        return None

    # --- writing ---

    def append(
        self, store: Store, messages: Iterable[Any], *, step: str, format: str | None = None
    ) -> Claim:
        """Append messages, as one atomic step; the place after them.

        Conflict if the thread does not stand where the claim says: another workflow, or a person,
        has gone on from there. Then `fork`, or read what was said and decide.
        """
        given = message_list(messages)

        def write(thread: Thread) -> Entry:
            drafts = [
                message_draft(message, format, id=f"{id}.{number}", meta=meta, clock=store.clock)
                for number, message in enumerate(given, 1)
            ]
            return thread.append(drafts, expect=self.leaf)[-1]

        id, meta = self._id(step), {"step": step, "entries": len(given)}
        return self._once(store, step, write) if given else self

    def append_response(
        self, store: Store, response: Any, *, step: str, format: str | None = None
    ) -> Claim:
        """Append a whole reply of a model, with its usage: see `Thread.append_response`."""
        fields: EntryFields = {"id": self._id(step), "meta": {"step": step}, "parent": self.leaf}

        def write(thread: Thread) -> Entry:
            return thread.append_response(response, format=format, expect=self.leaf, **fields).usage

        return self._once(store, step, write)

    def append_results(self, store: Store, outputs: Outputs, *, step: str) -> Claim:
        """Append what tools gave, by the calls' ids: see `Thread.append_results`."""
        given = list(outputs.items() if isinstance(outputs, Mapping) else outputs)
        meta = {"step": step, "entries": len(given)}
        fields: EntryFields = {"id": self._id(step), "meta": meta, "parent": self.leaf}

        def write(thread: Thread) -> Entry:
            return thread.append_results(given, expect=self.leaf, **fields)[-1]

        return self._once(store, step, write) if given else self

    def fork(
        self,
        store: Store,
        *,
        step: str,
        title: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Claim:
        """The same place in a thread of its own, which shares all up to it: see `Store.fork`.

        For a workflow that goes another way from here than one before it.
        """
        id = f"{self.thread}#{self._id(step)}"
        if self.leaf is None:
            raise InvalidInput("leaf", "there is nothing to fork before the first entry")
        with suppress(AlreadyExists):  # by an earlier try
            store.fork(self.thread, id=id, at=self.leaf, title=title, facts=facts)
        return Claim(id, self.leaf)

    def _id(self, step: str) -> str:
        """What the ids of a step's entries begin with: the same for each try, and for no other."""
        check_name(step, "step")
        return f"{step}@{digest(encode([self.thread, self.leaf, step]))[3:19]}"

    def _once(self, store: Store, step: str, write: Callable[[Thread], Entry]) -> Claim:
        done = self.after(store, step)
        if done is None:
            try:
                return Claim(self.thread, write(store.get(self.thread)).id)
            except Conflict:
                # Perhaps of another try of this very step, which the engine had given up.
                done = self.after(store, step)
                if done is None:
                    raise
        return done

    # --- the same in a task, under asyncio or trio ---

    async def acontext(
        self, store: AnyHandle, format: str | None = None, **options: Unpack[ContextOptions]
    ) -> Context:
        """See `context`."""
        return await _hop(self.context, sync_store(store), format, **options)

    async def aafter(self, store: AnyHandle, step: str) -> Claim | None:
        """See `after`."""
        return await _hop(self.after, sync_store(store), step)

    async def aappend(
        self, store: AnyHandle, messages: Iterable[Any], *, step: str, format: str | None = None
    ) -> Claim:
        """See `append`."""
        return await _hop(self.append, sync_store(store), messages, step=step, format=format)

    async def aappend_response(
        self, store: AnyHandle, response: Any, *, step: str, format: str | None = None
    ) -> Claim:
        """See `append_response`."""
        given = sync_store(store)
        return await _hop(self.append_response, given, response, step=step, format=format)

    async def aappend_results(self, store: AnyHandle, outputs: Outputs, *, step: str) -> Claim:
        """See `append_results`."""
        return await _hop(self.append_results, sync_store(store), outputs, step=step)

    async def afork(
        self,
        store: AnyHandle,
        *,
        step: str,
        title: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> Claim:
        """See `fork`."""
        return await _hop(self.fork, sync_store(store), step=step, title=title, facts=facts)


async def _hop(call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """In a worker thread. Only this needs anyio, so steps that are not asynchronous do without."""
    try:
        from clew.aio.hop import hop
    except ModuleNotFoundError as error:
        raise ImportError("asynchronous steps need anyio: pip install 'clew[async]'") from error
    return await hop(call, *args, **options)
