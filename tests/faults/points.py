"""Fail at the N-th call, for every N: each operation, each kind of fault, each call it makes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from faults.layers import DEATHS, OF_WRITES, WRITE, Call, Injector, in_child
from faults.operations import HASHES, PROBED, Operation, append, prepare, probe, warm
from faults.stores import Image, Kind, View, differences, grown, load, look, store

from clew.core.engine import Engine
from clew.core.errors import ClewError

ACKNOWLEDGED, REFUSED, UNKNOWN = "acknowledged", "refused", "unknown"


@dataclass
class Outcome:
    """What a part of the harness tried, and what it found wrong."""

    points: int = 0
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what could not be done as it should be here

    def add(self, point: str, problem: str | None) -> None:
        self.points += 1
        if problem is not None:
            self.failures.append(f"{point}: {problem}")


class Sweep:
    """One operation on one engine: how it goes when nothing fails, then every way it can fail."""

    def __init__(self, kind: Kind, operation: Operation, folder: Path) -> None:
        self._kind, self._operation, self._folder = kind, operation, folder
        self._template = self._make_template()
        self.calls = self._count()

    # --- how it goes when nothing fails ---

    def _make_template(self) -> Image:
        if self._operation.empty:
            return {}
        folder = store({}, self._folder)
        with self._kind.open(folder) as engine:
            prepare(engine)
            self._operation.prepare(engine)
            if self._operation.opens:
                return self._left_behind(engine)
        return load(folder)

    def _left_behind(self, engine: Engine) -> Image:
        """What a killed process leaves, perhaps in the middle of an append."""
        warm(engine)
        before = self._kept()
        if not self._operation.torn:
            return before
        append(engine)
        after = self._kept()
        file, start = grown(self._kind, before, after)
        torn = (after[file] or b"")[: (start + len(after[file] or b"")) // 2]
        return after | {file: torn}

    def _kept(self) -> Image:
        image = load(self._folder)
        return {name: data for name, data in image.items() if name not in self._kind.never_kept}

    def _count(self) -> list[Call]:
        injector = Injector()
        if self._operation.opens:
            with self._kind.open(store(self._template, self._folder)) as engine:
                self.before = look(engine, HASHES)
            store(self._template, self._folder)
            injector.arm()
            with self._kind.open(self._folder, injector) as engine:
                self._operation.run(engine)
                injector.disarm()
                self.after = look(engine, HASHES)
            return injector.calls
        with self._kind.open(store(self._template, self._folder), injector) as engine:
            warm(engine)
            self.before = look(engine, HASHES)
            injector.arm()
            self._operation.run(engine)
            injector.disarm()
        with self._kind.open(self._folder) as engine:
            self.after = look(engine, HASHES)
        return injector.calls

    # --- every way it can fail ---

    def points(self) -> Iterator[tuple[str, int]]:
        for fault in self._kind.faults:
            for index, call in enumerate(self.calls):
                if fault not in OF_WRITES or (call.name == WRITE and len(call.data) > 1):
                    yield fault, index

    def run(self, outcome: Outcome, step: int = 1, start: int = 0) -> None:
        for n, (fault, index) in enumerate(self.points()):
            if n % step == start % step:
                call = self.calls[index]
                name = (
                    f"{self._kind.name}, {self._operation.name}, {fault} at {index} ({call.name})"
                )
                outcome.add(name, self._try(fault, index))

    def _try(self, fault: str, index: int) -> str | None:
        store(self._template, self._folder)
        try:
            if fault in DEATHS:
                ended, probed = self._die(fault, index), None
            else:
                ended, probed = self._fail(fault, index)
            return self._judge(ended, probed)
        except (ClewError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"

    def _die(self, fault: str, index: int) -> str:
        def work(tell: object) -> None:
            self._perform(Injector(), fault, index)
            tell(b"!")  # type: ignore[operator]

        heard = in_child(work)
        assert heard in (b"+", b"!+", b"!"), heard.decode()
        # The last call may be one after the acknowledgement, such as a checkpoint's.
        return ACKNOWLEDGED if heard.startswith(b"!") else UNKNOWN

    def _perform(self, injector: Injector, fault: str, index: int) -> None:
        if self._operation.opens:
            injector.arm(fault, index)
        with self._kind.open(self._folder, injector) as engine:
            if not self._operation.opens:
                warm(engine)
                injector.arm(fault, index)
            self._operation.run(engine)
            injector.disarm()

    def _fail(self, fault: str, index: int) -> tuple[str, bool | None]:
        """How the operation ended, and whether the handle acknowledged something after it."""
        injector = Injector()
        if self._operation.opens:
            try:
                self._perform(injector, fault, index)
                return ACKNOWLEDGED, None
            except ClewError as error:
                return _ending(error), None
        with self._kind.open(self._folder, injector) as engine:
            warm(engine)
            injector.arm(fault, index)
            ended = _ends(self._operation.run, engine)
            assert injector.hit is not None, "the operation makes other calls than it did before"
            injector.disarm()
            probed = _ends(probe, engine) == ACKNOWLEDGED
            assert not (probed and injector.hit.syncs), "acknowledged after a failed sync"
            if index % 2 and ended != ACKNOWLEDGED:
                again = _ends(self._operation.run, engine)
                assert not (again == ACKNOWLEDGED and injector.hit.syncs), "a retry was accepted"
                ended = again if again == ACKNOWLEDGED else ended
        return ended, probed

    # --- what is there afterwards ---

    def _judge(self, ended: str, probed: bool | None) -> str | None:
        with self._kind.open(self._folder) as engine:
            problem = whole(engine)
            found = look(engine, HASHES)
            if problem is None:
                problem = self._compare(found.without(PROBED), ended)
            if problem is None and probed and "probe" not in {id for _, id in found.ids}:
                problem = "an append that was acknowledged after the fault is missing"
            if problem is not None or self._operation.name == "close":
                return problem
            self._operation.run(engine)
            found = look(engine, HASHES).without(PROBED)
            if found != self.after.without(PROBED):
                return "a retry did not lead to the state of one successful try"
            return whole(engine)

    def _compare(self, found: View, ended: str) -> str | None:
        before, after = self.before.without(PROBED), self.after.without(PROBED)
        if ended == ACKNOWLEDGED:
            return None if found == after else "it was acknowledged and is not there"
        if not set(before.blobs) & set(after.blobs) <= set(found.blobs):
            return "a blob is missing"
        expected = [before] if ended == REFUSED else [before, after]
        if found.history in [view.history for view in expected]:
            return None
        if not self._operation.atomic:
            return between(before, found, after)
        return f"it was {ended}, and {differences(before, found)}"


def between(before: View, found: View, after: View) -> str | None:
    """Whether a store is on the way from one state to another: no record lost, none invented."""
    if not before.ids <= found.ids <= after.ids:
        return "a record is missing, or there is one that nobody wrote"
    for id, view in found.threads.items():
        if view.records != after.threads[id].records[: len(view.records)]:
            return f"the records of thread {id!r} are not a beginning of what they should be"
    return None


def whole(engine: Engine) -> str | None:
    problems = list(engine.check())
    return None if not problems else f"verify: {problems[:3]}"


def _ends(work: object, engine: Engine) -> str:
    try:
        work(engine)  # type: ignore[operator]
        return ACKNOWLEDGED
    except ClewError as error:
        return _ending(error)


def _ending(error: ClewError) -> str:
    return {False: REFUSED, True: ACKNOWLEDGED, None: UNKNOWN}[error.committed]
