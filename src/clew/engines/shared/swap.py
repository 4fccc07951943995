"""A repaired store into the place of the damaged one, so that a crash leaves no half of it.

Several renames cannot be one step. So a note beside the store says first what is about to be
renamed; while it is there no process opens the store, and the next repair finishes what it says.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from clew.core.errors import Unavailable, Unsupported
from clew.core.maintenance import Workshop
from clew.engines.shared.plain_files import remove_tree, remove_tree_quietly

NOTE = "-repair"
_NOTE_BYTES_MAX = 64 * 1024
W = TypeVar("W", bound=Workshop)


@contextmanager
def workshop(path: Path, make: Callable[[Path], W]) -> Iterator[W]:
    """A workshop for one repair. What the system refuses is told with the state that is left."""
    try:
        with closing(make(path)) as shop:
            yield shop
    except OSError as error:
        left = "run clew repair again" if note_of(path).exists() else "it is as it was"
        text = f"{path} cannot be repaired: {error.strerror or error}; {left}"
        raise Unavailable(text, retryable=False) from error


class _Note(Struct):
    damaged: str
    folder: str
    new: str


class Swap:
    """The folder in which a store is repaired, and the way out of it."""

    def __init__(self, path: Path, companions: tuple[str, ...] = ()) -> None:
        # The store itself is renamed, and not a link to it, which others do not come by.
        self._path = path = Path(os.path.realpath(path))
        self._companions = companions
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        if path.with_name(f"{path.name}.damaged-{stamp}").exists():  # the second in one second
            stamp = f"{stamp}-{os.urandom(2).hex()}"
        self.folder = path.with_name(f"{path.name}.repairing-{stamp}")
        self._damaged = path.with_name(f"{path.name}.damaged-{stamp}")
        self._note = note_of(path)

    def begin(self) -> None:
        """Make the folder. What an interrupted repair left behind is removed: mere copies."""
        for left in self._path.parent.glob(f"{_glob(self._path.name)}.repairing-*"):
            remove_tree(str(left))
        self.folder.mkdir(mode=0o700)

    def run(self, new: Path) -> str:
        """Rename the old away and the new into place; where the old one is."""
        # Synced before the first rename: a crash after it must find out how to go on.
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
        if not self._note.exists():
            remove_tree_quietly(str(self.folder))


def note_of(path: Path) -> Path:
    """Beside the store itself, so that all find it, by whatever link they come."""
    return Path(f"{os.path.realpath(path)}{NOTE}")


def refuse_half_done(path: Path) -> None:
    """While the note is there, what is at the path may be the old store, the new, or nothing."""
    if note_of(path).exists():
        raise Unavailable(
            f"a repair of {path} was interrupted; run clew repair to finish it", retryable=False
        )


def _finish(path: Path, companions: tuple[str, ...]) -> str | None:
    file = note_of(path)
    try:
        # A link would lead to a note elsewhere, and a pipe would make us wait for ever.
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    with open(descriptor, "rb") as opened:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, f"{file} must be a file, and no link, folder or pipe")
        data = opened.read(_NOTE_BYTES_MAX)
    try:
        note = msgspec.json.decode(data, type=_Note)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        file.unlink()  # it was not finished, so nothing was renamed yet
        return None
    if not _is_ours(path, note):
        raise Unsupported(
            f"{file} names files that no repair of {path.name} makes; nothing was renamed. It may "
            "have come with a store from others: delete it"
        )
    new = path.with_name(note.folder) / note.new
    damaged = path.with_name(note.damaged)
    if new.exists():  # else the last rename was done, and only the note is left
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


def _is_ours(path: Path, note: _Note) -> bool:
    """Whether a note names only what a repair of this very store makes, right beside it.

    The note may have come with the store, from others. Believed as it is, it could bring any file
    of the user into the store's place.
    """
    stamp = r"\d{8}T\d{6}Z(-[0-9a-f]{4})?"
    name = re.escape(path.name)
    named = (
        re.fullmatch(rf"{name}\.repairing-{stamp}", note.folder)
        and re.fullmatch(rf"{name}\.damaged-{stamp}", note.damaged)
        and re.fullmatch(r"repaired(\.db)?", note.new)
    )
    if not named:
        return False
    folder = path.with_name(note.folder)
    return not folder.is_symlink() and not (folder / note.new).is_symlink()


def sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _glob(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
