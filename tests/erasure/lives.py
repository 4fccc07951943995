"""A store that lives at random: words of its own in every place, and removals of every sort.

Each step mints words, so that each word stands where that step put it. What must still be said is
known from the steps alone, and compared with what the store says; what the store does not say any
more must be in no byte of its folder, of its caches, and of what this machine remembers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from markers import Mint, anywhere, in_bytes, in_tables

import clew
from clew.core.model import Entry, Fact, Record, ThreadInfo
from clew.core.removal import Receipt
from clew.core.tombstones import used_blobs
from clew.facets.runs import Checkpoint
from clew.snapshots import catalogue
from clew.upkeep.proof import prove
from clew.upkeep.transfer import everything

Work = Callable[["Life"], object]
WORKS: list[tuple[int, Work]] = []
LARGE_BYTES = 9_000
THREADS_MAX = 14
Key = tuple[str, str]  # a record: its thread and its id


def often(times: int) -> Callable[[Work], Work]:
    def mark(work: Work) -> Work:
        WORKS.append((times, work))
        return work

    return mark


class Life:
    """A store, what was written to it, and what was removed from it."""

    def __init__(self, address: str, folder: Path, seed: int) -> None:
        self.address = address
        self.folder = folder
        self.random = random.Random(seed)
        self.mint = Mint(seed)
        self.minted: set[str] = set()
        self.dead: set[str] = set()  # words that must not be there, as of the last check
        self.said: dict[Key, set[str]] = {}  # records, and the words in them
        self.shared: dict[str, set[Key]] = {}  # forks, and what they share
        self.erased: set[Key] = set()
        self.receipts: list[Receipt] = []
        self.loose: set[str] = set()  # words in blobs that a sweep has yet to look at
        self.owners: dict[str, set[str]] = {}  # of leases, by thread: they stay with it
        self.origins: dict[str, str] = {}  # of threads, also of those that were purged since
        self.steps: list[str] = []
        self.store = clew.open(address)
        self.beside = clew.open(address) if self.store.properties.processes else self.store

    def close(self) -> None:
        self.beside.close()
        self.store.close()

    def run(self, count: int) -> None:
        times, works = zip(*WORKS, strict=True)
        for work in self.random.choices(works, times, k=count):
            self.steps.append(work.__name__)
            with suppress(clew.NotFound, clew.Conflict):
                work(self)
            self.learn()

    # --- words ---

    def word(self) -> str:
        made = self.mint.word()
        self.minted.add(made)
        return made

    def text(self) -> str:
        """A word among others: short, or over what stands in a row."""
        if self.random.random() < 0.2:
            filler = " ".join(str(self.random.random()) for _ in range(LARGE_BYTES // 18))
            return f"{filler} {self.word()} and more"
        return f"it is {self.word()} " * self.random.randint(1, 3)

    def message(self, role: str = "user") -> dict[str, Any]:
        return {"role": role, "content": self.text()}

    # --- threads ---

    def infos(self) -> list[ThreadInfo]:
        return list(everything(self.store.engine))

    @property
    def thread(self) -> clew.Thread:
        """Any that is there and not deleted."""
        found = sorted(info.id for info in self.infos() if info.deleted_at is None)
        if not found:
            return self.store.create(self.word())
        return self.store.get(self.random.choice(found))

    def entry_of(self, thread: clew.Thread) -> Entry:
        path = thread.path()
        if not path:
            return thread.append_message(self.message())
        return self.random.choice(path)

    @property
    def root(self) -> Path:
        return self.folder / f"project{self.random.randrange(2)}"

    # --- what must be there ---

    def learn(self) -> None:
        """What was written since: which words stand in which record, and who shares what."""
        for info in self.infos():
            for record in records(self.store, info.id):
                key = (record.thread, record.id)
                if key not in self.said:
                    self.said[key] = words_of(record)
            if info.origin is not None:
                self.origins[info.id] = info.origin.thread
            if info.origin is not None and info.id not in self.shared:
                self.shared[info.id] = set()
                if info.origin.entry is not None:
                    path = self.store.engine.path(info.id, info.origin.entry)
                    self.shared[info.id] = {(one.thread, one.id) for one in path}

    def forget_thread(self, id: str) -> None:
        """It was purged: what no fork shares is not there any more."""
        self.shared.pop(id, None)
        self.owners.pop(id, None)
        needed = set().union(*self.shared.values())
        for key in [key for key in self.said if key[0] == id or key[0] not in self.living()]:
            if key not in needed:
                del self.said[key]

    def living(self) -> set[str]:
        return {info.id for info in self.infos()}

    def must_be_said(self) -> set[str]:
        found = [words for key, words in self.said.items() if key not in self.erased]
        return set().union(*found)

    # --- what is there ---

    def records(self, thread: str) -> Iterator[Record]:
        """All that can be read in a thread: what it has, and what it shares."""
        yield from records(self.store, thread)
        info = self.store.engine.thread(thread)
        if info.origin is not None and info.origin.entry is not None:
            yield from self.store.engine.path(thread, info.origin.entry)

    def says(self) -> set[str]:
        """Every word in the records that can be read."""
        found: set[str] = set()
        for info in self.infos():
            for record in self.records(info.id):
                found |= words_of(record)
        return found

    def names(self) -> set[str]:
        """Words in ids: of threads, of what they began in, and of threads that entries are of."""
        found: set[str] = set()
        for info in self.infos():
            origin = None if info.origin is None else info.origin.thread
            owners = {record.thread for record in self.records(info.id)}
            # What is left of a purged thread for its forks names what it was forked from itself.
            owners |= {self.origins[id] for id in owners if id in self.origins}
            found |= in_bytes(" ".join(filter(None, [info.id, info.parent, origin])).encode())
            found |= in_bytes(" ".join(owners).encode())
        return found

    def holds(self) -> set[str]:
        """Words in blobs, and in the files of snapshots and their names."""
        found: set[str] = set()
        for info in self.infos():
            for record in self.records(info.id):
                for hash in used_blobs(record):
                    with suppress(clew.NotFound):
                        found |= in_bytes(self.store.engine.get_blob(hash))
            snapshots = self.store.get(info.id, deleted=True).snapshots
            for snapshot in catalogue.visible(self.store.engine, info):
                for path, node in snapshots.files(snapshot):
                    found |= in_bytes(path.encode())
                    if not node.is_folder:
                        found |= in_bytes(snapshots.read(snapshot, path))
        return found

    # --- looking ---

    def check(self, folders: list[Path]) -> None:
        """What is said is what must be; what is not said is nowhere in the bytes."""
        context = f"after {len(self.steps)} steps: {self.steps[-12:]}"
        assert self.store.verify() == [], context
        said = self.says()
        assert said == self.must_be_said(), context
        held = self.holds()
        if self.random.random() < 0.7:
            self.store.sweep(grace_seconds=0)
            self.loose = set()
            assert self.holds() == held, context
        self.loose |= held
        owners = set().union(*(self.owners.get(id, set()) for id in self.living()))
        known = said | self.names() | self.loose | owners
        self.dead = self.minted - known
        left = anywhere(folders, self.dead)
        if self.store.properties.processes and not self.store.properties.own_files:
            left |= in_tables(self.address, self.dead)
        assert left == {}, f"{context}\n{left}"
        self.check_receipts()
        for word in self.random.sample(sorted(self.minted), min(6, len(self.minted))):
            if word not in known:
                assert self.store.search(word).total == 0, context
                assert self.beside.search(word).total == 0, context

    def check_receipts(self) -> None:
        """A proof finds traces where something of it is there again, or a fork needs it."""
        ids, bodies = set[str](), set[str]()
        for info in self.infos():
            ids |= {info.id, info.parent or "", info.origin.thread if info.origin else ""}
            for record in self.records(info.id):
                ids.add(record.thread)
                if isinstance(record, Entry) and record.tombstone is None:
                    bodies.add(record.body_hash)
        for receipt in self.random.sample(self.receipts, min(3, len(self.receipts))):
            proof = prove(self.store, receipt)
            gone = {one.body_hash for one in receipt.entries}
            back = bool(gone & bodies) or bool(
                ids & set(receipt.threads) and receipt.what == "purge"
            )
            back |= bool(self.store.engine.has_blobs(gone | set(receipt.blobs)))
            assert proof.clean != back, (proof.traces, receipt, self.steps[-12:])


def records(store: clew.Store, thread: str) -> Iterator[Record]:
    after = 0
    while page := store.engine.read(thread, after=after, limit=500):
        yield from page
        after = page[-1].seq


def words_of(record: Record) -> set[str]:
    """Words that a record says; not those of its ids."""
    if isinstance(record, Entry):
        return in_bytes(record.data) | in_bytes(record.meta_data or b"")
    return in_bytes(record.data) if isinstance(record, Fact) else set()


# --- writing ---


@often(4)
def create(life: Life) -> None:
    if len(life.infos()) >= THREADS_MAX:
        return
    parent = life.thread.id if life.random.random() < 0.2 else None
    life.store.create(
        life.word(),
        title=f"about {life.word()}",
        tags=[life.word()],
        workspace=f"/w/{life.word()}",
        parent=parent,
        facts={"note": life.text()},
    )


@often(12)
def append(life: Life) -> None:
    for role in ("user", "assistant") * life.random.randint(1, 3):
        life.thread.append_message(life.message(role), meta={"by": life.word()})


@often(4)
def append_many(life: Life) -> None:
    thread = life.thread
    thread.append([clew.draft("note", life.text()) for _ in range(life.random.randint(2, 30))])


@often(4)
def append_blobs(life: Life) -> None:
    data = [life.text().encode() for _ in range(2)]
    life.loose |= in_bytes(b" ".join(data))
    blobs = [life.store.blobs.put(one) for one in data]
    life.thread.append("event", {"of": life.word()}, blobs=blobs)


@often(4)
def use_a_tool(life: Life) -> None:
    thread, call = life.thread, life.word()
    asked = {"type": "tool_use", "id": "call", "name": "look", "input": {"q": call}}
    usage = {"input_tokens": 5, "output_tokens": 6}
    reply = {"role": "assistant", "content": [asked], "usage": usage, "model": life.word()}
    thread.append("assistant_message", reply, format="anthropic")
    result = {"type": "tool_result", "tool_use_id": "call", "content": life.text()}
    thread.append("tool_result", {"role": "user", "content": [result]}, format="anthropic")


@often(6)
def set_facts(life: Life) -> None:
    thread = life.thread
    thread.set(title=life.word(), note=life.text(), tags=[life.word()], status=life.word())
    thread.label(life.entry_of(thread).id, life.word())


@often(3)
def open_a_turn(life: Life) -> None:
    thread = life.thread
    owner = life.word()
    life.owners.setdefault(thread.id, set()).add(owner)
    with suppress(ZeroDivisionError), thread.turn(owner=owner) as turn:
        turn.append_message(life.message())
        if life.random.random() < 0.3:
            raise ZeroDivisionError(life.word())
        turn.save_point({"at": life.word()})


@often(4)
def stream(life: Life) -> None:
    thread = life.thread
    with thread.streaming("openai-chat") as reply:
        for _ in range(3):
            delta = {"role": "assistant", "content": life.word() + " "}
            choice = {"index": 0, "delta": delta, "finish_reason": None}
            reply.feed({"id": "c", "object": "chat.completion.chunk", "choices": [choice]})
            reply.save()
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        reply.feed({"id": "c", "object": "chat.completion.chunk", "choices": [end]})


@often(5)
def fork(life: Life) -> None:
    if len(life.infos()) < THREADS_MAX:
        thread = life.thread
        at = life.entry_of(thread).id
        made = life.store.fork(thread.id, at=at, id=life.word(), title=life.word())
        made.append_message(life.message())


@often(1)
def clone(life: Life) -> None:
    if len(life.infos()) < THREADS_MAX:
        life.store.clone(life.thread.id, id=life.word())


@often(1)
def adopt(life: Life) -> None:
    made = [info for info in life.infos() if info.origin and info.deleted_at is None]
    if made:
        fork = life.random.choice(made)
        assert fork.origin is not None
        with suppress(clew.InvalidInput):
            life.store.get(fork.origin.thread).adopt(fork.id, force=True)


@often(2)
def move(life: Life) -> None:
    thread = life.thread
    thread.move(life.entry_of(thread).id)


@often(2)
def compact(life: Life) -> None:
    life.thread.compact(summary=f"they said {life.word()}", keep_turns=1)


@often(4)
def take_a_snapshot(life: Life) -> None:
    root = life.root
    root.mkdir(exist_ok=True)
    for path in sorted(root.iterdir()):
        if life.random.random() < 0.5:
            path.unlink()
    for _ in range(2):
        (root / f"{life.word()}.txt").write_text(life.text())
    for path in root.iterdir():
        life.loose |= in_bytes(path.name.encode() + path.read_bytes())
    life.thread.snapshots.take(root, label=life.word())


@often(4)
def converse(life: Life) -> None:
    one = life.store.conversations.get_or_create(f"c{life.random.randrange(2)}")
    for _ in range(life.random.randint(1, 4)):
        one.add(life.random.choice(["user", "assistant"]), life.text())
    if life.random.random() < 0.3:
        one.set_summary(life.text())
    if life.random.random() < 0.3:
        one.set_history([life.message(), life.message("assistant")])


@often(3)
def save_a_run(life: Life) -> None:
    run = Checkpoint(
        run_id=f"r{life.random.randrange(2)}",
        task_name=life.word(),
        system_prompt=life.text(),
        metadata={"m": life.word()},
        messages=[life.message() for _ in range(life.random.randint(1, 3))],
    )
    life.store.runs.save(run)


@often(3)
def save_a_session(life: Life) -> None:
    made = life.store.sessions.new("v", "e", "m", workspace=f"/{life.word()}", id=None)
    made.messages += [life.message(), life.message("assistant")]
    made.cost = {"of": life.word()}
    if len(life.infos()) < THREADS_MAX:
        life.store.sessions.save(made)
        life.store.sessions.append_checkpoint(made.id, [life.message()], 5)


# --- what is made of it ---


@often(6)
def derive(life: Life) -> None:
    """Indexes, counts and contexts, in both handles."""
    for store in (life.store, life.beside):
        store.search(life.random.choice(sorted(life.minted) or ["none"]))
        store.usage()
        store.unfinished_turns()
        for info in life.infos():
            if info.deleted_at is None:
                store.get(info.id).context("plain")


@often(3)
def pack(life: Life) -> None:
    life.store.pack(tail=1, idle_seconds=life.random.choice([0, 86400]))


@often(1)
def open_anew(life: Life) -> None:
    if life.store.properties.processes:
        life.close()
        life.store, life.beside = clew.open(life.address), clew.open(life.address)


# --- removing ---


@often(8)
def erase(life: Life) -> None:
    thread = life.thread
    path = thread.path()
    if path:
        chosen = life.random.sample(path, min(len(path), life.random.randint(1, 4)))
        life.learn()
        receipt = life.store.erase(thread.id, [entry.id for entry in chosen])
        done = {(one.thread, one.entry) for one in receipt.entries}
        assert {(entry.thread, entry.id) for entry in chosen} <= done
        life.erased |= done
        life.receipts.append(receipt)
        there = life.store.engine.has_blobs(receipt.blobs)
        assert there == set()


@often(5)
def purge(life: Life) -> None:
    infos = life.infos()
    if infos:
        life.learn()
        id = life.random.choice(sorted(info.id for info in infos))
        receipt = life.store.purge(id).receipt
        assert receipt is not None
        life.receipts.append(receipt)
        life.forget_thread(id)


@often(1)
def delete(life: Life) -> None:
    life.store.delete(life.thread.id)


@often(1)
def clean_up(life: Life) -> None:
    life.learn()
    report = life.store.cleanup(older_than=timedelta(0), limit=2)
    life.receipts += report.receipts
    for id in report.purged:
        life.forget_thread(id)


@often(1)
def drop_a_snapshot(life: Life) -> None:
    thread = life.thread
    for snapshot in thread.snapshots.list():
        if snapshot.thread == thread.id:
            thread.snapshots.drop(snapshot.id)
            return
