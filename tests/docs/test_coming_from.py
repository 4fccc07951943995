"""Every row of docs/explain/coming-from.md about the session tree is true, on every engine.

The rows of its projection and of the other systems are in the modules beside this one.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from _rows import PAGE, PARTS, ROW, Claims

import clew
from clew import AlreadyExists, Conflict, InvalidInput, LeaseHeld, LeaseLost, NotFound, Unavailable
from clew.core.model import KINDS, TURN_STATUSES
from clew.engines.postgres import PostgresEngine
from clew.store import Store
from clew.thread import Thread

TREE = Claims("tree")
row = TREE.row


@pytest.mark.parametrize("name", PARTS["tree"])
def test_row(name: str, store: Store) -> None:
    try:
        TREE.check(store, name)
    finally:
        while OPENED:
            OPENED.pop().close()


def test_every_claim_has_its_row_and_no_row_comes_twice() -> None:
    TREE.check_complete()


def test_every_row_of_the_page_belongs_to_a_part() -> None:
    assert sum(map(len, PARTS.values())) == len(ROW.findall(PAGE.read_text("utf-8")))


def test_every_row_has_three_columns_and_a_call() -> None:
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("| `"):
            there, here, _ = (cell.strip() for cell in line.strip("|").split(" |"))
            assert there
            assert here, f"{there} leads nowhere"


# --- helpers ---

OPENED: list[Store] = []
ASKED = {"role": "user", "content": "The login is broken."}


def grown(store: Store, *ids: str, thread: str = "t") -> Thread:
    made = store.create(thread)
    for id in ids:
        made.append("user_message", {"n": id}, id=id)
    return made


def talked(store: Store, turns: int) -> Thread:
    thread = store.create()
    for n in range(turns):
        thread.append_message({"role": "user", "content": f"question {n}"})
        thread.append_message({"role": "assistant", "content": f"answer {n}"})
    return thread


def ids(thread: Thread, *leaf: Any) -> list[str]:
    return [entry.id for entry in thread.path(*leaf)]


def other_handle(store: Store) -> Store:
    """Another store on the same storage, as another worker of the host has it."""
    if store.properties.engine == "memory":
        return Store(store.engine)
    if store.properties.engine == "postgres":  # its place is for people, without user and password
        OPENED.append(Store(PostgresEngine(store.engine._address.conninfo)))
    else:
        OPENED.append(clew.open(f"{store.properties.engine}:{store.properties.place}"))
    return OPENED[-1]


# --- repositories ---


@row("MemoryRepo")
def _memory(store: Store, name: str) -> None:
    with clew.open("memory:") as memory:
        assert memory.properties.durability == "none"
        memory.create("t").append("user_message", ASKED)
        assert memory.get("t").path()[0].body == ASKED


@row("FileRepo", "SQLiteRepo")
def _file(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    thread.move("a")
    again = other_handle(store)
    assert (again.get("t").leaf, again.verify()) == ("a", [])
    assert again.get("t").append("event").parent == "a"


@row("Repo.create_thread")
def _create_thread(store: Store, name: str) -> None:
    assert store.create("mine").id == "mine"
    assert store.create().id != store.create().id
    with pytest.raises(AlreadyExists):
        store.create("mine")


@row("Repo.thread")
def _thread(store: Store, name: str) -> None:
    store.create("t", title="T")
    assert store.get("t").info.title.text == "T"
    assert store.find("u") is None


@row("Repo.update_thread")
def _update_thread(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    thread.set(title="T", status="busy")
    thread.set(status="idle")
    thread.move("a")
    assert (thread.info.title.text, thread.info.status, thread.leaf) == ("T", "idle", "a")
    with pytest.raises(NotFound):
        thread.move("dangling")
    assert thread.leaf == "a"


@row("Repo.delete_thread")
def _delete_thread(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    fork = thread.fork(at="a")
    store.delete("t")
    assert store.find("t") is None
    assert ids(store.restore("t")) == ["a", "b"]
    thread.leases.acquire("me")
    assert store.purge("t").kept == 1
    assert ids(fork) == ["a"]
    assert store.create("t").leases.active() is None, "a thread made anew is not leased"


@row("Repo.append")
def _append(store: Store, name: str) -> None:
    thread = store.create()
    first = thread.append("user_message", ASKED, id="a")
    assert (thread.leaf, thread.info.updated_at) == ("a", first.time)
    assert thread.append("user_message", ASKED, id="a") == first
    with pytest.raises(Conflict):
        thread.append("user_message", "other", id="a")
    assert thread.info.seq == 1


@row("Repo.entry")
def _entry(store: Store, name: str) -> None:
    thread = grown(store, "a")
    assert thread.get("a").body == {"n": "a"}
    with pytest.raises(NotFound) as caught:
        Thread(store, "nobody").get("a")
    assert caught.value.what == "thread"


@row("Repo.entries")
def _entries(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    entries = thread.entries()
    assert iter(entries) is entries
    found = list(entries)
    assert [entry.id for entry in found] == ["a", "b"]
    found[0].body["n"] = "changed"
    assert thread.get("a").body == {"n": "a"}


@row("Repo.path")
def _path(store: Store, name: str) -> None:
    thread = grown(store, "a", "b", "c")
    assert ids(thread, "b") == ["a", "b"]
    assert [e.id for e in thread.path(after="a", limit=1)] == ["c"]
    assert store.create().path() == []
    with pytest.raises(NotFound):
        thread.path("nobody")


@row("Repo.move_leaf")
def _move_leaf(store: Store, name: str) -> None:
    thread = grown(store, "a", "b", "c")
    thread.move("a")
    again = other_handle(store).get("t")
    assert again.leaf == "a"
    assert again.append("event", id="d").parent == "a"
    assert ids(thread, "c") == ["a", "b", "c"], "the old branch is still there"
    thread.move(None)
    assert other_handle(store).get("t").leaf is None


@row("Repo.fork", "ForkOptions.source_thread_id", "ForkOptions.entry_id")
def _fork(store: Store, name: str) -> None:
    thread = grown(store, "a", "b", "c")
    for fork in (store.fork("t", at="b"), thread.fork(before="c")):
        assert fork.path() == thread.path("b")
        assert fork.info.seq == 0, "nothing was copied"
        assert fork.info.origin.thread == "t"


@row("Repo.list_threads")
def _list_threads(store: Store, name: str) -> None:
    for id in ("a", "b", "c"):
        store.create(id)
    store.get("a").set(archived=True)
    assert [info.id for info in store.list().items] == ["c", "b"]


@row("Repo.acquire_turn_lease")
def _acquire(store: Store, name: str) -> None:
    thread = store.create()
    lease = thread.leases.acquire("me", ttl_seconds=60, turn="turn-1")
    with pytest.raises(LeaseHeld):
        thread.append("event")
    thread.append("event", fence=lease.fence)
    thread.leases.release(lease)
    with thread.turn(owner="me") as turn:
        assert turn.lease.fence > lease.fence
        with pytest.raises(LeaseLost):
            thread.append("event", fence=lease.fence)
    short = thread.leases.acquire("me", ttl_seconds=0.01)
    with thread.turn(owner="you", wait_seconds=10) as turn:
        assert turn.lease.fence > short.fence


@row("Repo.release_turn_lease")
def _release(store: Store, name: str) -> None:
    thread = store.create()
    first = thread.leases.acquire("me")
    thread.leases.release(first)
    second = thread.leases.acquire("you")
    thread.leases.release(first)
    assert thread.leases.active() == second


@row("Repo.active_turn_lease")
def _active(store: Store, name: str) -> None:
    thread = store.create()
    assert thread.leases.active() is None
    assert thread.leases.acquire("me") == thread.leases.active()
    with pytest.raises(NotFound):
        Thread(store, "nobody").leases.active()


@row("Repo.clear_expired_turn_lease")
def _clear(store: Store, name: str) -> None:
    thread = store.create()
    live = thread.leases.acquire("me")
    assert thread.leases.clear_expired() is None
    assert thread.leases.clear_expired(live.created_at) is None
    assert thread.leases.clear_expired(live.created_at + timedelta(seconds=1)) == live
    thread.leases.acquire("me", ttl_seconds=0.001)
    while thread.leases.active() is not None:
        pass
    assert thread.leases.clear_expired().owner == "me"


# --- options ---


@row("AppendOptions.id")
def _append_id(store: Store, name: str) -> None:
    assert store.create().append("event", id="mine").id == "mine"


@row("AppendOptions.parent_id")
def _append_parent(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    assert ids(thread, thread.append("event", id="c", parent="a").id) == ["a", "c"]
    assert ids(thread, thread.append("event", id="d", parent=None).id) == ["d"]


@row("AppendOptions.now")
def _append_now(store: Store, name: str) -> None:
    time = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert store.create().append("event", time=time).time == time
    with pytest.raises(InvalidInput):
        store.create().append("event", time=time.replace(tzinfo=None))


@row("ForkOptions.position", "at", "before")
def _position(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    assert ids(thread.fork(at="b")) == ["a", "b"]
    assert ids(thread.fork(before="b")) == ["a"]
    empty = thread.fork(before="a")
    assert (empty.path(), empty.info.origin.thread) == ([], "t")
    with pytest.raises(InvalidInput):
        thread.fork(at="a", before="a")


@row("ForkOptions.new_thread_id")
def _fork_id(store: Store, name: str) -> None:
    thread = grown(store, "a")
    assert thread.fork(id="f").id == "f"
    with pytest.raises(AlreadyExists):
        thread.fork(id="f")


@row("ForkOptions.now")
def _fork_now(store: Store, name: str) -> None:
    thread = grown(store, "a")
    later = Store(store.engine, clock=lambda: 1_800_000_000_000_000)
    fork = later.fork("t", id="f")
    assert fork.info.created_at == later.now()
    assert fork.path()[0].time == thread.path()[0].time < later.now()


@row("ThreadListOptions.include_archived")
def _include_archived(store: Store, name: str) -> None:
    store.create("a")
    store.create("b").set(archived=True)
    assert [i.id for i in store.list(archived=None).items] == ["b", "a"]
    assert [i.id for i in store.list(archived=True).items] == ["b"]


@row("ThreadListOptions.limit")
def _limit(store: Store, name: str) -> None:
    for id in ("a", "b", "c"):
        store.create(id)
    assert len(store.list(limit=2).items) == 2
    for limit in (0, 1001):
        with pytest.raises(InvalidInput):
            store.list(limit=limit)


@row("ThreadListOptions.after_created_at", "ThreadListOptions.after_id")
def _cursor(store: Store, name: str) -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    for id in ("a", "b", "c", "d"):
        store.create(id, time=time)  # all at once: the id decides
    first = store.list(limit=2)
    store.create("new", time=time + timedelta(days=1))
    rest = store.list(limit=2, cursor=first.cursor)
    assert [i.id for i in first.items + rest.items] == ["a", "b", "c", "d"]
    assert rest.cursor is None


# --- helpers ---


@row("append_message")
def _append_message(store: Store, name: str) -> None:
    thread = store.create()
    kinds = {
        "user": "user_message",
        "assistant": "assistant_message",
        "tool": "tool_result",
        "system": "system_message",
        "stranger": "custom",
    }
    for role, kind in kinds.items():
        message = {"role": role, "content": "x", "vendor_field": [1]}
        entry = thread.append_message(message)
        assert (entry.kind, entry.body) == (kind, message)
    calls = {"role": "assistant", "tool_calls": [{"id": "1"}]}
    assert thread.append_message(calls).kind == "tool_call"


@row("append_compaction")
def _append_compaction(store: Store, name: str) -> None:
    thread = grown(store, "a", "b", "c")
    body = {"summary": "it broke", "first_kept_entry_id": "b"}
    made = thread.append("compaction", body, id="compaction-1")
    fork = thread.fork()
    found = fork.get("compaction-1")
    assert (found, found.body) == (made, body)
    assert fork.get(found.body["first_kept_entry_id"]).id == "b"
    spoken = talked(store, 3)
    assert spoken.compact(lambda messages: "S", keep_turns=1).kind == "compaction"
    assert "S" in spoken.context("plain").messages[0]["content"]


@row("append_turn_marker")
def _append_turn_marker(store: Store, name: str) -> None:
    thread = store.create()
    with thread.turn(owner="me", id="turn-1"):
        pass
    by_hand = thread.append("turn_marker", {"status": "aborted"}, turn="turn-2")
    markers = [(e.turn, e.body["status"]) for e in thread.path()]
    assert markers == [("turn-1", "started"), ("turn-1", "completed"), ("turn-2", "aborted")]
    assert by_hand.kind == "turn_marker"


@row("append_active_tools")
def _append_active_tools(store: Store, name: str) -> None:
    entry = store.create().append("active_tools_change", {"tools": ["read", "write"]})
    assert entry.body == {"tools": ["read", "write"]}


@row("append_failure", "Entry.error", "failed")
def _append_failure(store: Store, name: str) -> None:
    thread = store.create()
    assert thread.append("run_failure", {"error": "no answer"}).body["error"] == "no answer"
    with pytest.raises(ValueError, match="bad"), thread.turn(owner="me"):
        raise ValueError("bad")
    end = thread.path(limit=1)[0]
    assert end.body == {"status": "failed", "error": "ValueError: bad"}


@row("prepare_entry")
def _prepare_entry(store: Store, name: str) -> None:
    thread = store.create()
    draft = clew.draft("user_message", ASKED)
    assert thread.append([draft]) == thread.append([draft])
    assert len(thread.path()) == 1


@row("raw_for_entry", "Entry.raw")
def _raw(store: Store, name: str) -> None:
    entry = store.create().append("user_message", {"role": "user", "b": 1, "a": [1.0, None]})
    assert entry.data == b'{"role":"user","b":1,"a":[1.0,null]}'


@row("stable_hash", "Entry.raw_hash")
def _hash(store: Store, name: str) -> None:
    thread, other = grown(store, "a"), grown(store, "b", thread="u")
    time = store.now()
    same = [t.append("event", 1, id="x", time=time) for t in (thread, other)]
    assert same[0].hash.startswith("b3:")
    assert same[0].data == same[1].data
    assert same[0].hash != same[1].hash, "their parents differ"


@row("apply_thread_list_options", "sort_by_created_descending")
def _sort(store: Store, name: str) -> None:
    for id in ("a", "b", "c"):
        store.create(id)
    store.get("a").append("event")
    assert [i.id for i in store.list().items] == ["c", "b", "a"]
    assert [i.id for i in store.list(order="updated").items] == ["a", "c", "b"]
    store.get("b").set(archived=True)
    assert [i.id for i in store.list(limit=2).items] == ["c", "a"], "filtered before it is limited"


# --- errors ---


@row("thread_not_found")
def _thread_not_found(store: Store, name: str) -> None:
    with pytest.raises(NotFound) as caught:
        store.get("t")
    assert (caught.value.what, caught.value.id) == ("thread", "t")
    assert caught.value.deleted_at is None
    store.create("t")
    store.delete("t")
    with pytest.raises(NotFound) as caught:
        store.get("t")
    assert caught.value.deleted_at is not None


@row("entry_not_found")
def _entry_not_found(store: Store, name: str) -> None:
    with pytest.raises(NotFound) as caught:
        store.create().get("e")
    assert (caught.value.what, caught.value.id) == ("entry", "e")


@row("invalid_parent")
def _invalid_parent(store: Store, name: str) -> None:
    thread = grown(store, "a")
    with pytest.raises(InvalidInput) as caught:
        thread.append("event", parent="nobody")
    assert caught.value.field == "parent"
    assert thread.leaf == "a"


@row("active_turn")
def _active_turn(store: Store, name: str) -> None:
    thread = store.create()
    with thread.turn(owner="me") as turn, pytest.raises(LeaseHeld) as caught:
        thread.leases.acquire("you")
    assert (caught.value.owner, caught.value.until) == ("me", turn.lease.until)


@row("thread_exists")
def _thread_exists(store: Store, name: str) -> None:
    thread = grown(store, "a")
    for call in (lambda: store.create("t"), lambda: thread.fork(id="t")):
        with pytest.raises(AlreadyExists) as caught:
            call()
        assert (caught.value.what, caught.value.id) == ("thread", "t")


@row("append_committed")
def _append_committed(store: Store, name: str) -> None:
    class Cut:
        """The engine behind a line that breaks after the commit, once."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store.engine, name)

        def append(self, *args: Any, **options: Any) -> Any:
            store.engine.append(*args, **options)
            del Cut.append
            raise Unavailable("the line broke", committed=None)

    thread = Store(Cut()).create("t")
    draft = clew.draft("event", 1)
    with pytest.raises(Unavailable) as caught:
        thread.append([draft])
    assert caught.value.committed is None
    assert thread.append([draft])[0].seq == 1, "written once"
    with pytest.raises(NotFound) as refused:
        store.get("nobody")
    assert refused.value.committed is False


