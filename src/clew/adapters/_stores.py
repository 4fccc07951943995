"""What an adapter is given: a store that is open, or the address of one; a thread."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias

from clew.address import open
from clew.core.errors import InvalidInput
from clew.store import Store
from clew.thread import Thread

if TYPE_CHECKING:  # it needs anyio, which is there if a framework of tasks is
    from clew.aio.handles import AsyncStore

AnyStore: TypeAlias = "Store | AsyncStore | str | os.PathLike[str]"


def open_store(store: AnyStore) -> tuple[Store, bool]:
    """The store, and whether it was opened here, so that the adapter has to close it.

    None is no address here. It comes from a setting that is not there, and sessions of a service
    must not end up in the store that a user has for himself.
    """
    if isinstance(store, str | os.PathLike):
        return open(store), True
    return sync_store(store), False


def sync_store(store: Any) -> Store:
    """The store behind an open one, synchronous or not."""
    found = getattr(store, "sync", store)
    if not isinstance(found, Store):
        raise InvalidInput("store", f"must be an open store or the address of one, not {store!r}")
    return found


def check_thread(thread: Any) -> Thread:
    """A thread, for what takes the handle and not the id."""
    if not isinstance(thread, Thread):
        named = isinstance(thread, str)
        hint = f"; store.get({thread!r}) gives the one of that id" if named else ""
        raise InvalidInput("thread", f"must be a thread, not {thread!r}{hint}")
    return thread
