"""Things in a store's place that do not belong there: the store refuses, or names them, or lives
with them. It never hangs, never follows a link out of its place, never shows a bare error.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from faults.layers import in_child
from faults.operations import HASHES, append, create, prepare, put_blobs, warm
from faults.points import Outcome
from faults.stores import Image, Kind, load, look, store

from clew.core.errors import ClewError

HANGS_SECONDS = 10
SENTINEL = b"somebody else's file\n"
Sabotage = Callable[[Path], None]


class BadFiles:
    """A closed store, sabotaged in one way after the other."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self._kind, self._folder = kind, folder
        with kind.open(store({}, folder)) as engine:
            prepare(engine)
            warm(engine)
            self._view = look(engine, HASHES)
        self._image: Image = load(folder)

    def run(self, outcome: Outcome, step: int = 1) -> None:
        for name, file, sabotage in islice(self._cases(), 0, None, step):
            store(self._image, self._folder)
            (self._folder / "sentinel").write_bytes(SENTINEL)
            (self._folder / "elsewhere").mkdir()
            path = self._folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            sabotage(path)
            outcome.add(f"{self._kind.name}, {file!r} is {name}", self._try())

    def _cases(self) -> Iterator[tuple[str, str, Sabotage]]:
        files = [name for name, data in self._image.items() if data is not None]
        # The place itself may be a link: that is the user's own business.
        folders = [name for name, data in self._image.items() if data is None and "/" in name]
        for file in (*files, *EXPECTED[self._kind.name]):
            for name, sabotage in INSTEAD.items():
                yield name, file, sabotage
        for folder in folders:
            for name, sabotage in INSTEAD_OF_FOLDER.items():
                yield name, folder, sabotage
        for file in HOSTILE:
            for folder in folders:
                for name, sabotage in BESIDE.items():
                    yield name, f"{folder}/{file}", sabotage

    def _try(self) -> str | None:
        heard = in_child(lambda _: self._use()).decode(errors="replace")
        if heard.endswith("+"):
            return "it hangs"
        if heard:
            return heard
        if (self._folder / "sentinel").read_bytes() != SENTINEL:
            return "it wrote through a link"
        if list((self._folder / "elsewhere").iterdir()):
            return "it put something where a link led"
        return None

    def _use(self) -> None:
        """Everything one does with a store; each step may be refused, in Clew's own words."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(HANGS_SECONDS)
        try:
            with self._kind.open(self._folder) as engine:
                steps: list[Callable[[], object]] = [
                    lambda: list(engine.check()),
                    lambda: look(engine, HASHES),
                    lambda: append(engine),
                    lambda: create(engine),
                    lambda: put_blobs(engine),
                    lambda: engine.purge("p"),
                    lambda: engine.stats(),
                ]
                for step in steps:
                    try:
                        step()
                    except ClewError:
                        pass
        except ClewError:
            pass


# --- what is put there ----------------------------------------------------------------------


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(path.name + ".moved"))
    elif os.path.lexists(path):
        path.unlink()


def _link_outside(path: Path) -> None:
    _remove(path)
    path.symlink_to(_top(path) / "sentinel")


def _link_to_nothing(path: Path) -> None:
    _remove(path)
    path.symlink_to(_top(path) / "elsewhere" / "made")


def _link_to_itself(path: Path) -> None:
    _remove(path)
    path.symlink_to(path)


def _link_to_folder(path: Path) -> None:
    _remove(path)
    path.symlink_to(_top(path) / "elsewhere")


def _fifo(path: Path) -> None:
    _remove(path)
    os.mkfifo(path)


def _folder(path: Path) -> None:
    _remove(path)
    path.mkdir()
    (path / "inside").write_bytes(SENTINEL)


def _file(path: Path) -> None:
    _remove(path)
    path.write_bytes(SENTINEL)


def _empty(path: Path) -> None:
    _remove(path)
    path.touch()


def _top(path: Path) -> Path:
    """The folder that the sentinel lies in."""
    return next(folder for folder in path.parents if (folder / "sentinel").exists())


INSTEAD: dict[str, Sabotage] = {
    "a link to another's file": _link_outside,
    "a link to nothing": _link_to_nothing,
    "a link to itself": _link_to_itself,
    "a link to a folder": _link_to_folder,
    "a FIFO": _fifo,
    "a folder": _folder,
    "another's file": _file,
    "empty": _empty,
}
INSTEAD_OF_FOLDER: dict[str, Sabotage] = {
    "a link to a folder": _link_to_folder,
    "a link to itself": _link_to_itself,
    "a FIFO": _fifo,
    "a file": _file,
    "an empty folder": lambda path: (_remove(path), path.mkdir())[0],
}
BESIDE: dict[str, Sabotage] = {
    "another's file": _file,
    "a link to another's file": _link_outside,
    "a FIFO": _fifo,
    "a folder": _folder,
}

# Files that a closed store does not have, but that an open one looks for.
EXPECTED = {
    "sqlite": ("threads.db-wal", "threads.db-shm", "threads.db-journal", "threads.db-lock"),
    "files": (),
}
HOSTILE = (
    "notes.txt",
    ".hidden.jsonl",
    "UPPER.jsonl",
    "%2e%2e%2fescape.jsonl",
    "new\nline.jsonl",
    "tab\tand\x1b[31mcolour.jsonl",
    "\udcff\udcfe.jsonl",
    "e\u0301.jsonl",
    "con.jsonl",
    "t.jsonl.tmp",
    "t.jsonl~",
    "-rf.jsonl",
    "~.jsonl",
    "%.jsonl",
    "x" * 240 + ".jsonl",
    "..jsonl",
    "t.JSONL",
)