# --- concurrency ---


@row("safe_for_concurrent_use")
def _concurrent(store: Store, name: str) -> None:
    thread = store.create("t")
    handles = [store, other_handle(store)]

    def write(n: int) -> None:
        for _ in range(5):
            handles[n % 2].get("t").append("event", n)

    workers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [record.seq for record in thread.read()] == list(range(1, 41))
    assert len(thread.path()) == 40


@row("durable_turn_serialisation")
def _serialised(store: Store, name: str) -> None:
    thread = store.create("t")
    other = other_handle(store).get("t")
    with thread.turn(owner="me"):
        with pytest.raises(LeaseHeld):
            other.leases.acquire("you")
        with pytest.raises(LeaseHeld):
            other.append("event")
    other.append("event")


@row("threads_run_concurrently")
def _independent(store: Store, name: str) -> None:
    thread = grown(store, "a")
    fork = thread.fork()
    with thread.turn(owner="me") as one, fork.turn(owner="you") as two:
        one.append("event")
        two.append("event")
    assert len(thread.path()) == len(fork.path()) == 4


# --- thread metadata ---


@row("ThreadMeta.id")
def _id(store: Store, name: str) -> None:
    for id in ("a", " a", "a/b", "a_b", "x" * 512):
        assert store.create(id).info.id == id
    assert len(store.list().items) == 5


