"""A power cut after every call: what was not synced is lost, kept, torn, or kept here and there.

A recording of every change is played onto a machine that knows what is on its platters: the
contents of a file at its last sync, the names in a folder at its last sync. The store that such
a cut leaves behind is opened, and must stand where it was acknowledged to stand.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.layers import SYNC, SYNC_FOLDER, UNCHECKED_SYNC, WRITE, Call, Layer
from faults.operations import HASHES, SEQUENCE
from faults.points import Outcome, whole
from faults.stores import Image, Kind, View, differences, load, look, store

from clew.core.engine import Engine
from clew.core.errors import ClewError, NotFound
from clew.core.model import Acquire

SECTOR_BYTES = 512
LOST, KEPT, TORN = "lost", "kept", "torn"
PROMPT, LATE, LYING = "prompt", "late", "lying"


@dataclass(frozen=True)
class Mark:
    """An acknowledgement: what the store says now, and the caches that no layer sees."""

    view: View
    caches: Image


class Recorder(Layer):
    """Writes down what happens. `LYING`: nothing is ever synced. `LATE`: only with the next call,
    so that an acknowledgement comes before it."""

    def __init__(self, kind: Kind, folder: Path, syncs: str = PROMPT) -> None:
        self._kind, self._folder, self._syncs = kind, folder, syncs
        self._late: list[Call] = []
        self.log: list[Call | Mark] = []

    def around(self, call: Call, whole: Callable[[], Any], half: Any = None) -> Any:
        done = whole()
        data = call.data[:done] if isinstance(done, int) and call.name == WRITE else call.data
        name, target = (self._inside(path) for path in (call.path, call.target))
        self._note(Call(call.name, name, data, call.offset, call.size, target))
        return done

    def _note(self, call: Call) -> None:
        is_sync = call.name in (SYNC, SYNC_FOLDER, UNCHECKED_SYNC)
        if not is_sync or self._syncs == PROMPT:
            self.log += [*self._late, call]
            self._late = []
        elif self._syncs == LATE:
            self._late.append(call)

    def acknowledge(self, view: View) -> None:
        caches = {
            f"{cache}/{name}": data
            for cache in self._kind.caches
            for name, data in load(self._folder / cache).items()
        }
        self.log.append(Mark(view, caches))

    def _inside(self, path: str) -> str:
        return "" if not path else os.path.relpath(path, self._folder)


# --- the machine ----------------------------------------------------------------------------


@dataclass
class File:
    """A file's bytes on the platter, and the changes that are only in memory."""

    durable: bytes = b""
    pending: list[Call] = field(default_factory=list)

    def cut(self, chance: random.Random | None, keep: float) -> bytes:
        """The bytes after a cut; without a chance, `keep` says all or nothing."""
        data = bytearray(self.durable)
        for call in self.pending:
            _apply(data, call, chance, keep)
        if chance is not None and self.pending and chance.random() < 0.3:
            # The size got to the platter, and the data did not.
            size = len(self.now())
            data.extend(bytes(max(0, size - len(data))))
        return bytes(data)

    def now(self) -> bytes:
        return self.cut(None, 1.0)


def _apply(data: bytearray, call: Call, chance: random.Random | None, keep: float) -> None:
    def kept() -> bool:
        return keep == 1.0 if chance is None else chance.random() < keep

    if call.name == "truncate":
        if kept():
            del data[call.size :]
            data.extend(bytes(call.size - len(data)))
        return
    start = len(data) if call.offset is None else call.offset
    end = start + len(call.data)
    for first in range(start - start % SECTOR_BYTES, end, SECTOR_BYTES):
        a, b = max(first, start), min(first + SECTOR_BYTES, end)
        if kept():
            data.extend(bytes(max(0, b - len(data))))
            data[a:b] = call.data[a - start : b - start]


class Machine:
    """Files and names, as they are in memory and as they are on the platter."""

    def __init__(self) -> None:
        self._names: dict[str, File | None] = {}  # None: a folder
        self._durable: dict[str, File | None] = {}
        self._pending: list[tuple[Call, File | None]] = []  # with the file that a call made
        self._last: Call | None = None

    def play(self, call: Call) -> None:
        match call.name:
            case "write" | "truncate":
                self._file(call.path).pending.append(self._placed(call))
                self._last = self._file(call.path).pending[-1]
            case "sync":
                file = self._file(call.path)
                file.durable, file.pending = file.now(), []
            case "sync folder" | "sync folder, unchecked":
                self._settle(call.path)
            case _:
                made = File() if call.name == "create" else None
                self._rename(self._names, call, made)
                self._pending.append((call, made))

    def _placed(self, call: Call) -> Call:
        """An append goes where the end was when it was made, whatever is lost before it."""
        if call.name != WRITE or call.offset is not None:
            return call
        return Call(call.name, call.path, call.data, len(self._file(call.path).now()))

    def _file(self, path: str) -> File:
        if path not in self._names:
            self.play(Call("create", path))  # made past the layer
        file = self._names[path]
        assert file is not None
        return file

    def _settle(self, folder: str) -> None:
        """The names in a folder are on the platter now."""
        rest = []
        for call, made in self._pending:
            if _folder(call.target or call.path) == folder:
                self._rename(self._durable, call, made)
            else:
                rest.append((call, made))
        self._pending = rest

    @staticmethod
    def _rename(names: dict[str, File | None], call: Call, file: File | None) -> None:
        match call.name:
            case "create" | "make folder":
                names[call.path] = file
            case "unlink":
                names.pop(call.path, None)
            case "rename":
                if call.path in names:
                    names[call.target] = names.pop(call.path)

    # --- cuts ---

    def cut(self, how: str | random.Random) -> Image:
        """The folder after a cut."""
        chance = how if isinstance(how, random.Random) else None
        keep = chance.choice((0.1, 0.5, 0.9)) if chance else float(how != LOST)
        names = dict(self._durable)
        for call, made in self._pending:
            if keep == 1.0 if chance is None else chance.random() < keep:
                self._rename(names, call, made)
        image: Image = {}
        for name, file in names.items():
            if _reachable(name, names):
                image[name] = None if file is None else self._content(file, how, chance, keep)
        return image

    def _content(self, file: File, how: object, chance: random.Random | None, keep: float) -> bytes:
        if how != TORN or not file.pending or file.pending[-1] is not self._last:
            return file.cut(chance, keep)
        last = file.pending[-1]
        middle = len(last.data) // 2 // SECTOR_BYTES * SECTOR_BYTES
        torn = Call(last.name, last.path, last.data[:middle], last.offset, last.size)
        return File(file.durable, [*file.pending[:-1], torn]).now()


