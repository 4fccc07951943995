"""The durable engines under the harness, and what can be read of a store through the waist."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from faults.disks import LayeredDisk
from faults.layers import DEATHS, ERRORS, LESS, Layer
from faults.vfs import LayeredVFS, folders_through, quiet
from msgspec import structs

from clew.core.engine import Engine
from clew.core.errors import ClewError, NotFound
from clew.core.lease_rules import Instant
from clew.core.model import Entry, Fact, Inspect, Lease, Record, Segment, ThreadInfo, ThreadQuery
from clew.engines.files import FilesEngine
from clew.engines.sqlite import SQLiteEngine, connections

WALL_US = 4_000_000_000_000_000  # later than the time that files get from the system


def clock(boots: int = 1) -> Instant:
    """A clock that stands still, so that two runs of one operation end in the same state."""
    return Instant(1_000_000_000, f"boot {boots}", WALL_US)


# --- engines --------------------------------------------------------------------------------


def _options(durability: str, boots: int) -> dict[str, Any]:
    return {"durability": durability, "clock": partial(clock, boots), "busy_seconds": 5.0}


def caches_in(folder: Path) -> AbstractContextManager[object]:
    """What a user's cache folder has of snapshots lies with the store, where images have it."""
    return mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder / "caches"))


class SQLiteKind:
    name = "sqlite"
    faults = tuple(fault for fault in (*ERRORS, *DEATHS) if fault != LESS)
    never_kept = ("threads.db-shm", "threads.db-lock")
    caches = ("caches",)

    @contextmanager
    def open(
        self, folder: Path, layer: Layer | None = None, durability: str = "full", boots: int = 1
    ) -> Iterator[Engine]:
        """The engine of a store in a folder; a layer sees everything, closing too."""
        options = _options(durability, boots)
        with ExitStack() as stack:
            if layer is not None:
                vfs = LayeredVFS(layer)
                stack.callback(vfs.unregister)
                stack.enter_context(folders_through(layer))
                stack.enter_context(quiet())
                options["vfs"] = vfs.name
            engine = SQLiteEngine(folder / "threads.db", **options)
            stack.callback(engine.close)
            stack.enter_context(caches_in(folder))
            yield engine

    def address(self, folder: Path) -> str:
        return str(folder / "threads.db")

    def often(self) -> AbstractContextManager[object]:
        """What the engine does only now and then, it does often here: the checkpoint."""
        return mock.patch.object(connections, "CHECKPOINT_PAGES", 40)


class FilesKind:
    name = "files"
    faults = (*ERRORS, *DEATHS)
    never_kept = ()
    caches = ("caches", "threads/index")

    @contextmanager
    def open(
        self, folder: Path, layer: Layer | None = None, durability: str = "full", boots: int = 1
    ) -> Iterator[Engine]:
        options = _options(durability, boots)
        if layer is not None:
            options["disk"] = LayeredDisk(layer)
        engine = FilesEngine(folder / "threads", **options)
        try:
            with caches_in(folder):
                yield engine
        finally:
            engine.close()

    def address(self, folder: Path) -> str:
        return f"files:{folder / 'threads'}"

    def often(self) -> AbstractContextManager[object]:
        return nullcontext()


Kind = SQLiteKind | FilesKind
KINDS: dict[str, Kind] = {"sqlite": SQLiteKind(), "files": FilesKind()}


# --- a folder as data -----------------------------------------------------------------------

Image = dict[str, bytes | None]  # relative path → content; None for a folder


def load(folder: Path) -> Image:
    """Everything in a folder."""
    image: Image = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        image[name] = None if path.is_dir() else path.read_bytes()
    return image


