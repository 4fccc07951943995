"""The writing operations as data: the same for every engine, with fixed ids and times.

Each begins at a store that `prepare` made and acknowledged. Run twice, an operation must give
what it gives once: that is what a caller does who does not know how the first try ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from faults.stores import WALL_US

from clew.context import compaction
from clew.core import drafts
from clew.core.codec import digest, encode
from clew.core.engine import Engine
from clew.core.errors import LeaseHeld, NotFound
from clew.core.model import (
    Acquire,
    Draft,
    EntryDraft,
    FactDraft,
    MoveDraft,
    Origin,
    Release,
    Renew,
    ThreadDraft,
)
from clew.engines.memory import MemoryEngine
from clew.store import Store

LARGE = "a tool's output of some length, which becomes a blob\n" * 400
LOOSE = [b"a loose blob " * 40, bytes(range(256)) * 90, b"another " * 9000]
KEPT, PURGED = b"kept " * 900, b"purged " * 900
HASHES = tuple(
    digest(data)
    for data in (
        *LOOSE,
        KEPT,
        PURGED,
        *(encode({"text": LARGE + name}) for name in ("", "p", "b", "c")),
    )
)
PROBED = "probed"  # a thread that only `probe` writes


@dataclass(frozen=True)
class Operation:
    """`run` may be repeated. `atomic`: a failure leaves all of it or nothing of it."""

    name: str
    run: Callable[[Engine], object]
    prepare: Callable[[Engine], object] = lambda engine: None
    atomic: bool = True
    opens: bool = False  # opening the store is part of it: nothing is opened before
    empty: bool = False  # it begins with no store at all
    torn: bool = False  # it begins with a store whose last append was torn by death


def entry(id: str, body: object, kind: str = "user_message", **fields: object) -> EntryDraft:
    return EntryDraft(id=id, kind=kind, data=encode(body), time_us=WALL_US + 1, **fields)  # type: ignore[arg-type]


def fact(id: str, key: str, value: object) -> FactDraft:
    return FactDraft(id=id, key=key, data=encode(value), time_us=WALL_US + 2)


def thread(id: str, *facts: FactDraft, origin: Origin | None = None) -> ThreadDraft:
    return ThreadDraft(id=id, created_us=WALL_US, facts=facts, origin=origin)


def _begin(engine: Engine) -> None:
    engine.create(thread("t", fact("t1", "title", {"text": "a title"}), fact("t2", "tags", ["a"])))


def _say(n: int) -> Callable[[Engine], object]:
    role = ("user", "assistant")[n % 2]
    said = entry(f"e{n}", {"role": role, "content": f"message {n}"}, f"{role}_message")
    return lambda engine: engine.append("t", [said])


def _result(engine: Engine) -> None:
    engine.append("t", [entry("e6", {"text": LARGE}, "tool_result", blobs=(digest(KEPT),))])


def _fork(engine: Engine) -> None:
    hash = engine.path("t", "e3", limit=1)[0].hash
    engine.create(thread("f", origin=Origin("t", "e3", hash)))


def _large(engine: Engine) -> None:
    blobs = (digest(PURGED),)
    engine.append("p", [entry("p1", {"text": LARGE + "p"}, blobs=blobs), entry("p2", "two")])


STEPS: list[Callable[[Engine], object]] = [
    _begin,
    lambda engine: engine.put_blobs([KEPT, PURGED]),
    *(_say(n) for n in range(6)),
    _result,
    _fork,
    lambda engine: engine.append("f", [entry("f1", "in a fork"), entry("f2", "and one more")]),
    lambda engine: engine.create(thread("p", fact("p0", "title", {"text": "to be purged"}))),
    _large,
    lambda engine: engine.create(thread("l")),
    lambda engine: engine.lease("l", Acquire("somebody", 60.0)),
    lambda engine: engine.create(thread(PROBED)),
]


def prepare(engine: Engine) -> None:
    """A store with a bit of everything, all of it acknowledged."""
    for step in STEPS:
        step(engine)


def warm(engine: Engine) -> None:
    """Acknowledged writes on the very handle that will meet the fault."""
    engine.append("t", [entry("warm", {"content": "x" * 300}, parent="e6")])


def probe(engine: Engine) -> None:
    """A later write, to see whether a handle still acknowledges."""
    engine.append(PROBED, [entry("probe", "is anybody there?", parent=None)])


# --- the operations -------------------------------------------------------------------------


def append(engine: Engine) -> None:
    engine.append("t", [entry("a1", {"content": "one"}, parent="warm")])


def append_large(engine: Engine) -> None:
    engine.append("t", [entry("a2", {"text": LARGE + "b"}, parent="warm", kind="tool_result")])


def append_batch(engine: Engine) -> None:
    batch: list[Draft] = [
        entry("b1", {"content": "first"}, parent="warm"),
        entry("b2", {"text": LARGE + "c"}, "tool_result"),
        fact("b3", "status", "busy"),
        MoveDraft(id="b4", leaf="e2", time_us=WALL_US + 3),
        entry("b5", {"content": "y" * 5000}),
    ]
    engine.append("t", batch)


def set_facts(engine: Engine) -> None:
    values = [("title", {"text": "another"}), ("tags", ["b", "c"]), ("workspace", "/w")]
    engine.append("t", [fact(f"s{n}", key, value) for n, (key, value) in enumerate(values)])


def create(engine: Engine) -> None:
    engine.create(thread("new", fact("n1", "title", {"text": "new"}), fact("n2", "tags", ["a"])))


def fork(engine: Engine) -> None:
    hash = engine.path("t", "e4", limit=1)[0].hash
    engine.create(thread("fork", fact("k1", "tags", ["a"]), origin=Origin("t", "e4", hash)))


def move(engine: Engine) -> None:
    engine.append("t", [MoveDraft(id="m1", leaf="e1", time_us=WALL_US + 4)])


FENCE = WALL_US  # of the first lease: a fence is at least the time, which stands still here


def acquire(engine: Engine) -> None:
    try:
        engine.lease("t", Acquire("me", 60.0, "turn"))
    except LeaseHeld as error:
        if error.owner != "me":
            raise


def renew(engine: Engine) -> None:
    engine.lease("l", Renew(FENCE, 120.0))


def release(engine: Engine) -> None:
    engine.lease("l", Release(FENCE))


def compact(engine: Engine) -> None:
    opened = Store(engine).get("t")
    decided = compaction.prepare(opened, keep_turns=1)
    if decided is None or opened.info.leaf == "c1":
        return
    body = compaction.compaction_body(
        decided.previous,
        first_kept=decided.first_kept,
        through=decided.compacted_through,
        summary="what was said before",
    )
    body |= {"compaction_id": "c", "window_id": "c"}
    made = drafts.draft("compaction", body, id="c1", time=opened.info.created_at)
    engine.append("t", [made], expect="warm")


def delete(engine: Engine) -> None:
    engine.append("t", [fact("d1", "deleted_us", WALL_US + 5)])


def purge(engine: Engine) -> None:
    _purge(engine, "p")


def purge_shared(engine: Engine) -> None:
    _purge(engine, "t")


def _purge(engine: Engine, id: str) -> None:
    try:
        engine.purge(id)
    except NotFound as error:
        if (error.what, error.id) != ("thread", id):
            raise


def erase(engine: Engine) -> None:
    """A small body that a fork shares, and a large one."""
    engine.erase("t", ["e1", "e6"], time_us=WALL_US + 6, reason="a test")


def erase_shared(engine: Engine) -> None:
    """Of a thread that was purged but for what a fork shares."""
    engine.erase("g", ["p1"], time_us=WALL_US + 6)


def _share(engine: Engine) -> None:
    hash = engine.path("p", "p1", limit=1)[0].hash
    engine.create(thread("g", origin=Origin("p", "p1", hash)))
    engine.purge("p")


def put_blobs(engine: Engine) -> None:
    engine.put_blobs(LOOSE)


def sweep(engine: Engine) -> None:
    engine.sweep(grace_seconds=0.0)


def lengthen(engine: Engine, id: str = "t") -> None:
    """Make a thread that is worth a pack, and train nothing."""
    text = "what many messages say, so that packing them pays: "
    engine.append(id, [entry(f"long{n}", {"text": text + str(n)}) for n in range(140)])


RESTS = {"tail": 1, "idle_seconds": -60.0}  # entries are a bit later than the clock, which stands


def pack(engine: Engine) -> None:
    engine.pack(**RESTS)


def pack_and_shrink(engine: Engine) -> None:
    engine.pack(**RESTS, shrink=True)


def _rest(engine: Engine) -> None:
    """A thread that nothing is written to but by the operation, packed."""
    for step in (_begin_to_rest, _lengthen_what_rests, pack):
        step(engine)


def _begin_to_rest(engine: Engine) -> None:
    engine.create(thread("k", fact("k1", "title", {"text": "rests"})))


def _lengthen_what_rests(engine: Engine) -> None:
    lengthen(engine, "k")


def append_to_packed(engine: Engine) -> None:
    engine.append("k", [entry("w1", {"content": "goes on"}, parent="long139")])


def purge_packed(engine: Engine) -> None:
    _purge(engine, "k")


def erase_packed(engine: Engine) -> None:
    engine.erase("k", ["long7", "long8"], time_us=WALL_US + 6, reason="a test")


def copy(engine: Engine) -> None:
    """From a store with threads that are new here, known here, and a fork of a purged one."""
    source = MemoryEngine()
    prepare(source)
    warm(source)
    for step in (append, append_large, create, fork, purge_shared):
        step(source)
    source.append("f", [entry("f3", "and one that is new"), entry("f4", {"text": LARGE})])
    report = Store(source).copy_to(Store(engine))
    assert report.having("damaged", "blocked", "unrelated") == []


def close(engine: Engine) -> None:
    engine.close()


def nothing(engine: Engine) -> None:
    pass


OPERATIONS = [
    Operation("append", append),
    Operation("append a large body", append_large),
    Operation("append a batch", append_batch),
    Operation("set facts", set_facts),
    Operation("create", create),
    Operation("fork", fork),
    Operation("move", move),
    Operation("acquire a lease", acquire),
    Operation("renew a lease", renew),
    Operation("release a lease", release),
    Operation("compaction", compact),
    Operation("delete", delete),
    Operation("purge", purge),
    Operation("purge what a fork shares", purge_shared),
    Operation("erase", erase),
    Operation("erase what is left of a purged thread", erase_shared, prepare=_share),
    Operation("put blobs", put_blobs),
    Operation("sweep", sweep, prepare=put_blobs),
    Operation("pack", pack, prepare=lengthen),
    Operation("pack and shrink", pack_and_shrink, prepare=lengthen),
    Operation("append to what is packed", append_to_packed, prepare=_rest),
    Operation("purge what is packed", purge_packed, prepare=_rest),
    Operation("erase in what is packed", erase_packed, prepare=_rest),
    Operation("close", close),
    Operation("copy", copy, atomic=False),
    Operation("open", nothing, opens=True),
    Operation("recover", append, opens=True, torn=True),
    Operation("migrate", nothing, opens=True, empty=True),
]

# One after the other on one store; each is acknowledged before the next one begins.
SEQUENCE = [
    *STEPS,
    warm,
    compact,
    append,
    append_large,
    append_batch,
    set_facts,
    create,
    fork,
    move,
    put_blobs,
    renew,
    release,
    acquire,
    probe,
    purge,
    erase,
    sweep,
    pack,
    _begin_to_rest,
    _lengthen_what_rests,
    pack,
    append_to_packed,
    erase_packed,
    pack,
    delete,
    purge_shared,
]
