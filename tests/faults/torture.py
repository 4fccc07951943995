"""The fault harness in its long form: `make torture`. Prints what was tried and what was found.

Each engine runs in a process of its own: SQLite and files side by side, PostgreSQL, whose parts
measure how long a failover takes, after them. Last come the tests that `make test` runs a sample
of, in full, and mutants: whether the tests of core/ and context/ notice a mistake in them. The exit
code is 1 if a part found a failure, if a control, which does the same to something broken, found
none, if a test failed, or if too few mutants were noticed. What was NOT TRIED has a line of its own
below the table, with the reason, and is no failure.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from failover import parts as failover
from faults import machine
from faults.parts import (
    CONTROL,
    CONTROLS,
    LONG,
    PARTS,
    SHORT,
    SLOW_CONTROLS,
    SLOW_PARTS,
    environment,
)
from faults.points import Outcome
from faults.stores import KINDS, Kind

SHOWN_MAX = 20
POSTGRES = "postgres"
SKIPPED = ("skipped:", "not run:", "not fuzzed", "not tried")  # in the notes of a part
TESTS = Path(__file__).parents[1]
Work = Callable[[Path, Outcome], None]


@dataclass(frozen=True)
class Row:
    part: str
    engine: str
    points: int
    failures: list[str]
    notes: list[str]
    seconds: float
    control: bool

    @property
    def bad(self) -> bool:
        return bool(self.failures) != self.control


def work(engine: str, only: str, short: bool) -> None:
    """All parts on one engine; a line of JSON for each."""
    logging.disable(logging.WARNING)
    shared = Path("/dev/shm")
    place = tempfile.mkdtemp(prefix="clew-torture-", dir=shared if shared.is_dir() else None)
    try:
        for name, part, control in parts_of(engine, short):
            if only in name:
                folder = Path(place) / "store"
                outcome, begun = Outcome(), time.monotonic()
                part(folder, outcome)
                seconds = time.monotonic() - begun
                found = (outcome.points, outcome.failures, outcome.notes)
                print(json.dumps((name, engine, *found, seconds, control)), flush=True)
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def parts_of(engine: str, short: bool) -> Iterator[tuple[str, Work, bool]]:
    """The parts of an engine by name, and which of them are controls."""
    yield from failovers(short) if engine == POSTGRES else faults(KINDS[engine], short)
    if short:
        return
    for name, act in SLOW_PARTS.items():
        yield name, lambda place, outcome, act=act: act(engine, place, LONG, outcome), False
    for name, (act, _) in () if machine.missing(engine) else SLOW_CONTROLS.items():
        yield name, lambda place, outcome, act=act: act(engine, place, CONTROL, outcome), True


def failovers(short: bool) -> Iterator[tuple[str, Work, bool]]:
    rounds = failover.SHORT if short else failover.LONG
    for name, act in failover.PARTS.items():
        yield name, lambda _, outcome, act=act: act(rounds, outcome), False
    for name, (act, _) in failover.CONTROLS.items():
        yield name, lambda _, outcome, act=act: act(rounds, outcome), True


def faults(kind: Kind, short: bool) -> Iterator[tuple[str, Work, bool]]:
    amount = SHORT if short else LONG
    for name, part in PARTS.items():
        yield name, lambda place, outcome, part=part: part(kind, place, amount, outcome), False
    for name, (part, _) in CONTROLS.items():
        yield name, lambda place, outcome, part=part: part(kind, place, CONTROL, outcome), True


def run(engines: list[str], only: str, short: bool) -> list[Row]:
    """These engines at once, telling of each part when it is done."""
    options = ["--part", only, *(["--short"] if short else [])]
    rows: list[Row] = []

    def follow(engine: str) -> int:
        command = [sys.executable, __file__, "--worker", engine, *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as one:
            for line in one.stdout or ():
                rows.append(Row(*json.loads(line)))
                tell(rows[-1])
        return one.returncode

    with ThreadPoolExecutor() as pool:
        if any(pool.map(follow, engines)):
            sys.exit("a worker ended with an error")
    return rows


def tell(row: Row) -> None:
    print(f"{line_of(row)} {row.seconds:,.0f} s", flush=True)
    for failure in row.failures[:SHOWN_MAX] if row.bad else ():
        print(f"  {failure[:1000]}", flush=True)


def line_of(row: Row) -> str:
    found = f"{len(row.failures):,}" + (" (expected: over 0)" if row.control else "")
    part = "; ".join([row.part, *row.notes])
    return f"| {part} | {row.engine} | {row.points:,} | {found} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=[*KINDS, POSTGRES], help="only this engine")
    parser.add_argument("--part", default="", help="only parts whose name contains this")
    parser.add_argument("--short", action="store_true", help="as much as in the tests")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        work(asked.worker, asked.part, asked.short)
        return 0
    begun = time.monotonic()
    groups = [[asked.engine]] if asked.engine else [list(KINDS), [POSTGRES]]
    engines = [engine for group in groups for engine in group]
    if not any(asked.part in name for one in engines for name, *_ in parts_of(one, asked.short)):
        parser.error(f"no part has {asked.part!r} in its name")
    rows = [row for group in groups for row in run(group, asked.part, asked.short)]
    print("\n| part | engine | points tried | failures found |\n|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row.control, row.part, row.engine)):
        print(line_of(row))
    for line in not_tried(rows, engines, asked.part, asked.short):
        print(line)
    print(f"\n{sum(row.points for row in rows):,} points in {time.monotonic() - begun:,.0f} s")
    for row in rows:
        if row.bad:
            print(f"NOT AS IT SHOULD BE: {row.part}, {row.engine}")
    bad = any(row.bad for row in rows)
    if asked.engine or asked.part or asked.short:
        print("NOT TRIED: the tests in full, and mutants: only without --engine, --part, --short")
    else:
        bad |= run_tests() != 0
        bad |= run_mutants() != 0
    return int(bad)


def not_tried(rows: list[Row], engines: list[str], only: str, short: bool) -> Iterator[str]:
    """What a reader of the table may miss in it, and why it is not there."""
    for row in rows:
        for note in row.notes:
            if any(word in note for word in SKIPPED):
                yield f"NOT TRIED: {row.part}, {row.engine}: {note}"
        if not (row.points or row.notes):
            yield f"NOT TRIED: {row.part}, {row.engine}: it came to its end without a single point"
    for part in (part for part in SLOW_PARTS if short and only in part):
        for engine in engines:
            yield f"NOT TRIED: {part}, {engine}: only without --short"


def run_tests() -> int:
    """In full what tests/amounts.py says how much of to try: it also says so to hypothesis."""
    words = ("from amounts import", "from hypothesis import")
    others = ("adapters", "browser")  # for which nothing is installed here
    texts = {p: p.read_text() for p in TESTS.rglob("test_*.py") if p.parent.name not in others}
    asking = sorted(str(path) for path, text in texts.items() if any(w in text for w in words))
    command = [sys.executable, "-m", "pytest", "-n", "logical", "--dist", "worksteal", *asking]
    return subprocess.run(command, env=environment() | {"CLEW_TESTS": "full"}).returncode


def run_mutants() -> int:
    command = [sys.executable, str(TESTS / "mutation" / "run.py")]
    return subprocess.run(command, env=environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
