"""search: 100,000 messages, 100 MB of text: the first index, later searches, their quality."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import cycle
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import msgspec

import clew
from bench import child
from bench.figures import Figure, megabytes, milliseconds, ratio
from bench.messages import FORMAT, Message, messages
from bench.progress import say
from bench.server import relaxed, server
from bench.timing import in_rounds, seconds
from bench.workshop import Workshop
from clew.messages.incoming import message_draft

sys.path.append(str(Path(__file__).parent.parent.parent / "tests" / "search"))

_MESSAGES, _THREAD = 100_000, 100
_QUERIES = 300
_NEW = 100
_ROUNDS = 15
_APPEND_ROUNDS, _APPENDS = 60, 100  # a ratio near 1 needs many to be told from noise

# A process of its own, so that its memory is that of the index alone.
_FIRST = """
import sys, time, clew
with clew.open(sys.argv[1]) as store:
    begun = time.perf_counter()
    store.search("nothing to be found")
    print(time.perf_counter() - begun, store.searcher.ready()[0].size_bytes())
"""


def measure(workshop: Workshop) -> Iterable[Figure]:
    corpus = Corpus()
    path = workshop.new_path()
    yield from _store("SQLite", str(path), str(path), corpus, bars=True)
    yield from _append(workshop)
    yield from _quality(workshop)
    path = workshop.new_path()
    yield from _store("files", f"files:{path}", f"files:{path}", corpus, bars=False)
    with server() as cluster:
        address = cluster.dsn(cluster.create_database())
        yield from _store("PostgreSQL", address, relaxed(address), corpus, bars=False)


def _store(
    name: str, address: str, building: str, corpus: Corpus, *, bars: bool
) -> Iterable[Figure]:
    title = f"search: {_MESSAGES:,} messages, {name}"
    text_bytes = corpus.fill(building)
    say(f"indexing {text_bytes / 1e6:,.0f} MB of text")
    (took, size_bytes), memory = child.run(_FIRST, address)
    yield Figure(f"{title}, first index", took, "s", 30.0 if bars else None)
    yield megabytes(f"{title}, first index, memory", memory, at_most=300 if bars else None)
    share = size_bytes / text_bytes
    yield Figure(f"{title}, index / text", share, "x", 0.8 if bars else None)
    with clew.open(address) as store:
        store.search("begin")
        taken = [seconds(lambda q=query: store.search(q)) for query in corpus.queries(_QUERIES)]
        slowest = quantiles(taken, n=100)[98]
        yield milliseconds(f"{title}, a search", taken, at_most=50 if bars else None)
        yield milliseconds(f"{title}, a search, p99", [slowest], at_most=200 if bars else None)
        yield from _catch_up(title, store, 50 if bars else None)


def _catch_up(title: str, store: clew.Store, bar: float | None) -> Iterable[Figure]:
    """What a search takes longer when there is something new."""
    thread, taken = store.create(), []
    for _ in range(_ROUNDS):
        thread.append([message_draft(message, FORMAT) for message in messages(_NEW)])
        behind = seconds(lambda: store.search("zzz"))
        taken.append(max(0.0, behind - median(seconds(lambda: store.search("zzz")) for _ in "123")))
    yield milliseconds(f"{title}, catching up on {_NEW}", taken, at_most=bar)


def _append(workshop: Workshop) -> Iterable[Figure]:
    """A store that is searched beside one that never was."""
    searched, plain = (workshop.open().create() for _ in range(2))
    batch = messages(_APPENDS)
    searched.append_message(batch[0])
    searched.store.search("begin")

    def once(thread: clew.Thread) -> float:
        begun = time.perf_counter()
        for message in batch:
            thread.append_message(message)
        return time.perf_counter() - begun

    turns = cycle([False, True])

    def both() -> tuple[float, float]:
        if next(turns):
            return once(searched), once(plain)
        late = once(plain)
        return once(searched), late

    ours, theirs = in_rounds(_APPEND_ROUNDS, both)
    yield ratio("search: append to a store with an index / without", ours, theirs, at_most=1.05)


def _quality(workshop: Workshop) -> Iterable[Figure]:
    from search_questions import build, score

    with clew.open(workshop.new_path(), durability="relaxed") as store:
        found = score(store, build(store))
    for kind, (asked, first, five) in found.items():
        name = f"search: {asked:,} questions, {kind}"
        whole = kind == "all"
        yield Figure(f"{name}, hit@1", first / asked, "", 0.9 if whole else None, ">=")
        yield Figure(f"{name}, hit@5", five / asked, "", 0.95 if whole else None, ">=")


class Corpus:
    """Conversations with coding agents: prose by Zipf's law, and code of names that come again."""

    def __init__(self, seed: int = 3) -> None:
        self._chance = chance = random.Random(seed)
        letters = "eeeeetttaaoooiiinnsshhrrddllucmfwypvbgk"
        sizes = [2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10]
        self._words = list(
            dict.fromkeys(
                "".join(chance.choices(letters, k=chance.choice(sizes))) for _ in range(40_000)
            )
        )
        self._weights = list(itertools.accumulate(1 / (n + 3) for n in range(len(self._words))))
        self._names = [self._name() for _ in range(8_000)]
        self._name_weights = list(
            itertools.accumulate(1 / (n + 10) for n in range(len(self._names)))
        )

    def _pick(self, count: int) -> list[str]:
        return self._chance.choices(self._words, cum_weights=self._weights, k=count)

    def _name(self) -> str:
        parts = self._pick(self._chance.choice((1, 2, 2, 3)))
        if self._chance.random() < 0.35:
            return parts[0] + "".join(part.capitalize() for part in parts[1:])
        return "_".join(parts)

    def _prose(self, count: int) -> str:
        words = self._pick(count)
        for n in range(0, count, 12):
            words[n] = words[n].capitalize()
        return " ".join(words) + self._chance.choice((".", ".", " — naïve “quoted” → ok."))

    def _code(self, lines: int) -> str:
        names = iter(self._chance.choices(self._names, cum_weights=self._name_weights, k=4 * lines))
        return "\n".join(
            f"{n:4d}      {next(names)} = {next(names)}({next(names)}, {next(names)})"
            for n in range(lines)
        )

    def _message(self, number: int) -> Message:
        match number % 6:
            case 0:
                return {"role": "user", "content": self._prose(60)}
            case 1 | 3:
                name = self._chance.choice(("read_file", "bash", "edit_file", "grep"))
                given = {"path": f"src/{'/'.join(self._pick(2))}.py", "text": self._code(9)}
                function = {"name": name, "arguments": msgspec.json.encode(given).decode()}
                call = {"id": f"call_{number}", "type": "function", "function": function}
                return {"role": "assistant", "content": self._prose(30), "tool_calls": [call]}
            case 2 | 4:
                content = self._code(24)
                return {"role": "tool", "tool_call_id": f"call_{number - 1}", "content": content}
            case _:
                return {"role": "assistant", "content": self._prose(170)}

    def fill(self, address: str) -> int:
        """Write the messages; how many bytes of text that is."""
        say(f"building a store of {_MESSAGES:,} messages")
        options: dict[str, Any] = {} if "://" in address else {"durability": "relaxed"}
        text_bytes = 0
        with clew.open(address, **options) as store:
            for _ in range(_MESSAGES // _THREAD):
                batch = [self._message(number) for number in range(_THREAD)]
                text_bytes += sum(len(text.encode()) for one in batch for text in _texts(one))
                thread = store.create(title=" ".join(self._pick(5)))
                thread.append([message_draft(message, FORMAT) for message in batch])
        return text_bytes

    def queries(self, count: int) -> Iterator[str]:
        """What people type: a rare word, some words, a name, a phrase, a prefix, all sorts."""
        rare = self._words[200:20_000]
        kinds = (
            lambda: self._chance.choice(rare),
            lambda: " ".join(self._chance.sample(rare[:3_000], 2)),
            lambda: " ".join(self._pick(3)),
            lambda: self._chance.choice(self._names),
            lambda: f'"{" ".join(self._pick(2))}"',
            lambda: f"{self._chance.choice(rare)[:4]}*",
            lambda: f"{self._pick(1)[0]} OR {self._chance.choice(rare)}",
            lambda: f"{self._pick(1)[0]} -{self._pick(1)[0]}",
            lambda: " ".join((*self._pick(4), self._chance.choice(rare))),
        )
        for number in range(count):
            yield kinds[number % len(kinds)]()


def _texts(message: Message) -> Iterator[str]:
    yield message["content"]
    for call in message.get("tool_calls", ()):
        yield call["function"]["arguments"]
