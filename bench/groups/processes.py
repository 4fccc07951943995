"""processes: 1 to 16 processes append to one store, each to a thread of its own.

All processes stay open for the whole run. In each round all counts take their turn, on SQLite and
on files, so that a slow moment of the machine falls on all of them. Where others use the machine,
one process gets a smaller part of it than 16 do, and the ratio of the rates flatters.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median, quantiles
from time import perf_counter

import msgspec

import clew
from bench.figures import Figure, milliseconds, rate, ratio
from bench.messages import messages
from bench.slow_disk import slow_processes
from bench.workshop import Workshop

_COUNTS = (1, 2, 8, 16)
_MANY = _COUNTS[-1]
_ROUNDS = 9
_SECONDS = 1.0
_SLOW_ROUNDS = 5
_DELAY_SECONDS = 0.002


@dataclass(frozen=True)
class Stint:
    """What some processes did in the same second: the seconds of each append, by process."""

    latencies: list[list[float]]

    @property
    def rate(self) -> float:
        return sum(map(len, self.latencies)) / _SECONDS

    @property
    def median(self) -> float:
        return median(itertools.chain(*self.latencies))

    @property
    def p99(self) -> float:
        return quantiles(itertools.chain(*self.latencies), n=100)[-1]


def measure(workshop: Workshop) -> Iterable[Figure]:
    addresses = {"sqlite": str(workshop.new_path()), "files": f"files:{workshop.new_path()}"}
    with ExitStack() as running:
        crews = {engine: _crew(running, address) for engine, address in addresses.items()}
        rounds = [
            {
                (engine, count): _together(crew[:count])
                for engine, crew in crews.items()
                for count in _COUNTS
            }
            for _ in range(1 + _ROUNDS)
        ][1:]
    for engine in addresses:
        yield from _figures(
            engine, {count: [stints[engine, count] for stints in rounds] for count in _COUNTS}
        )
    yield from _on_a_slower_disk(workshop)


def _on_a_slower_disk(workshop: Workshop) -> Iterable[Figure]:
    """The same on SQLite, where each sync takes longer: they do not wait for each other's."""
    path = workshop.new_path()
    environment = slow_processes(path.parent, _DELAY_SECONDS)
    if environment is None:
        return
    with ExitStack() as running:
        crew = _crew(running, str(path), environment)
        rounds = [
            {count: _together(crew[:count]) for count in (1, _MANY)}
            for _ in range(1 + _SLOW_ROUNDS)
        ][1:]
    stints = {count: [both[count] for both in rounds] for count in (1, _MANY)}
    yield from _figures(f"sqlite, syncs {_DELAY_SECONDS * 1e3:.0f} ms slower", stints)


def _figures(engine: str, stints: dict[int, list[Stint]]) -> Iterable[Figure]:
    name = f"processes: {engine},"
    one, many = stints[1], stints[_MANY]
    is_promised = engine != "files"
    yield ratio(
        f"{name} {_MANY} / one, rate",
        [stint.rate for stint in many],
        [stint.rate for stint in one],
        at_least=0.9 if is_promised else None,
    )
    yield ratio(
        f"{name} {_MANY}, p99 / {_MANY} medians of one",
        [stint.p99 for stint in many],
        [_MANY * stint.median for stint in one],
        at_most=2 if is_promised else None,
    )
    yield Figure(
        f"{name} {_MANY}, least share of a process",
        _least_share(many),
        "x",
        0.5 if is_promised else None,
        ">=",
    )
    for count, those in stints.items():
        yield rate(f"{name} {count}", [stint.rate for stint in those])
        yield milliseconds(f"{name} {count}, p50", [stint.median for stint in those])
        yield milliseconds(f"{name} {count}, p99", [stint.p99 for stint in those])


def _least_share(stints: Sequence[Stint]) -> float:
    """Of the process that got least in all rounds; 1.0: as much as each of the others."""
    got = [sum(map(len, one)) for one in zip(*(stint.latencies for stint in stints), strict=True)]
    return min(got) * len(got) / sum(got)


# --- the processes --------------------------------------------------------------------------

Process = subprocess.Popen[bytes]


def _crew(
    running: ExitStack, address: str, environment: dict[str, str] | None = None
) -> list[Process]:
    command = [sys.executable, "-m", "bench.groups.processes", address]
    crew = []
    for _ in range(_MANY):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        running.enter_context(process)
        running.callback(process.stdin.close)
        crew.append(process)
    for process in crew:
        process.stdout.readline()  # it has opened the store
    return crew


def _together(crew: Sequence[Process]) -> Stint:
    for process in crew:
        process.stdin.write(b"go\n")
        process.stdin.flush()
    return Stint([msgspec.json.decode(process.stdout.readline()) for process in crew])


def _append_when_told(address: str) -> None:
    with clew.open(address) as store:
        thread = store.create()
        supply = itertools.cycle(messages(100))
        print("ready", flush=True)
        for _ in sys.stdin:
            latencies = []
            now = perf_counter()
            end = now + _SECONDS
            while now < end:
                thread.append_message(next(supply))
                before, now = now, perf_counter()
                latencies.append(now - before)
            print(msgspec.json.encode(latencies).decode(), flush=True)


if __name__ == "__main__":
    _append_when_told(sys.argv[1])
