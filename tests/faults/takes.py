"""A take that fails or dies at any call at all: in the store, in the working tree, in its cache."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from unittest import mock

from faults.layers import (
    DEATHS,
    EIO,
    EIO_ON,
    ERRORS,
    KILL_BEFORE,
    LESS,
    OF_WRITES,
    WRITE,
    Call,
    Injector,
    in_child,
)
from faults.points import Outcome, whole
from faults.stores import Kind, store
from faults.taking import Ending, Taking, later, problem_of, taken_again
from faults.watched import CHANGING, READ, watched_by

from clew.core.errors import ClewError
from clew.snapshots import stat_cache
from clew.snapshots.survey import Survey
from clew.snapshots.take import _BlobQueue
from clew.store import Store
from clew.thread import Thread

STORE, TREE = "store", "tree and cache"


class TakeSweep:
    """One take on one engine: how it goes when nothing fails, then every way it can fail."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        where: str,
        *,
        fresh: bool = False,
        broken: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._where, self._fresh = where, fresh
        self._taking = Taking(kind, folder, fresh=fresh)
        self._top = os.path.realpath(self._taking.tree)
        self.calls = self._count()
        self._broken = broken

    def _count(self) -> list[Call]:
        self._broken = nullcontext
        injector = Injector()
        problem = self._taking.judge(self._perform(injector, None, -1))
        assert problem is None, problem
        return injector.calls

    # --- every way it can fail ---

    def points(self) -> Iterator[tuple[str, int, bool]]:
        """With whether the same handle is asked for another take afterwards."""
        for fault in (*ERRORS, *DEATHS):
            for index, call in enumerate(self.calls):
                if self._applies(fault, call):
                    yield fault, index, False
                    if fault in ERRORS:
                        yield fault, index, True

    def _applies(self, fault: str, call: Call) -> bool:
        if fault in OF_WRITES and call.name == WRITE:
            return len(call.data) > 1 and (self._where == TREE or fault in self._taking.kind.faults)
        if fault in OF_WRITES:
            return self._where == TREE and fault == LESS and call.name == READ
        looks = self._where == TREE and call.name not in CHANGING
        return not looks or fault in (EIO, EIO_ON, KILL_BEFORE)

    def run(self, outcome: Outcome, step: int = 1) -> None:
        for n, (fault, index, again) in enumerate(self.points()):
            if n % step == 0:
                call = self.calls[index]
                which = "first take" if self._fresh else "take"
                name = f"{self._taking.kind.name}, {which}, {fault} at {index} ({call.name})"
                outcome.add(name + (", again" if again else ""), self._try(fault, index, again))

    def _try(self, fault: str, index: int, again: bool) -> str | None:
        try:
            if fault in DEATHS:
                ended = self._die(fault, index)
            else:
                ended = self._perform(Injector(), fault, index, again)
            return self._taking.judge(ended, tolerant=self._where == TREE)
        except (ClewError, AssertionError, OSError) as error:
            return f"{type(error).__name__}: {error}"

    def _die(self, fault: str, index: int) -> Ending:
        def work(tell: Callable[[bytes], object]) -> None:
            ended = self._perform(Injector(), fault, index)
            tell(" ".join(ended.acknowledged).encode())

        heard = in_child(work)
        assert heard.endswith(b"+") or not heard.startswith(b"<"), heard.decode()
        told = heard.removesuffix(b"+").decode().split()
        return Ending(frozenset(told), more_max=int(not told))

    def _perform(
        self, injector: Injector, fault: str | None, index: int, again: bool = False
    ) -> Ending:
        taking, inside = self._taking, self._where == STORE
        taking.again()
        around = nullcontext() if inside else watched_by(injector)
        opened = taking.kind.open(taking.place, injector if inside else None)
        with taking.kind.often(), opened as engine, later(), around:
            thread = taking.warm(engine)
            injector.arm(fault, index)
            with self._broken():
                ended = taking.take(thread)
            injector.disarm()
            if fault is None:
                return ended
            assert injector.hit is not None, "the take makes other calls than it did before"
            assert ended.acknowledged or self._may_refuse(fault, index), "it was refused"
            return ended | self._taken_again(thread, injector.hit) if again else ended

    def _may_refuse(self, fault: str, index: int) -> bool:
        """In the tree only its top must be there. Anything else is left out, or done without."""
        top = next((n for n, call in enumerate(self.calls) if call.path == self._top), -1)
        return self._where == STORE or index == top or (fault == EIO_ON and index < top)

    def _taken_again(self, thread: Thread, hit: Call) -> Ending:
        """What the same handle makes of a second try."""
        ended = self._taking.take(thread)
        assert not (ended.acknowledged and hit.syncs), "acknowledged after a failed sync"
        for id in ended.acknowledged:
            snapshot = thread.snapshots.get(id)
            problem = problem_of(thread.store.engine, snapshot)
            assert problem is None, f"the next take of this handle: {problem}"
        return ended


