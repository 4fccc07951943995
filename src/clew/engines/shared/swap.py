"""A repaired store into the place of the damaged one, so that a crash leaves no half of it.

Several renames cannot be one step. So a note beside the store says first what is about to be
renamed; while it is there nobody opens the store, and the next repair finishes what it says.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from clew.core.errors import Unavailable

NOTE = "-repair"


class _Note(Struct):
    damaged: str
    folder: str
    new: str


class Swap:
    """The folder in which a store is repaired, and the way out of it."""

    def __init__(self, path: Path, stamp: str, companions: tuple[str, ...] = ()) -> None:
        self._path = path
        self._companions = companions
        self.folder = path.with_name(f"{path.name}.repairing-{stamp}")
        self._damaged = path.with_name(f"{path.name}.damaged-{stamp}")
        self._note = note_of(path)

    def begin(self) -> None:
        """Make the folder. What an interrupted repair left behind is removed: mere copies."""
        for left in self._path.parent.glob(f"{_glob(self._path.name)}.repairing-*"):
            shutil.rmtree(left)
        self.folder.mkdir(mode=0o700)

    def run(self, new: Path) -> str:
        """Rename the old away and the new into place; where the old one is."""
        note = _Note(self._damaged.name, self.folder.name, new.name)
        with self._note.open("xb") as file:
            file.write(msgspec.json.encode(note))
            file.flush()
            os.fsync(file.fileno())
        sync(self._path.parent)
        self.finish()
        return str(self._damaged)

    def finish(self) -> str | None:
        """Do what the note says, as far as it is not done; where the old store is now."""
        return _finish(self._path, self._companions)

    def keep(self) -> str:
        """Leave the folder where it is, under a name that the next repair does not remove."""
        kept = self.folder.with_name(self.folder.name.replace(".repairing-", ".repaired-"))
        self.folder.rename(kept)
        return str(kept)

    def close(self) -> None:
        """Remove the folder, unless the note says that what is in it is still needed."""
        if self._note.exists():
            return
        shutil.rmtree(self.folder, ignore_errors=True)


def note_of(path: Path) -> Path:
    return Path(f"{path}{NOTE}")


def refuse_half_done(path: Path) -> None:
    """While the note is there, what is at the path may be the old store, the new, or nothing."""
    if note_of(path).exists():
        raise Unavailable(
            f"a repair of {path} was interrupted; run clew repair to finish it", retryable=False
        )


def _finish(path: Path, companions: tuple[str, ...]) -> str | None:
    file = note_of(path)
    if not file.exists():
        return None
    try:
        note = msgspec.json.decode(file.read_bytes(), type=_Note)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        file.unlink()  # it was not finished, so nothing was renamed yet
        return None
    new = path.with_name(note.folder) / note.new
    damaged = path.with_name(note.damaged)
    if new.exists():
        for end in (*companions, ""):
            old = path.with_name(path.name + end)
            if old.exists() and not damaged.with_name(damaged.name + end).exists():
                old.rename(damaged.with_name(damaged.name + end))
        sync(path.parent)
        new.rename(path)
    sync(path.parent)
    file.unlink()
    sync(path.parent)
    return str(damaged)


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _glob(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