def _folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _reachable(name: str, names: dict[str, File | None]) -> bool:
    folder = os.path.dirname(name)
    return not folder or (folder in names and _reachable(folder, names))


# --- the trial ------------------------------------------------------------------------------


def record(
    kind: Kind,
    folder: Path,
    *,
    durability: str = "full",
    syncs: str = PROMPT,
    steps: Sequence[Callable[[Engine], object]] = SEQUENCE,
) -> list[Call | Mark]:
    """Run everything from an empty folder on, and write down every change."""
    recorder = Recorder(kind, store({}, folder), syncs)
    half = len(steps) // 2
    with kind.often():
        for part in (steps[:half], steps[half:]):  # a store is also closed and opened again
            with kind.open(folder, recorder, durability) as engine:
                for step in (lambda _: None, *part):
                    step(engine)
                    recorder.acknowledge(look(engine, HASHES))
    return recorder.log


def cuts(log: list[Call | Mark], seeds: Sequence[int]) -> Iterator[tuple[str, Image, int]]:
    """After each call, each kind of cut: the folder, and how many steps were acknowledged."""
    machine, acknowledged = Machine(), 0
    caches = [mark.caches for mark in log if isinstance(mark, Mark)]
    for position, call in enumerate(log):
        if isinstance(call, Mark):
            acknowledged += 1
        else:
            machine.play(call)
        for how in (LOST, KEPT, TORN, *seeds):
            chance = random.Random(f"{how} {position}") if isinstance(how, int) else None
            image = machine.cut(chance or how)
            image |= _cache(caches, acknowledged, how)
            yield f"cut after call {position}, {how}", image, acknowledged


def _cache(caches: list[Image], acknowledged: int, how: str | int) -> Image:
    """A cache is there as it was, or newer than what it is a cache of, or not at all."""
    if how == TORN or how == 1 or not caches or acknowledged == 0:
        return {}
    newer = acknowledged if how == LOST else acknowledged - 1
    return caches[min(newer, len(caches) - 1)]


def run(
    kind: Kind,
    log: list[Call | Mark],
    folder: Path,
    outcome: Outcome,
    *,
    seeds: Sequence[int] = (1, 2, 3),
    step: int = 1,
) -> None:
    views = [mark.view for mark in log if isinstance(mark, Mark)]
    seen: set[tuple[int, int]] = set()
    for n, (name, image, acknowledged) in enumerate(cuts(log, seeds)):
        if n % step:
            continue
        same = hash(frozenset(image.items())), acknowledged
        if same not in seen:
            seen.add(same)
            store(image, folder)
            outcome.add(f"{kind.name}, {name}", _judge(kind, folder, views, acknowledged))


def _judge(kind: Kind, folder: Path, views: list[View], acknowledged: int) -> str | None:
    try:
        with kind.open(folder, boots=2) as engine:
            found = look(engine, HASHES)
            problem = _compare(found, views[max(0, acknowledged - 1) : acknowledged + 1])
            # A lease that was being written may be torn, until somebody takes it again.
            return problem or _outgrown(engine, views, acknowledged) or whole(engine)
    except (ClewError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


def _compare(found: View, possible: list[View]) -> str | None:
    """The state of the last acknowledgement, or of the step that was under way."""
    if found.history not in [view.unleased for view in possible]:
        near = min(possible, key=lambda view: len(view.ids ^ found.ids))
        return f"not where it was acknowledged to stand: {differences(near.unleased, found)}"
    if not set.intersection(*(set(view.blobs) for view in possible)) <= set(found.blobs):
        return "a blob is missing"
    return None


def _outgrown(engine: Engine, views: list[View], acknowledged: int) -> str | None:
    """Whether the next lease of each thread has a greater fence than all acknowledged ones."""
    fences: dict[str, int] = {}
    for n, view in enumerate(views[: acknowledged + 1]):
        for id, thread in view.threads.items():
            if thread.lease is not None:
                fences[id] = thread.lease.fence if n < acknowledged else fences.get(id, 0)
    for id, fence in fences.items():
        try:
            lease = engine.lease(id, Acquire("somebody new", 1.0))
        except NotFound:
            continue  # it was purged, or its purge was under way
        if lease is None or lease.fence <= fence:
            return f"the fence of {id!r} was acknowledged as {fence} and is {lease} now"
    return None