# --- a cache that is not what was written ---------------------------------------------------

SECTOR_BYTES = 512


class DamagedCache:
    """The cache of the first snapshot, damaged in one place; what is taken by it must be right."""

    def __init__(self, kind: Kind, folder: Path) -> None:
        self._taking = Taking(kind, folder)
        self._data = self._cache()
        with later(), kind.open(self._taking.place) as engine:
            self._taking.take(Store(engine).get("t"))
        self._newer = self._cache()

    def _cache(self) -> bytes:
        (file,) = self._taking.place.rglob("*.cache")
        return file.read_bytes()

    def run(self, outcome: Outcome, count: int, seed: int) -> None:
        """Half of the damages are where they could do most: in the hash of something stored."""
        chance = random.Random(seed)
        hashes = [found.start() for found in re.finditer(b"b3:", self._data)][1:]
        for n in range(count):
            how = chance.choice(sorted(DAMAGES))
            anywhere = chance.randrange(len(self._data))
            at = anywhere if n % 2 else chance.choice(hashes) + chance.randrange(3, 67)
            data = DAMAGES[how](self._data, self._newer, at)
            outcome.add(f"{self._taking.kind.name}, {how} at byte {at}", self._try(data))

    def _try(self, data: bytes) -> str | None:
        place = store(self._taking.template, self._taking.place)
        (file,) = place.rglob("*.cache")
        file.write_bytes(data)
        try:
            with later(), self._taking.kind.open(place) as engine:
                problem = taken_again(engine, self._taking.tree)
                return problem or taken_again(engine, self._taking.tree) or whole(engine)
        except ClewError as error:
            return f"{type(error).__name__}: {error}"


DAMAGES: dict[str, Callable[[bytes, bytes, int], bytes]] = {
    "cut": lambda data, other, at: data[:at],
    "NULs to the end": lambda data, other, at: data[:at] + bytes(len(data) - at),
    "a sector of NULs": lambda data, other, at: _with(data, at, bytes(SECTOR_BYTES)),
    "a sector of a newer one": lambda data, other, at: _with(
        data, at, other[at : at + SECTOR_BYTES]
    ),
    "a flipped bit": lambda data, other, at: _with(data, at, bytes([data[at] ^ 1])),
    "another byte": lambda data, other, at: _with(data, at, b"0"),
}


def _with(data: bytes, at: int, part: bytes) -> bytes:
    return (data[:at] + part + data[at + len(part) :])[: len(data)]


# --- takes that are broken, for the controls ------------------------------------------------


@contextmanager
def entry_before_its_blobs() -> Iterator[None]:
    """What a snapshot is made of is stored when the snapshot is there already."""
    held_back: list[tuple[_BlobQueue, dict[str, bytes]]] = []
    put, take = _BlobQueue._put, Taking.take

    def hold_back(self: _BlobQueue, batch: dict[str, bytes]) -> None:
        held_back.append((self, batch))

    def take_first(self: Taking, thread: Thread) -> Ending:
        ended = take(self, thread)
        while held_back:
            with suppress(ClewError):
                put(*held_back.pop())
        return ended

    with (
        mock.patch.object(_BlobQueue, "_put", hold_back),
        mock.patch.object(Taking, "take", take_first),
    ):
        yield


def nothing_is_told() -> AbstractContextManager[object]:
    """What cannot be read is left out, and nobody is told."""
    return mock.patch.object(Survey, "left_out", ())


def every_cache_is_believed() -> AbstractContextManager[object]:
    return mock.patch.object(stat_cache, "is_sealed", return_value=True)
