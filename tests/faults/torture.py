"""The fault harness in its long form: `make torture`. Prints what was tried and what was found.

Each engine runs in a process of its own. The exit code is 1 if a part found a failure, or if a
control, which does the same to something broken, found none.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from faults.parts import CONTROLS, LONG, PARTS, SHORT, environment
from faults.points import Outcome
from faults.stores import KINDS

SHOWN_MAX = 20


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
        controls = {name: part for name, (part, _) in CONTROLS.items()}
        for name, part in (PARTS | controls).items():
            if only in name:
                folder = Path(place) / "store"
                outcome, begun = Outcome(), time.monotonic()
                part(KINDS[engine], folder, SHORT if short or name in controls else LONG, outcome)
                seconds = time.monotonic() - begun
                found = (outcome.points, outcome.failures, outcome.notes)
                print(json.dumps((name, engine, *found, seconds, name in controls)), flush=True)
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run(engines: list[str], only: str, short: bool) -> list[Row]:
    """Both engines at once, telling of each part when it is done."""
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
    parser.add_argument("--engine", choices=sorted(KINDS), help="only this engine")
    parser.add_argument("--part", default="", help="only parts whose name contains this")
    parser.add_argument("--short", action="store_true", help="as much as in the tests")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        work(asked.worker, asked.part, asked.short)
        return 0
    begun = time.monotonic()
    rows = run([asked.engine] if asked.engine else list(KINDS), asked.part, asked.short)
    print("\n| part | engine | points tried | failures found |\n|---|---|---|---|")
    for row in sorted(rows, key=lambda row: (row.control, row.part, row.engine)):
        print(line_of(row))
    print(f"\n{sum(row.points for row in rows):,} points in {time.monotonic() - begun:,.0f} s")
    for row in rows:
        if row.bad:
            print(f"NOT AS IT SHOULD BE: {row.part}, {row.engine}")
    return int(any(row.bad for row in rows))


if __name__ == "__main__":
    sys.exit(main())
