"""Stores and threads as the command line names them."""

from __future__ import annotations

import clew
from clew.cli._exits import UsageError
from clew.errors import InvalidInput, NotFound
from clew.store import Store

SHORT_ID = 12  # ten characters of time, two of chance


def open_existing(address: str | None) -> Store:
    """The store at an address. One that is not there is an error: looking must not make it."""
    try:
        return clew.open(address, create=False)
    except NotFound as error:
        hint = "" if address is not None else " yet (clew demo makes one elsewhere, to look at)"
        raise UsageError(f"there is no store at {error.id}{hint}") from None


def short_id(store: Store, id: str) -> str:
    """The beginning of a thread's id that `store.resolve` finds it by; all of a purged one's."""
    size = SHORT_ID
    while size < len(id):
        try:
            if store.resolve(id[:size], deleted=True).id == id:
                return id[:size]
            size += 1
        except InvalidInput as error:
            others = [other for other in error.fields["candidates"] if other != id]
            size = 1 + max(_common(id, other) for other in others)
        except NotFound:
            return id
    return id


def _common(left: str, right: str) -> int:
    """How many characters two ids begin with in common."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(left), len(right)))
