"""files: the files engine, against a bare write and sync, and against itself when it is large."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median

import clew
from bench import child
from bench.bare import BareFile
from bench.figures import Figure, costs, milliseconds, rates, ratio
from bench.groups.append import append_all
from bench.groups.flat import appender
from bench.messages import Message, messages
from bench.progress import say
from bench.slow_disk import SlowFiles
from bench.timing import Spent, in_rounds, seconds, spent, take_turns
from bench.workshop import FEW_ENTRIES, MANY, Workshop, extend, short_thread

_ROUNDS = 15
_TURNS = 60
_THREADS = 10_000
_PAGE = 50
_WRITERS = 8
_DELAY_SECONDS = 0.002


def measure(workshop: Workshop) -> Iterable[Figure]:
    yield from _bare(workshop)
    yield from _by_length(workshop)
    yield from _by_neighbours(workshop)
    yield from _group_commit(workshop)


# --- against the disk alone -----------------------------------------------------------------


def _bare(workshop: Workshop) -> Iterable[Figure]:
    """The bare side writes the very lines that an append of these messages wrote before.

    A sync may take ten times as long from one second to the next, so the rounds are short. What
    an append adds to it shows without a sync.
    """
    path = workshop.new_path()
    thread = workshop.open(f"files:{path}").create()
    relaxed = workshop.open(f"files:{workshop.new_path()}", durability="relaxed").create()
    append_all(thread, messages(_TURNS))
    with closing(BareFile(workshop.new_path(), _lines(path))) as bare:
        ours, theirs, unsynced = in_rounds(
            _ROUNDS * 4,
            lambda: take_turns(_TURNS // 4, appender(thread), bare.append, appender(relaxed)),
        )
    name = "files: append"
    yield ratio(f"{name} / bare write and sync, rate", theirs, ours, at_least=0.6)
    yield milliseconds(name, ours)
    yield milliseconds("files: bare write and sync of the same bytes", theirs)
    yield milliseconds(f"{name} without its sync (relaxed)", unsynced)


def _lines(store: Path) -> list[bytes]:
    (file,) = (store / "threads").iterdir()
    return file.read_bytes().splitlines(keepends=True)[1:]


# --- the thread's length --------------------------------------------------------------------


def _by_length(workshop: Workshop) -> Iterable[Figure]:
    path, id = _long_thread(workshop)
    store = workshop.open(f"files:{path}")
    long = store.get(id)
    at_many, at_few = in_rounds(
        _ROUNDS, lambda: take_turns(_TURNS, appender(long), appender(short_thread(store)))
    )
    name = f"files: append at {MANY:,} entries"
    yield ratio(f"{name} / at {FEW_ENTRIES}", at_many, at_few, at_most=1.2)
    yield milliseconds(name, at_many)
    other = workshop.open(f"files:{path}")
    of_long, of_short = in_rounds(
        _ROUNDS,
        lambda: tuple(
            _follow(thread, other.get(thread.id)) for thread in (long, short_thread(store))
        ),
    )
    name = f"files: follow, next record at {MANY:,} entries"
    yield ratio(f"{name} / at {FEW_ENTRIES}", of_long, of_short, at_most=1.5)
    yield milliseconds(name, of_long)


def _long_thread(workshop: Workshop) -> tuple[Path, str]:
    say(f"building a file of {MANY:,} entries")
    path = workshop.new_path()
    with clew.open(f"files:{path}", durability="relaxed") as store:
        thread = store.create(title="The long one")
        extend(thread, messages(MANY))
        return path, thread.id


def _follow(writer: clew.Thread, reader: clew.Thread) -> float:
    """What another handle, which knows the thread already, takes to see one new record."""
    write = appender(writer)
    first = reader.info.seq

    def read_after(seq: int) -> float:
        write()
        return seconds(lambda: next(reader.read(after=seq)))

    return median(read_after(seq) for seq in range(first, first + _TURNS))


# --- the number of threads ------------------------------------------------------------------


def _by_neighbours(workshop: Workshop) -> Iterable[Figure]:
    many, one = _populated(workshop, _THREADS), _populated(workshop, 1)
    yield from _append_beside(workshop, many, one)
    yield from _open_and_list(many)
    yield from _open_and_append(many, one)


def _populated(workshop: Workshop, threads: int) -> Path:
    say(f"building a folder of {threads:,} threads")
    path = workshop.new_path()
    with clew.open(f"files:{path}", durability="relaxed") as store:
        for number, message in enumerate(messages(threads)):
            store.create(f"thread-{number}", title=f"Thread {number}").append_message(message)
        store.list(limit=_PAGE)
    return path


def _append_beside(workshop: Workshop, many: Path, one: Path) -> Iterable[Figure]:
    crowded, alone = (workshop.open(f"files:{path}").get("thread-0") for path in (many, one))
    with_many, with_none = in_rounds(
        _ROUNDS, lambda: take_turns(_TURNS, appender(crowded), appender(alone))
    )
    name = f"files: append beside {_THREADS:,} threads"
    yield ratio(f"{name} / alone in the store", with_many, with_none, at_most=1.3)


_OPEN = """
import sys
from time import perf_counter as now

