"""Which folders this user has worked in with a store, on this machine.

A store may come from a stranger: a bug report, a colleague, a repository that carries one. What
it says about folders, and about rewinds that were interrupted, must not make files change that its
maker chose. So a folder that the caller names is noted outside of the store, in the user's own
state folder; so is each rewind that is begun. Where the caller names no folder, and
where an interrupted rewind would be finished by itself, only what was noted there counts.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from pathlib import Path

from clew.address import make_folders, state_folder
from clew.core.codec import digest, render
from clew.core.engine import Engine

# What was noted by this process: for a user without a home, and for stores that end with it.
_noted: weakref.WeakKeyDictionary[Engine, set[str]] = weakref.WeakKeyDictionary()


def note_root(engine: Engine, root: str) -> None:
    """The caller has named this folder."""
    _note(engine, "root", root)


def knows_root(engine: Engine, root: str) -> bool:
    return _knows(engine, "root", root)


def note_intent(engine: Engine, id: str) -> None:
    """This machine is about to begin a rewind."""
    _note(engine, "intent", id)


def knows_intent(engine: Engine, id: str) -> bool:
    return _knows(engine, "intent", id)


def forget_intent(engine: Engine, id: str) -> None:
    """It has arrived, or never happened."""
    _noted.get(engine, set()).discard(f"intent\0{id}")
    file = _file(engine, "intent", id)
    if file is not None:
        with suppress(OSError):
            os.unlink(file)


def _note(engine: Engine, what: str, name: str) -> None:
    _noted.setdefault(engine, set()).add(f"{what}\0{name}")
    file = _file(engine, what, name)
    if file is None or file.exists():
        return
    # Where that fails, the caller has to name the folder next time, that is all.
    with suppress(OSError):
        make_folders(file.parent)
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)
        try:
            said = render({"store": engine.properties.place, what: name})
            os.write(descriptor, f"{said}\n".encode("utf-8", "surrogateescape"))
        finally:
            os.close(descriptor)


def _knows(engine: Engine, what: str, name: str) -> bool:
    if f"{what}\0{name}" in _noted.get(engine, ()):
        return True
    file = _file(engine, what, name)
    if file is None:
        return False
    try:
        found = os.lstat(file)
    except OSError:
        return False
    return found.st_uid == os.geteuid() if hasattr(os, "geteuid") else True


def _file(engine: Engine, what: str, name: str) -> Path | None:
    """The note of it; None where none can outlast the process."""
    properties = engine.properties
    folder = state_folder() if properties.processes else None
    if folder is None:
        return None
    key = "\0".join([properties.place, properties.namespace, what, name])
    return folder / f"{what}s" / digest(os.fsencode(key))[3:35]
