"""What an adapter is given as its store: one that is open, or the address of one."""

from __future__ import annotations

import os
from typing import TypeAlias

from clew.address import open
from clew.aio.handles import AsyncStore
from clew.store import Store

AnyStore: TypeAlias = Store | AsyncStore | str | os.PathLike[str]


def open_store(store: AnyStore) -> tuple[Store, bool]:
    """The store, and whether it was opened here, so that the adapter has to close it."""
    if isinstance(store, Store):
        return store, False
    if isinstance(store, AsyncStore):
        return store.sync, False
    return open(store), True