def store(image: Image, folder: Path) -> Path:
    """Make a folder hold exactly an image."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    for name, data in image.items():
        path = folder / name
        if data is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            os.chmod(path, 0o600)
    return folder


def grown(kind: Kind, before: Image, after: Image) -> tuple[str, int]:
    """The file at whose end the last record was written, and where it begins there."""
    for name, data in after.items():
        old = before.get(name)
        if name.startswith(kind.caches):
            continue
        if data is not None and old and len(data) > len(old) and data.startswith(old):
            return name, len(old)
    raise AssertionError("no file has grown at its end")


# --- everything that can be read ------------------------------------------------------------


class Disagrees(ClewError):
    """Two ways to ask for the same thing give different answers."""


@dataclass(frozen=True)
class ThreadView:
    info: ThreadInfo
    records: list[Record]
    path: list[Entry]
    segments: list[Segment]
    tips: list[list[Entry]]
    lease: Lease | None


@dataclass(frozen=True)
class View:
    """What a store says when it is asked for everything."""

    threads: dict[str, ThreadView] = field(default_factory=dict)
    listed: list[str] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)

    def without(self, *names: str) -> View:
        threads = {id: view for id, view in self.threads.items() if id not in names}
        return View(threads, [id for id in self.listed if id not in names], self.blobs)

    @property
    def history(self) -> View:
        """Without the blobs: one may be there before the record that it is for."""
        return View(self.threads, self.listed)

    @property
    def unleased(self) -> View:
        """The history as another boot sees it: all leases of the one before are over."""
        threads = {id: replace(view, lease=None) for id, view in self.threads.items()}
        return View(threads, self.listed)

    @property
    def ids(self) -> set[tuple[str, str]]:
        return {(r.thread, r.id) for view in self.threads.values() for r in view.records}


def differences(one: View, two: View) -> str:
    """The first thing that is not the same in two views."""
    if set(one.threads) != set(two.threads):
        return f"threads {set(one.threads) ^ set(two.threads)}"
    for id, view in one.threads.items():
        for name in ("info", "records", "path", "segments", "tips", "lease"):
            left, right = getattr(view, name), getattr(two.threads[id], name)
            if left != right:
                return f"{name} of {id!r}: {left!r:.300} is now {right!r:.300}"
    return "the list by update" if one.listed != two.listed else "blobs"


def look(engine: Engine, hashes: tuple[str, ...] = ()) -> View:
    """Read everything through the waist. Raises what the engine raises."""
    infos = [
        info
        for query in (ThreadQuery(archived=None, limit=1000), ThreadQuery(deleted=True, limit=1000))
        for info in engine.threads(query).items
    ]
    listed = [info.id for info in engine.threads(ThreadQuery(order="updated", limit=1000)).items]
    threads = {info.id: _look_at(engine, info) for info in infos}
    blobs: dict[str, bytes] = {}
    for hash in hashes:
        try:
            blobs[hash] = engine.get_blob(hash)
        except NotFound:
            pass
    return View(threads, listed, blobs)


def _look_at(engine: Engine, info: ThreadInfo) -> ThreadView:
    if engine.thread(info.id) != info:
        raise Disagrees(f"thread {info.id!r} is not what the list says")
    records = engine.read(info.id, limit=100_000)
    for record in records:
        if isinstance(record, Fact):
            record.value  # noqa: B018
    segments = engine.segments(info.id)
    return ThreadView(
        info,
        records,
        engine.path(info.id),
        segments,
        [engine.path(info.id, segment.last) for segment in segments],
        engine.lease(info.id, Inspect()),
    )


# --- answers that are wrong -----------------------------------------------------------------


def wrong_answer(engine: Engine, view: View) -> str | None:
    """The first answer about the journal that is not as it was, and no error either."""
    for id, then in view.threads.items():
        for what, ask, expected in _questions(engine, id, then):
            try:
                found = ask()
            except ClewError:
                continue
            if found != expected:
                return f"{what} of {id!r} is now {found!r:.300}"
    for hash, data in view.blobs.items():
        try:
            if engine.get_blob(hash) != data:
                return f"blob {hash}"
        except ClewError:
            continue
    return None


Question = tuple[str, Callable[[], object], object]


def _questions(engine: Engine, id: str, then: ThreadView) -> Iterator[Question]:
    path, records = then.path, then.records

    def stands() -> object:
        info = engine.thread(id)
        return info.seq, info.leaf

    def feed() -> list[Record]:
        found: list[Record] = []
        while page := engine.read(id, after=len(found), limit=7):
            found += page
        return found

    yield "where it stands", stands, (then.info.seq, then.info.leaf)
    yield "the path", lambda: _content(engine.path(id)), _content(path)
    yield "the newest", lambda: _content(engine.path(id, limit=3)), _content(path[-3:])
    if path:
        middle = len(path) // 2
        after = path[middle].id
        rest = _content(path[middle + 1 :])
        yield "the rest", lambda: _content(engine.path(id, after=after)), rest
    yield "the log", lambda: engine.read(id, limit=100_000), records
    yield "the log in pages", feed, records
    for segment, tip in zip(then.segments, then.tips, strict=True):
        last = segment.last
        yield (
            f"the path to {last!r}",
            lambda last=last: _content(engine.path(id, last)),
            (_content(tip)),
        )


def _content(entries: list[Entry]) -> list[Entry]:
    """What a hash covers: on a path, that is not the place that an entry has in its own log."""
    return [structs.replace(entry, thread="", seq=0) for entry in entries]
