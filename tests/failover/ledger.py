"""What writers say they wrote, beside what the store holds: lost, doubled, out of order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import clew
from clew.core.model import Entry, Record


@dataclass(frozen=True)
class Ack:
    """An append that was acknowledged: who, when, and under which ids."""

    writer: str
    item: int
    time: float
    thread: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Unknown:
    """An append of which nobody could say whether it was done; `known`: it can be repeated."""

    writer: str
    item: int
    known: bool
    error: str


@dataclass
class Ledger:
    """All that the logs in a folder have said so far."""

    folder: Path
    tries: dict[tuple[str, int], int] = field(default_factory=dict)  # → how many entries
    acks: list[Ack] = field(default_factory=list)
    unknown: list[Unknown] = field(default_factory=list)
    unavailable: Counter[str] = field(default_factory=Counter)  # who → how often
    errors: list[str] = field(default_factory=list)
    seen: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    _read: dict[Path, int] = field(default_factory=dict)

    def catch_up(self) -> Ledger:
        for path in sorted(self.folder.iterdir()):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # being written
                    self._read[path] = self._read.get(path, 0) + len(line)
                    self._take(path.stem, json.loads(line))
        return self

    def _take(self, who: str, line: dict[str, Any]) -> None:
        match line["said"]:
            case "try":
                self.tries[who, line["item"]] = line["count"]
            case "ack":
                ids = tuple(line["ids"])
                self.acks.append(Ack(who, line["item"], line["time"], line["thread"], ids))
            case "unknown":
                self.unknown.append(Unknown(who, line["item"], line["known"], line["error"]))
                self.unavailable[who] += 1
            case "refused":
                self.unavailable[who] += 1
            case "seen":
                self.seen.setdefault(who, []).append((line["seq"], line["id"]))
            case "error":
                self.errors.append(f"{who}, item {line['item']}: {line['error']}")

    def last_words(self) -> dict[str, bytes]:
        """The end of every log, to see who hangs and where."""
        return {path.stem: path.read_bytes()[-400:] for path in self.folder.iterdir()}

    def gaps(self, writers: Iterable[str], since: float, until: float) -> tuple[float, float]:
        """The longest time without an acknowledgement: for all together, and for the unluckiest."""
        times = {who: [ack.time for ack in self.acks if ack.writer == who] for who in writers}
        together = sorted(time for own in times.values() for time in own)
        apart = [longest(own, since, until) for own in times.values()]
        return longest(together, since, until), max(apart)


def longest(times: Sequence[float], since: float, until: float) -> float:
    """The longest pause that touches the time from `since` to `until`."""
    bounded = [*(time for time in times if time <= until), until]
    return max((b - a for a, b in pairwise(bounded) if b >= since), default=0.0)


@dataclass
class Contents:
    """A store as it is read: each thread's records."""

    threads: dict[str, list[Record]]

    @classmethod
    def of(cls, store: clew.Store, threads: Iterable[str]) -> Contents:
        return cls({id: list(store.get(id).read()) for id in threads})

    def entries(self) -> Iterable[tuple[str, Entry]]:
        for id, records in self.threads.items():
            for record in records:
                if isinstance(record, Entry):
                    yield id, record


@dataclass
class Finding:
    """What a comparison of a ledger with a store's contents came to."""

    lost: set[tuple[str, str]]  # thread, entry id
    doubled: list[str]
    misheard: list[str]
    problems: list[str]
    unknown_there: int
    unknown_not_there: int


def compare(acks: Sequence[Ack], ledger: Ledger, contents: Contents) -> Finding:
    """`acks` are those that were there before the contents were read; the ledger, all of it."""
    there = {(thread, entry.id) for thread, entry in contents.entries()}
    marks = Counter(entry.body["mark"] for _, entry in contents.entries())
    lost = {(a.thread, id) for a in acks for id in a.ids} - there
    doubled = [f"{mark} is there {n} times" for mark, n in marks.items() if n > 1]
    problems = [*out_of_order(contents), *ledger.errors]
    problems += [f"{m} is there, and nobody wrote it" for m in marks if not _tried(m, ledger)]
    acked = {(ack.writer, ack.item) for ack in ledger.acks}
    open_ = {(u.writer, u.item) for u in ledger.unknown} - acked
    found = sum(f"{writer}/{item}/0" in marks for writer, item in open_)
    heard = misheard(ledger, contents)
    return Finding(lost, doubled, heard, problems, found, len(open_) - found)


def _tried(mark: str, ledger: Ledger) -> bool:
    writer, item, n = mark.split("/")
    return int(n) < ledger.tries.get((writer, int(item)), 0)


def out_of_order(contents: Contents) -> list[str]:
    """Every seq is there, and every entry hangs on one that was there before it."""
    problems = []
    for id, records in contents.threads.items():
        known: set[str | None] = {None}
        for n, record in enumerate(records, 1):
            if record.seq != n:
                problems.append(f"{id}: seq {record.seq} is where {n} should be")
                break
            if isinstance(record, Entry):
                if record.parent not in known:
                    problems.append(f"{id}: entry {record.id} hangs on nothing ({record.parent})")
                known.add(record.id)
    return problems


def misheard(ledger: Ledger, contents: Contents) -> list[str]:
    """Followers hear every record of the first thread once, and in order."""
    thread = next(iter(contents.threads))
    stored = [(record.seq, record.id) for record in contents.threads[thread]]
    problems = []
    for who, seen in ledger.seen.items():
        upto = seen[: len(stored)]
        if upto != stored[: len(upto)]:
            at = next(n for n, (a, b) in enumerate(zip(upto, stored, strict=False)) if a != b)
            problems.append(f"{who} heard {upto[at]} where {thread} has {stored[at]}")
    return problems
