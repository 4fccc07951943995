"""The messages of a path, for a framework that has to see them one by one in its own format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from clew.context.projection import project
from clew.context.window import MESSAGE_KINDS
from clew.core.model import Entry
from clew.thread import Thread


class Said(Struct, frozen=True, gc=False):
    """A message in the framework's format. `entry` is None for what others wrote.

    Then `after` is the last of the entries that it may have been made of.
    """

    body: Any
    entry: Entry | None
    after: Entry


def history(
    path: Sequence[Entry], format: str, is_own: Callable[[Entry], bool], *, system: bool = True
) -> list[Said]:
    """The messages of a path. Own ones are as they were written, runs of others are projected.

    `system=False` leaves the system's words of others out, where a framework has no message for it.
    """
    found: list[Said] = []
    foreign: list[Entry] = []

    def convert() -> None:
        if foreign:
            # To be shown, not sent: what is open at the end may go on in the entries behind it.
            made = project(foreign, format, purpose="display", system=system)
            found.extend(Said(body, None, foreign[-1]) for body in made.messages)
            foreign.clear()

    for entry in path:
        if entry.kind not in MESSAGE_KINDS:
            continue
        if is_own(entry):
            convert()
            found.append(Said(entry.body, entry, entry))
        else:
            foreign.append(entry)
    convert()
    return found


def last_message(thread: Thread, leaf: str | None) -> Entry | None:
    """The last message on the path to an entry; what is none is passed over."""
    while leaf is not None:
        path = thread.path(leaf, limit=16)
        for entry in reversed(path):
            if entry.kind in MESSAGE_KINDS:
                return entry
        leaf = path[0].parent
    return None