@row("ThreadMeta.leaf_id")
def _leaf(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    assert (thread.info.leaf, thread.leaf) == ("b", "b")


@row("ThreadMeta.parent_thread_id")
def _parent(store: Store, name: str) -> None:
    thread = grown(store, "a")
    child = store.create(parent="t")
    assert child.info.parent == "t"
    assert [info.id for info in store.list(parent="t").items] == [child.id]
    assert thread.fork().info.parent is None


@row("ThreadMeta.forked_from_thread_id", "ThreadMeta.forked_from_entry_id")
def _origin(store: Store, name: str) -> None:
    fork = grown(store, "a", "b").fork(at="a")
    assert (fork.info.origin.thread, fork.info.origin.entry) == ("t", "a")
    assert [info.id for info in store.list(origin="t").items] == [fork.id]


@row("ThreadMeta.archived")
def _archived(store: Store, name: str) -> None:
    thread = store.create()
    assert thread.info.archived is False
    thread.set(archived=True)
    assert thread.info.archived is True


@row(
    "ThreadMeta.title",
    "ThreadMeta.title_status",
    "ThreadMeta.title_source",
    "ThreadMeta.title_updated_at",
    "ThreadMeta.title_error",
)
def _title(store: Store, name: str) -> None:
    thread = grown(store, "a")
    updated = thread.info.updated_at
    thread.set(title="Plain")
    assert (thread.info.title.text, thread.info.title.status) == ("Plain", "ready")
    for status in ("pending", "ready", "failed"):
        thread.set_title("Made", status=status, source="provider", error="timeout")
        title = thread.info.title
        assert (title.text, title.status, title.source) == ("Made", status, "provider")
        assert (title.error, title.time is not None) == ("timeout", True)
    assert thread.info.updated_at == updated
    with pytest.raises(InvalidInput):
        thread.set_title("Made", status="unheard of")


@row("ThreadMeta.created_at")
def _created_at(store: Store, name: str) -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    info = store.create(time=time).info
    assert (info.created_at, info.updated_at) == (time, time)


@row("ThreadMeta.updated_at")
def _updated_at(store: Store, name: str) -> None:
    thread = grown(store, "a", "b")
    assert thread.info.updated_at == thread.get("b").time
    moved = thread.move("a")
    thread.set(title="T", status="busy", archived=True)
    assert thread.info.updated_at == moved.time
    time = datetime(2020, 1, 1, tzinfo=UTC)
    assert store.create(updated_at=time).info.updated_at == time


@row("ThreadMeta.status")
def _status(store: Store, name: str) -> None:
    thread = store.create("t")
    thread.set(status="waiting")
    assert thread.info.status == "waiting"
    assert [info.id for info in store.list(status="waiting").items] == ["t"]


@row("ThreadMeta.last_viewed_at")
def _viewed(store: Store, name: str) -> None:
    thread = store.create()
    assert thread.info.last_viewed_at is None
    time = datetime(2026, 1, 1, tzinfo=UTC)
    thread.viewed(time)
    assert thread.info.last_viewed_at == time


# --- entries ---


@row("Entry.id", "Entry.thread_id", "Entry.parent_id", "Entry.type")
def _fields(store: Store, name: str) -> None:
    thread = grown(store, "a")
    entry = thread.append("a kind of tomorrow", id="b")
    assert (entry.id, entry.thread, entry.parent) == ("b", "t", "a")
    assert thread.get("b").kind == "a kind of tomorrow"
    assert [e.thread for e in thread.fork(id="f").path()] == ["t", "t"]


@row("Entry.turn_id")
def _turn(store: Store, name: str) -> None:
    thread = store.create()
    with thread.turn(owner="me", id="turn-1") as turn:
        turn.append("event")
        turn.append([clew.draft("event")])
    assert {entry.turn for entry in thread.path()} == {"turn-1"}
    assert thread.append("event").turn is None


@row("Entry.created_at")
def _time(store: Store, name: str) -> None:
    time = datetime(2026, 1, 1, tzinfo=UTC)
    thread = store.create()
    thread.append("event", id="a", time=time)
    assert thread.get("a").time == time


@row("Entry.message")
def _message(store: Store, name: str) -> None:
    message = {
        "Role": "tool",
        "Content": "cut emoji \ud83d",
        "Reasoning": "…",
        "ToolCallID": "1",
        "ToolName": "read",
        "ToolArgs": '{"path":"x"}',
        "EntryID": "e",
        "ParentEntryID": "p",
        "Kind": "control_signal",
        "ToolResult": {
            "truncated": True,
            "original_bytes": 2**53 + 1,
            "full_output": {"id": "o", "mime": "text/plain", "sha256": "00"},
        },
        "CompactionID": "c",
    }
    thread = store.create()
    thread.append("tool_result", message, id="a", format="floret")
    found = thread.get("a")
    assert (found.body, found.format) == (message, "floret")
    assert list(found.body) == list(message), "in the same order"


@row("Entry.turn_status")
def _turn_status(store: Store, name: str) -> None:
    thread = store.create()
    with thread.turn(owner="me"):
        assert thread.path()[0].body["status"] == "started"


@row("Entry.provider", "Entry.model", "Entry.metadata")
def _meta(store: Store, name: str) -> None:
    meta = {"provider": "p", "model": "m", "anything": {"deep": [1]}}
    thread = store.create()
    thread.append("assistant_message", "…", id="a", meta=meta)
    assert thread.get("a").meta == meta


COMPACTION = {  # there → the field of the body
    "compaction_id": "compaction_id",
    "previous_compaction_id": "previous_compaction_id",
    "compacted_through_entry_id": "compacted_through_entry_id",
    "summary_schema_version": "summary_schema_version",
    "compaction_generation": "generation",
    "compaction_window_id": "window_id",
    "first_kept_entry_id": "first_kept_entry_id",
    "kept_user_entry_ids": "kept_user_entry_ids",
    "summary": "summary",
    "compaction_trigger": "trigger",
    "compaction_reason": "reason",
    "compaction_phase": "phase",
    "tokens_before": "tokens_before",
    "tokens_after_estimate": "tokens_after_estimate",
    "context_usage_before": "context_usage_before",
    "context_usage_after": "context_usage_after",
}


@row(*(f"Entry.{field}" for field in COMPACTION))
def _compaction(store: Store, name: str) -> None:
    thread = talked(store, 5)
    asked = [entry.id for entry in thread.path() if entry.kind == "user_message"]
    first = thread.compact(lambda messages: "first", keep_turns=3)
    second = thread.compact(
        lambda messages: "second",
        keep_turns=1,
        trigger="threshold",
        reason="context window",
        phase="before_request",
        usage_before=0.91,
        usage_after={"ratio": 0.07},
    )
    known = {
        "previous_compaction_id": first.body["compaction_id"],
        "compacted_through_entry_id": thread.get(asked[4]).parent,
        "summary_schema_version": 1,
        "generation": 2,
        "first_kept_entry_id": asked[4],
        "kept_user_entry_ids": asked[:4],
        "summary": "second",
        "trigger": "threshold",
        "reason": "context window",
        "phase": "before_request",
        "context_usage_before": 0.91,
        "context_usage_after": {"ratio": 0.07},
    }
    field = COMPACTION[name.removeprefix("Entry.")]
    value = thread.fork().get(second.id).body[field]
    if field in known:
        assert value == known[field]
    elif field.startswith("tokens"):
        assert type(value) is int
        assert value > 0
    else:
        assert isinstance(value, str)
    if field.endswith(("entry_id", "entry_ids")):
        for id in [value] if isinstance(value, str) else value:
            assert thread.fork().get(id) == thread.get(id), "the reference is right in the fork"


@row(
    "thread_info",
    "turn_marker",
    "user_message",
    "assistant_message",
    "tool_call",
    "tool_result",
    "model_change",
    "active_tools_change",
    "compaction",
    "branch_summary",
    "run_failure",
    "custom",
)
def _kind(store: Store, name: str) -> None:
    assert name in KINDS
    thread = store.create()
    body = {"text": "a long result, " * 2000}
    for id in ("a", "b"):
        thread.append(name, body, id=id)
        assert (thread.get(id).kind, thread.get(id).body) == (name, body)
    if store.properties.engine == "sqlite":
        stats = store.stats()
        assert stats.blobs == 1, "stored once"
        assert stats.blob_bytes == len(thread.get("a").data)


# --- turns and leases ---


@row("started", "save_point", "completed")
def _completed(store: Store, name: str) -> None:
    assert name in TURN_STATUSES
    thread = store.create()
    with thread.turn(owner="me") as turn:
        turn.save_point({"step": 1})
    bodies = [entry.body for entry in thread.path()]
    assert bodies[0] == {"status": "started", "owner": "me"}
    assert bodies[1:] == [{"status": "save_point", "step": 1}, {"status": "completed"}]


@row("waiting")
def _waiting(store: Store, name: str) -> None:
    thread = store.create()
    with thread.turn(owner="me") as turn:
        turn.wait_for("approval")
    assert thread.path(limit=1)[0].body == {"status": "waiting", "reason": "approval"}


@row("aborted")
def _aborted(store: Store, name: str) -> None:
    thread = store.create()
    with thread.turn(owner="me") as turn:
        turn.abort("stop")
    assert thread.path(limit=1)[0].body == {"status": "aborted", "reason": "stop"}
    with pytest.raises(KeyboardInterrupt), thread.turn(owner="me"):
        raise KeyboardInterrupt
    assert thread.path(limit=1)[0].body["status"] == "aborted"


@row(
    "TurnLease.thread_id",
    "TurnLease.turn_id",
    "TurnLease.owner_id",
    "TurnLease.created_at",
)
def _lease(store: Store, name: str) -> None:
    lease = store.create("t").leases.acquire("me", ttl_seconds=60, turn="turn-1")
    assert (lease.thread, lease.turn, lease.owner) == ("t", "turn-1", "me")
    assert lease.until - lease.created_at == timedelta(seconds=60)
    assert lease.fence > 0
