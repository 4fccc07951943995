"""A power cut during takes, after them, and after one that followed a killed one.

What a dying process leaves is in the system's memory, and may be seen by the next one long
before it is on the platter. Who relies on it then must see to it that it gets there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from faults.layers import Call
from faults.points import Outcome, whole
from faults.power import KEPT, LOST, PROMPT, Machine, Mark, Recorder, cuts
from faults.stores import Image, Kind, View, store
from faults.taking import BEFORE, change, held, later, make, problem_of, taken_again
from snapshots import trees

from clew.core.engine import Engine
from clew.core.errors import ClewError, NotFound
from clew.snapshots.model import Snapshot
from clew.store import Store


class TakeCuts:
    """The recording of two takes, and what is left of them after a cut."""

    def __init__(self, kind: Kind, folder: Path, **options: str) -> None:
        self._kind = kind
        self._place, self._tree = folder / "store", folder / "tree"
        self._options = options
        self._ids: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        make(self._tree)
        self._log = self._record()

    def _record(self) -> list[Call | Mark]:
        recorder = self._recorder(store({}, self._place))
        with ExitStack() as stack:
            engine = self._open(stack, recorder)
            thread = Store(engine).create("t")
            for number in (1, 2):
                thread.append("user_message", f"{number}", id=f"m{number}")
                recorder.acknowledge(View())
                self._ids.append(thread.snapshots.take(self._tree).id)
                recorder.acknowledge(View())
                if number == 1:
                    change(self._tree)
        return recorder.log

    def _recorder(self, place: Path) -> Recorder:
        return Recorder(self._kind, place, self._options.get("syncs", PROMPT))

    def _open(self, stack: ExitStack, recorder: Recorder) -> Engine:
        durability = self._options.get("durability", "full")
        stack.enter_context(later())
        stack.enter_context(self._kind.often())
        return stack.enter_context(self._kind.open(self._place, recorder, durability))

    # --- a cut after every call ---

    def run(self, outcome: Outcome, seeds: Sequence[int], step: int = 1) -> None:
        """Every so many of them, and the worst one just after each acknowledgement."""
        seen: set[tuple[int, int]] = set()
        before = 0
        for n, (name, image, marks) in enumerate(cuts(self._log, seeds)):
            same = hash(frozenset(image.items())), marks
            chosen, before = n % step == 0 or marks != before, marks
            if chosen and same not in seen:
                seen.add(same)
                point = f"{self._kind.name}, take, {name}"
                outcome.add(point, self._judge(image, self._ids[: marks // 2]))

    # --- killed, taken again, and a cut ---

    def run_after_kills(self, outcome: Outcome, seeds: Sequence[int], step: int = 1) -> None:
        for n, (index, machine) in enumerate(self._killed()):
            if n % step:
                continue
            id = self._take_on(machine)
            for how in (LOST, *seeds):
                chance = Random(f"{how} {index}") if isinstance(how, int) else how
                point = f"{self._kind.name}, take, killed after call {index}, then cut: {how}"
                image = machine.cut(chance)  # type: ignore[arg-type]
                outcome.add(point, self._judge(image, [*self._ids[:1], id]))

    def _killed(self) -> Iterator[tuple[int, Machine]]:
        """The machine at every call of the second take, with all that was written by then."""
        marks = [n for n, call in enumerate(self._log) if isinstance(call, Mark)]
        for index in range(marks[2], marks[3] + 1):
            machine = Machine()
            for call in self._log[:index]:
                if isinstance(call, Call):
                    machine.play(call)
            yield index - marks[2], machine

    def _take_on(self, machine: Machine) -> str:
        """Take in another process, which sees everything that the machine has in memory."""
        recorder = self._recorder(store(machine.cut(KEPT), self._place))
        with ExitStack() as stack:
            engine = self._open(stack, recorder)
            id = Store(engine).get("t").snapshots.take(self._tree).id
            recorder.acknowledge(View())
        for call in recorder.log:
            if isinstance(call, Mark):
                break  # what comes after the acknowledgement is too late
            machine.play(call)
        return id

    # --- what must hold ---

    def _judge(self, image: Image, acknowledged: list[str]) -> str | None:
        try:
            with later(), self._kind.open(store(image, self._place), boots=2) as engine:
                problem = self._listed(engine, acknowledged) or whole(engine)
                return problem or taken_again(engine, self._tree) or whole(engine)
        except (ClewError, AssertionError) as error:
            return f"{type(error).__name__}: {error}"

    def _listed(self, engine: Engine, acknowledged: list[str]) -> str | None:
        try:
            found = Store(engine).get("t").snapshots.list()
        except NotFound:
            found = []
        missing = set(acknowledged) - {snapshot.id for snapshot in found}
        if missing:
            return f"{missing} was acknowledged and is not there"
        for snapshot in found:
            problem = self._problem(engine, snapshot)
            if problem is not None:
                was = "acknowledged" if snapshot.id in acknowledged else "not acknowledged"
                return f"a snapshot ({was}) is not entirely there: {problem}"
        return None

    def _problem(self, engine: Engine, snapshot: Snapshot) -> str | None:
        try:
            if snapshot.id != self._ids[0]:
                return problem_of(engine, snapshot)
            return None if held(engine, snapshot) == trees.whole(BEFORE) else "it is another one"
        except ClewError as error:
            return f"{type(error).__name__}: {error}"
