"""The parts of the harness, each for one engine: short in the tests, long in `make torture`."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from faults import flips, full, fuzz, machine, power
from faults.badfiles import BadFiles
from faults.operations import OPERATIONS
from faults.places import Missing
from faults.points import Outcome, Sweep
from faults.stores import Kind
from faults.tails import LAST, Tail
from faults.takecuts import TakeCuts
from faults.takes import (
    STORE,
    TREE,
    DamagedCache,
    TakeSweep,
    entry_before_its_blobs,
    every_cache_is_believed,
    nothing_is_told,
)

from clew.core.checked_reads import check_reads

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Amount:
    """How much of each part. A step of n takes every n-th point."""

    point_step: int
    tail_points_max: int  # for each kind of last record
    flips: int
    mixes: int
    kills: int
    cut_step: int
    cut_seeds: tuple[int, ...]
    real_cuts: int  # in a virtual machine
    bad_step: int
    mutations: int
    fuzz_seconds: int
    take_step: int
    cache_damages: int


SHORT = Amount(
    point_step=61,
    tail_points_max=20,
    flips=100,
    mixes=60,
    kills=12,
    cut_step=59,
    cut_seeds=(1, 2),
    real_cuts=1,
    bad_step=31,
    mutations=80,
    fuzz_seconds=0,
    take_step=101,
    cache_damages=20,
)
# For the controls: enough to find out each of them, and to see how often.
CONTROL = Amount(
    point_step=17,
    tail_points_max=60,
    flips=300,
    mixes=200,
    kills=40,
    cut_step=23,
    cut_seeds=(1, 2),
    real_cuts=3,
    bad_step=9,
    mutations=250,
    fuzz_seconds=0,
    take_step=53,
    cache_damages=40,
)
LONG = Amount(
    point_step=1,
    tail_points_max=25_000,
    flips=10_000,
    mixes=2_000,
    kills=1_000,
    cut_step=1,
    cut_seeds=(1, 2, 3, 4, 5, 6),
    real_cuts=24,
    bad_step=1,
    mutations=5_000,
    fuzz_seconds=60,
    take_step=1,
    cache_damages=2_000,
)

Part = Callable[[Kind, Path, Amount, Outcome], None]


def fail_at_every_call(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    for n, operation in enumerate(OPERATIONS):
        Sweep(kind, operation, folder).run(outcome, amount.point_step, n)


def truncate_at_every_byte(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    for name in LAST:
        Tail(kind, name, folder).run(outcome, amount.tail_points_max)


def flip_bits(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    flips.Flips(kind, folder).run(flips.flip, amount.flips, 4, outcome)


def read_flipped_bits(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    damaged = flips.Flips(kind, folder)
    damaged.run_reads(flips.flip, amount.flips // 4, 5, outcome, check_reads)
    damaged.run_reads(flips.MIXES[kind.name], amount.mixes // 4, 5, outcome, check_reads)


def drop_swap_double(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    flips.Flips(kind, folder).run(flips.MIXES[kind.name], amount.mixes, 4, outcome)


def kill_writers(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    """In processes of its own: whoever forks must not have threads."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = [kind.address(folder), amount.kills, 4, folder]
    command = [sys.executable, str(HERE / "kills.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode:
        outcome.add(f"{kind.name}, kills", done.stderr)
        return
    found = json.loads(done.stdout)
    outcome.points += found["kills"]
    outcome.failures += [f"{kind.name}, kills: {failure}" for failure in found["failures"]]
    if found["acknowledged"] < found["kills"]:
        outcome.failures.append(f"{kind.name}, kills: the writers had no time to write")


def cut_power(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    _cut_power(kind, folder, amount, outcome)


def _cut_power(kind: Kind, folder: Path, amount: Amount, outcome: Outcome, **options: str) -> None:
    log = power.record(kind, folder, **options)
    power.run(kind, log, folder, outcome, seeds=amount.cut_seeds, step=amount.cut_step)


def cut_power_of_a_kernel(
    engine: str, folder: Path, amount: Amount, outcome: Outcome, durability: str = "full"
) -> None:
    try:
        machine.run(engine, folder, amount.real_cuts, outcome, durability)
    except Missing as reason:
        outcome.notes.append(f"skipped: {reason}")


def fill_the_disk(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    if full.run(kind, folder, outcome, environment()) != full.REAL:
        outcome.notes.append("no tmpfs may be mounted here: bytes counted, repair not tried")


def put_bad_files(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    BadFiles(kind, folder).run(outcome, amount.bad_step if kind.name == "files" else 1)


def mutate_files(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    for name in (kind.name, *(("lines",) if kind.name == "files" else ())):
        target, corpus = fuzz.targets(name, folder)
        found = fuzz.mutations(target, corpus, amount.mutations, 4)
        outcome.points += amount.mutations
        outcome.failures += [f"{kind.name}, target {name}: {failure}" for failure in found]
        if amount.fuzz_seconds:
            _fuzz(name, folder, amount.fuzz_seconds, outcome)


def _fuzz(target: str, folder: Path, seconds: int, outcome: Outcome) -> None:
    if importlib.util.find_spec("atheris") is None:
        outcome.notes.append(f"{target} not fuzzed: atheris is not installed")
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = [sys.executable, str(HERE / "fuzz.py"), target, str(seconds), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    outcome.points += fuzz.executions(done.stderr)
    if done.returncode:
        outcome.failures.append(f"atheris, target {target}: {done.stderr[-2000:]}")


def fail_takes_in_the_store(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    for fresh in (False, True):
        TakeSweep(kind, folder, STORE, fresh=fresh).run(outcome, amount.take_step)


def fail_takes_in_the_tree(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    for fresh in (False, True):
        TakeSweep(kind, folder, TREE, fresh=fresh).run(outcome, amount.take_step)


def cut_takes(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    takes = TakeCuts(kind, folder)
    takes.run(outcome, amount.cut_seeds, amount.take_step)
    takes.run_after_kills(outcome, amount.cut_seeds, amount.take_step)


def damage_caches(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    DamagedCache(kind, folder).run(outcome, amount.cache_damages, 4)


def environment() -> dict[str, str]:
    """For child processes: the same modules as here."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


PARTS: dict[str, Part] = {
    "1 a fault at every call": fail_at_every_call,
    "2 the last record cut at every byte": truncate_at_every_byte,
    "3 bits flipped": flip_bits,
    "3 bits flipped, read with check_reads": read_flipped_bits,
    "3 dropped, swapped, doubled": drop_swap_double,
    "4 writers killed": kill_writers,
    "5 power cut after every call": cut_power,
    "7 full disk": fill_the_disk,
    "8 bad files": put_bad_files,
    "8 mutated files": mutate_files,
    "9 take: a fault at every call in the store": fail_takes_in_the_store,
    "9 take: a fault at every call in the tree, for the cache": fail_takes_in_the_tree,
    "9 take: power cut": cut_takes,
    "9 take: damaged cache": damage_caches,
}

# In the long form alone, since each cut takes a boot; and on every engine, by its name.
SlowPart = Callable[[str, Path, Amount, Outcome], None]
SLOW_PARTS: dict[str, SlowPart] = {"5 power cut of a virtual machine": cut_power_of_a_kernel}


# --- controls: the same parts on something that is broken, where they must find failures ----


def relaxed(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    _cut_power(kind, folder, amount, outcome, durability="relaxed")


def acknowledged_before_the_sync(
    kind: Kind, folder: Path, amount: Amount, outcome: Outcome
) -> None:
    _cut_power(kind, folder, amount, outcome, syncs=power.LATE)


def lying_disk(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    _cut_power(kind, folder, amount, outcome, syncs=power.LYING)


def relaxed_in_a_machine(engine: str, folder: Path, amount: Amount, outcome: Outcome) -> None:
    cut_power_of_a_kernel(engine, folder, amount, outcome, durability="relaxed")


def snapshots_before_their_blobs(
    kind: Kind, folder: Path, amount: Amount, outcome: Outcome
) -> None:
    sweep = TakeSweep(kind, folder, STORE, broken=entry_before_its_blobs)
    sweep.run(outcome, amount.take_step)


def untold_gaps(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    TakeSweep(kind, folder, TREE, broken=nothing_is_told).run(outcome, amount.take_step)


def believed_caches(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    damaged = DamagedCache(kind, folder)
    with every_cache_is_believed():
        damaged.run(outcome, amount.cache_damages, 4)


def takes_acknowledged_before_the_sync(
    kind: Kind, folder: Path, amount: Amount, outcome: Outcome
) -> None:
    TakeCuts(kind, folder, syncs=power.LATE).run(outcome, amount.cut_seeds, amount.take_step)


def unchecked_hashes(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    damaged = flips.Flips(kind, folder)
    with hashes_unchecked(kind):
        damaged.run(flips.flip, min(amount.flips // 3, 100), 4, outcome)


def believed_reads(kind: Kind, folder: Path, amount: Amount, outcome: Outcome) -> None:
    damaged = flips.Flips(kind, folder)
    with hashes_unchecked(kind):
        damaged.run_reads(flips.flip, min(amount.flips // 3, 50), 5, outcome, lambda engine: engine)


@contextmanager
def hashes_unchecked(kind: Kind) -> Iterator[None]:
    """A store that believes whatever it reads."""
    module = "clew.engines.shared.audit"
    with ExitStack() as stack:
        stack.enter_context(mock.patch(f"{module}.record_hash", lambda record, *_: record.hash))
        stack.enter_context(mock.patch(f"{module}.digest", _EqualToAll))
        if kind.name == "files":
            for user in ("core.lines", "engines.files.verify", "engines.files.tail"):
                target = f"clew.{user}.is_sound"
                stack.enter_context(mock.patch(target, return_value=True))
        yield


class _EqualToAll(str):
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


# With the words that a failure must have which is found for the right reason.
CONTROLS: dict[str, tuple[Part, str]] = {
    "5 power cut, durability relaxed": (relaxed, "acknowledged"),
    "5 power cut, acknowledged before the sync": (acknowledged_before_the_sync, "acknowledged"),
    "5 power cut, a disk that never syncs": (lying_disk, "acknowledged"),
    "3 bits flipped, hashes not checked": (unchecked_hashes, "verify is content"),
    "3 bits flipped, read without check_reads": (believed_reads, "a wrong answer"),
    "9 take: its entry before its blobs": (snapshots_before_their_blobs, "Corrupt"),
    "9 take: gaps that nobody is told of": (untold_gaps, "nobody says so"),
    "9 take: power cut, acknowledged before the sync": (
        takes_acknowledged_before_the_sync,
        "acknowledged",
    ),
    "9 take: damaged cache, believed": (believed_caches, "Corrupt"),
}
SLOW_CONTROLS: dict[str, tuple[SlowPart, str]] = {
    "5 power cut of a virtual machine, durability relaxed": (relaxed_in_a_machine, "acknowledged"),
}