import clew
import clew.engines.files

path, page = sys.argv[1], int(sys.argv[2])
begin = now()
with clew.open(f"files:{path}") as store:
    assert len(store.list(limit=page).items) == page
    print(now() - begin)
"""
_APPEND = """
import sys
from time import perf_counter as now

import clew
import clew.engines.files


def bytes_read():
    try:
        with open("/proc/self/io") as file:
            return int(file.readline().split()[1])
    except OSError:  # not Linux
        return 0


read = bytes_read()
begin = now()
with clew.open(f"files:{sys.argv[1]}") as store:
    store.get("thread-0").append("event", 1)
    print(now() - begin, bytes_read() - read)
"""


def _open_and_list(many: Path) -> Iterable[Figure]:
    (taken,) = in_rounds(_ROUNDS, lambda: tuple(child.run(_OPEN, many, _PAGE).numbers))
    name = f"files: open {_THREADS:,} threads, list {_PAGE}, in a new process"
    yield milliseconds(name, taken, at_most=50)


def _open_and_append(many: Path, one: Path) -> Iterable[Figure]:
    of_many, read_many, of_one, read_one = in_rounds(
        _ROUNDS,
        lambda: (*child.run(_APPEND, many).numbers, *child.run(_APPEND, one).numbers),
    )
    name = f"files: open {_THREADS:,} threads, append once"
    yield ratio(f"{name} / one thread", of_many, of_one, at_most=1.3)
    yield milliseconds(name, of_many)
    if all(read_one):
        yield ratio(f"{name} / one thread, bytes read", read_many, read_one, at_most=2)


# --- writers that come together -------------------------------------------------------------


def _group_commit(workshop: Workshop) -> Iterable[Figure]:
    with clew.open(f"files:{workshop.new_path()}") as store:
        together, apart, one = _compare(store, rounds=9, batch=messages(100))
    yield from _writers("this disk", together, apart, one)
    slow = SlowFiles(_DELAY_SECONDS)
    with clew.open(f"files:{workshop.new_path()}", disk=slow) as store:
        together, apart, one = _compare(store, rounds=9, batch=messages(40))
    yield from _writers(f"syncs {_DELAY_SECONDS * 1e3:.0f} ms slower", together, apart, one, 3)


def _compare(store: clew.Store, *, rounds: int, batch: list[Message]) -> list[list[Spent]]:
    """What an append costs: all writers on one thread, each on its own thread, one alone."""
    threads = [store.create() for _ in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as writers:

        def at_once(targets: Iterable[clew.Thread]) -> Callable[[], None]:
            def work() -> None:
                for _ in writers.map(lambda thread: append_all(thread, batch), targets):
                    pass

            return work

        count = _WRITERS * len(batch)
        return in_rounds(
            rounds,
            lambda: (
                spent(count, at_once(itertools.repeat(threads[0], _WRITERS))),
                spent(count, at_once(threads)),
                spent(len(batch), lambda: append_all(threads[0], batch)),
            ),
        )


def _writers(
    where: str,
    together: list[Spent],
    apart: list[Spent],
    one: list[Spent],
    at_least: float | None = None,
) -> Iterable[Figure]:
    name = f"files: {_WRITERS} writers"
    alone = rates(one)
    yield ratio(
        f"{name}, one thread / one writer, rate, {where}", rates(together), alone, at_least=at_least
    )
    yield ratio(f"{name}, a thread each / one writer, rate, {where}", rates(apart), alone)
    yield from costs(f"{name}, one thread, {where}", together)
    yield from costs(f"files: one writer, {where}", one)
