"""The handles: what people call, on every engine."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

import clew
from clew import AlreadyExists, Conflict, InvalidInput, NotFound, TooLarge
from clew.core import drafts
from clew.core.model import Entry, EntryDraft, Fact, Move
from clew.store import Store


def say(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


# --- threads ---


def test_get_raises_and_find_returns_none(store: Store) -> None:
    thread = store.create("a")
    assert store.get("a") == thread == store.find("a")
    with pytest.raises(NotFound):
        store.get("b")
    assert store.find("b") is None


@pytest.mark.parametrize("id", ["", "x" * 513, "nul\0", "\ud800", 5])
def test_an_id_that_storages_would_treat_differently_is_refused(store: Store, id: str) -> None:
    with pytest.raises((InvalidInput, TooLarge)):
        store.create(id)
    assert store.stats().threads == 0


def test_a_prefix_resolves_only_when_it_is_unique(store: Store) -> None:
    for id in ("abc", "abd", "x", "xyz"):
        store.create(id)
    assert store.resolve("abc").id == "abc"
    assert store.resolve("x").id == "x", "an exact id wins over longer ones"
    assert store.resolve("xy").id == "xyz"
    with pytest.raises(InvalidInput) as caught:
        store.resolve("ab")
    assert caught.value.fields["candidates"] == ["abc", "abd"]
    with pytest.raises(NotFound):
        store.resolve("zz")


def test_a_prefix_finds_ids_at_the_edges_of_unicode(store: Store) -> None:
    for id in ("a\U0010ffff", "a\U0010ffffb", "\U0010ffff", "\ud7ff1", "\ue000"):
        store.create(id)
    assert store.resolve("a\U0010ffffb").id == "a\U0010ffffb"
    assert store.resolve("\ud7ff").id == "\ud7ff1"
    with pytest.raises(InvalidInput) as caught:
        store.resolve("a")
    assert caught.value.fields["candidates"] == ["a\U0010ffff", "a\U0010ffffb"]


def test_pages_go_through_every_thread_once(store: Store) -> None:
    made = [store.create().id for _ in range(7)]
    page = store.list(limit=3)
    again = store.list(limit=3, cursor=page.cursor)
    assert [i.id for i in page.items + again.items] == made[::-1][:6]
    assert [i.id for i in store.threads(limit=2)] == made[::-1]


@pytest.mark.parametrize(
    "query", [{"limit": 0}, {"limit": 1001}, {"order": "name"}, {"cursor": "x"}, {"cursor": "1."}]
)
def test_a_wrong_query_is_an_error_and_never_all_rows(store: Store, query: dict) -> None:
    with pytest.raises(InvalidInput):
        store.list(**query)


def test_times_without_a_zone_are_refused(store: Store) -> None:
    with pytest.raises(InvalidInput):
        store.list(after=datetime(2026, 1, 1))
    with pytest.raises(InvalidInput):
        store.create().append("user_message", 1, time=datetime(2026, 1, 1))


def test_a_mistyped_parent_is_refused(store: Store) -> None:
    store.create("boss")
    store.create("gone")
    store.delete("gone")
    for parent, deleted in (("bos", False), ("gone", True), ("me", False)):
        with pytest.raises(InvalidInput, match=parent) as caught:
            store.create("me", parent=parent)
        assert caught.value.field == "parent"
        assert (caught.value.fields["deleted_at"] is not None) == deleted
    assert store.find("me") is None
    assert store.create("me", parent="boss").info.parent == "boss"


def test_a_retry_finds_the_child_whose_parent_is_gone(store: Store) -> None:
    store.create("boss")
    now = store.now()
    made = store.create("me", parent="boss", time=now)
    store.purge("boss")
    assert store.create("me", parent="boss", time=now) == made
    with pytest.raises(clew.AlreadyExists):
        store.create("me", parent="boss")
    with pytest.raises(InvalidInput):
        store.create("another", parent="boss", time=now)


def test_a_purge_names_the_children_that_it_leaves_behind(store: Store) -> None:
    store.create("boss")
    for id in ("b", "a", "filed", "deleted"):
        store.create(id, parent="boss")
    store.create("grandchild", parent="a")
    store.create("stranger")
    store.get("filed").set(archived=True)
    store.delete("deleted")
    purged = store.purge("boss")
    assert purged.children == ("a", "b", "deleted", "filed")
    assert store.get("a").info.parent == "boss", "it says for whom it worked"
    assert {info.id for info in store.threads(parent="boss")} == {"a", "b"}
    assert store.purge("stranger").children == ()
    with pytest.raises(NotFound):
        store.purge("boss")
    assert store.verify() == []


def test_delete_hides_restore_brings_back_purge_removes(store: Store) -> None:
    thread = store.create("a", title="x")
    thread.append("user_message", say("hi"))
    store.delete("a")
    store.delete("a")
    assert store.find("a") is None
    with pytest.raises(NotFound) as caught:
        store.get("a")
    assert caught.value.deleted_at is not None
    assert [i.id for i in store.list(deleted=True).items] == ["a"]
    assert [e.body["content"] for e in store.restore("a").path()] == ["hi"]
    store.restore("a")
    assert store.purge("a").records == 4
    with pytest.raises(NotFound):
        store.get("a", deleted=True)


def test_fork_at_before_and_from_the_root(store: Store) -> None:
    thread = store.create(title="T", workspace="/w", tags=["x"])
    a, b, c = (thread.append("user_message", say(x)) for x in "abc")
    assert thread.fork().leaf == c.id
    assert store.fork(thread.id, at=b.id).path() == [a, b]
    assert store.fork(thread.id, before=b.id).path() == [a]
    empty = store.fork(thread.id, before=a.id)
    assert (empty.path(), empty.info.origin.thread) == ([], thread.id)
    fork = store.fork(thread.id, at=a.id, title="Other", facts={"mine": 1})
    assert (fork.info.workspace, fork.info.tags, fork.info.facts["mine"]) == ("/w", ("x",), 1)
    assert fork.info.title.text == "Other"
    with pytest.raises(InvalidInput):
        store.fork(thread.id, at=a.id, before=b.id)
    with pytest.raises(NotFound):
        store.fork(thread.id, at="nobody")


def test_forking_an_empty_thread_gives_an_empty_thread(store: Store) -> None:
    assert store.create("a").fork().path() == []


# --- entries ---


def test_a_bad_body_writes_nothing(store: Store) -> None:
    thread = store.create("a")
    for body in (float("nan"), {"x": 2**64}, b'{"a":1,"a":2}', object()):
        with pytest.raises(InvalidInput):
            thread.append("user_message", body)
    with pytest.raises(InvalidInput):
        thread.append("user_message", 1, meta={"x": float("inf")})
    with pytest.raises(TooLarge):
        thread.append("user_message", 1, meta={"x": "y" * 70_000})
    with pytest.raises(InvalidInput):
        thread.append("", 1)
    assert list(thread.read()) == []


def test_changing_what_was_passed_or_returned_changes_nothing_stored(store: Store) -> None:
    thread = store.create()
    body = {"list": [1]}
    entry = thread.append("user_message", body)
    body["list"].append(2)
    entry.body["list"].append(3)
    assert thread.get(entry.id).body == {"list": [1]}
    with pytest.raises(AttributeError):
        entry.kind = "other"  # type: ignore[misc]


def test_several_drafts_are_one_step(store: Store) -> None:
    thread = store.create()
    entries = thread.append([clew.draft("tool_call", 1), clew.draft("tool_result", 2)])
    assert [e.parent for e in entries] == [None, entries[0].id]
    with pytest.raises(Conflict):
        thread.append([clew.draft("event"), clew.draft("event")], expect=entries[0].id)
    assert thread.leaf == entries[1].id


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": ["user_message"]},
        {"kind": None},
        {"kind": 5},
        {"kind": "event", "meta": [1]},
        {"kind": "event", "meta": "ab"},
        {"kind": [], "id": "x"},
        {"kind": [], "body": 1},
    ],
)
def test_a_call_that_makes_no_sense_is_invalid_input(store: Store, arguments: dict) -> None:
    thread = store.create()
    with pytest.raises(InvalidInput):
        thread.append(**arguments)
    assert thread.info.seq == 0


def test_nonsense_numbers_are_invalid_input(store: Store) -> None:
    thread = store.create()
    for call in (
        lambda: store.sweep(grace_seconds=float("nan")),
        lambda: store.sweep(grace_seconds=-1),
        lambda: thread.leases.acquire("me", ttl_seconds="x"),
        lambda: thread.turn(owner="me", ttl_seconds=None),
        lambda: list(thread.read(after=-1)),
        lambda: thread.path(limit=0),
        lambda: store.list(cursor="9" * 30 + ".x"),
    ):
        with pytest.raises(InvalidInput):
            call()


def test_a_retried_fork_and_move_happen_once(store: Store) -> None:
    thread = store.create()
    a = thread.append("user_message", "a").id
    when = datetime(2026, 1, 1, tzinfo=UTC)
    assert thread.fork(id="f", time=when) == thread.fork(id="f", time=when)
    assert thread.move(None, id="m") == thread.move(None, id="m")
    assert (thread.info.seq, thread.leaf, store.stats().threads) == (2, None, 2)
    with pytest.raises(Conflict):
        thread.move(a, id="m")


def test_retrying_a_draft_is_harmless(store: Store) -> None:
    thread = store.create()
    draft = clew.draft("user_message", say("once"))
    assert thread.append([draft]) == thread.append([draft])
    assert thread.append("event", 5, id="me").id == "me"
    assert thread.append("event", 5, id="me").seq == 2
    with pytest.raises(Conflict):
        thread.append("event", 6, id="me")


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (say("x"), "user_message"),
        (say("x", "assistant"), "assistant_message"),
        ({"role": "assistant", "tool_calls": [{"id": "1"}]}, "tool_call"),
        (say("x", "tool"), "tool_result"),
        (say("x", "system"), "system_message"),
        (say("x", "narrator"), "custom"),
    ],
)
def test_a_message_gets_its_kind_from_its_role(store: Store, message: dict, kind: str) -> None:
    assert store.create().append_message(message).kind == kind


def test_a_message_without_a_role_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput):
        store.create().append_message({"content": "x"})


def test_leaves_and_children_show_the_tree(store: Store) -> None:
    thread = store.create()
    assert (thread.leaves(), thread.children(None)) == ([], [])
    a = thread.append("user_message", "a").id
    b = thread.append("user_message", "b").id
    thread.set(noise=1)
    c = thread.append("user_message", "c").id
    thread.move(a)
    d = thread.append("user_message", "d").id
    assert thread.leaves() == [c, d]
    assert (thread.children(None), thread.children(a), thread.children(b)) == ([a], [b, d], [c])
    assert (thread.children(c), thread.children(d)) == ([], [])
    fork = thread.fork(at=b)
    assert (fork.leaves(), fork.children(a), fork.children(b)) == ([b], [b], [])
    assert fork.children(None) == [a]
    e = fork.append("user_message", "e").id
    assert (fork.leaves(), fork.children(b)) == ([e], [e])
    assert [entry.id for entry in fork.entries()] == [a, b, e]


def test_a_leaf_that_a_branch_hangs_on_is_not_a_leaf(store: Store) -> None:
    thread = store.create()
    a = thread.append("user_message", "a").id
    b = thread.append("user_message", "b").id
    thread.move(a)
    thread.append("user_message", "c")
    d = thread.append("user_message", "d", parent=b).id
    assert d in thread.leaves()
    assert b not in thread.leaves()


def test_compare_finds_where_two_branches_part(store: Store) -> None:
    thread = store.create()
    trunk = [thread.append("user_message", n) for n in range(100)]
    left = [thread.append("user_message", n) for n in range(3)]
    thread.move(trunk[-1].id)
    right = [thread.append("user_message", n) for n in range(80)]
    found = thread.compare(left[-1].id, right[-1].id)
    assert (found.common, found.left, found.right) == (trunk[-1], left, right)
    thread.move(None)
    other = thread.append("user_message", "second root")
    apart = thread.compare(left[-1].id, other.id)
    assert (apart.common, len(apart.left), apart.right) == (None, 103, [other])
    inside = thread.compare(trunk[5].id, left[-1].id)
    assert (inside.common, inside.left, len(inside.right)) == (trunk[5], [], 97)


def test_two_calls_for_a_fork_id_never_give_the_same(store: Store) -> None:
    store.create("abc")
    assert [store.fork_id("abc") for _ in range(3)] == [f"abc#fork-{n}" for n in (1, 2, 3)]
    store.create("abc#fork-4")
    assert store.fork_id("abc") == "abc#fork-5"
    store.fork("abc", id="abc#fork-5")
    store.purge("abc#fork-5")
    assert store.fork_id("abc") == "abc#fork-6", "an id that was given out does not come back"
    assert store.fork_id("abc#fork-4") == "abc#fork-4#fork-1"
    with pytest.raises(NotFound):
        store.fork_id("nobody")


def test_a_fork_id_is_found_beside_facts_and_entries_of_the_same_name(store: Store) -> None:
    thread = store.create("abc", facts={"fork_id": "mine"})
    thread.append("event", id="fork_id:1")
    before = thread.info.updated_at
    assert store.fork_id("abc") == "abc#fork-2"
    assert thread.info.updated_at == before


def test_a_fork_may_work_for_a_thread(store: Store) -> None:
    boss = store.create("boss")
    boss.append("user_message", {"role": "user", "content": "go"})
    helper = store.fork("boss", id="helper", parent="boss")
    assert (helper.info.parent, helper.info.origin.thread) == ("boss", "boss")
    assert boss.fork(parent="helper").info.parent == "helper"
    assert [info.id for info in store.list(parent="boss").items] == ["helper"]
    assert boss.fork(id="plain").info.parent is None
    store.delete("helper")
    for gone in ("nobody", "helper"):
        with pytest.raises(InvalidInput) as caught:
            store.fork("boss", id="orphan", parent=gone)
        assert caught.value.field == "parent"
    assert store.find("orphan") is None
    time = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(2):
        store.restore("helper")
        child = store.fork("boss", id="child", parent="helper", time=time)
        store.delete("helper")  # a retry finds the fork, though its parent has gone since
    assert store.fork("boss", id="child", parent="helper", time=time) == child


def test_get_or_create_gives_what_is_there(store: Store) -> None:
    made = store.get_or_create("t", title="first", facts={"n": 1})
    assert store.get_or_create("t", title="second") == made
    assert (made.info.title.text, made.facts["n"]) == ("first", 1)
    store.delete("t")
    with pytest.raises(AlreadyExists) as caught:
        store.get_or_create("t")
    assert caught.value.deleted_at is not None
    with pytest.raises(InvalidInput):
        store.get_or_create("")
    with pytest.raises(InvalidInput):
        store.get_or_create("u", parent="nobody")


def test_compare_finds_where_a_fork_and_its_origin_part(store: Store) -> None:
    origin = store.create("origin")
    trunk = origin.append([clew.draft("event", n, id=f"e{n}") for n in range(100)])
    fork = store.fork("origin", at="e49", id="fork")
    # The fork uses an id that its origin has as well, for another entry.
    mine = fork.append([clew.draft("event", n, id=id) for n, id in ((50, "e50"), (1, "x"))])
    found = store.compare("origin", fork)
    assert (found.common, found.left, found.right) == (trunk[49], trunk[50:], mine)
    found = store.compare(fork, origin)
    assert (found.common, found.left, found.right) == (trunk[49], mine, trunk[50:])
    for handle in ("origin", origin):
        across = fork.compare("x", "e60", thread=handle)
        assert (across.common, across.left, across.right) == (trunk[49], mine, trunk[50:61])
    same_id = fork.compare("e50", "e50", thread="origin")
    assert (same_id.common, same_id.left, same_id.right) == (trunk[49], mine[:1], trunk[50:51])
    inherited = origin.compare("e99", "e10", thread=fork)
    assert (inherited.common, inherited.right) == (trunk[10], [])
    with pytest.raises(NotFound):
        fork.compare("x", "e60")
    with pytest.raises(NotFound):
        fork.compare("x", "e60", thread="nobody")


def test_compare_knows_the_whole_family_of_a_fork(store: Store) -> None:
    root = store.create("root")
    trunk = root.append([clew.draft("event", n, id=f"e{n}") for n in range(6)])
    one = store.fork("root", at="e2", id="one")
    store.fork("root", at="e4", id="other")
    mine = [one.append("event", n, id=f"o{n}") for n in range(3)]
    nested = store.fork("one", at="o1", id="nested")
    deep = nested.append("event", "deep")

    def parted(a: str, b: str) -> tuple[object, int, int]:
        found = store.compare(a, b)
        return found.common and found.common.id, len(found.left), len(found.right)

    assert parted("one", "other") == ("e2", 3, 2), "siblings"
    assert parted("nested", "one") == ("o1", 1, 1), "a fork of a fork, and its origin"
    assert parted("nested", "root") == ("e2", 3, 3), "and what that was forked from"
    assert parted("other", "root") == ("e4", 0, 1), "a fork that has nothing of its own"
    assert parted("root", "root") == ("e5", 0, 0)
    assert store.compare("nested", "other").left == [*mine[:2], deep]
    store.create("stranger").append("event", 0, id="e0")
    assert parted("stranger", "root") == (None, 1, 6)
    store.create("empty")
    assert parted("empty", "nested") == (None, 0, 6)
    store.fork("root", before="e0", id="from the beginning").append("event", 1)
    assert parted("from the beginning", "root") == (None, 1, 6), "it shares nothing"
    root.move("e1")
    assert parted("root", "nested") == ("e1", 0, 4), "threads are compared as they stand"
    store.purge("root")
    assert parted("nested", "other") == ("e2", 3, 2), "also when their origin is gone"
    assert trunk[2] == store.compare("nested", "other").common
    store.delete("other")
    with pytest.raises(NotFound):
        store.compare("nested", "other")


class Reads:
    """An engine that counts the entries that paths are read from."""

    def __init__(self, engine: Any) -> None:
        self._engine, self.entries = engine, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def path(self, *args: Any, **options: Any) -> list[Entry]:
        found: list[Entry] = self._engine.path(*args, **options)
        self.entries += len(found)
        return found


def test_compare_reads_no_further_back_than_where_threads_part(store: Store) -> None:
    def several(count: int, name: str) -> list[EntryDraft]:
        return [clew.draft("event", n, id=f"{name}{n}", clock=store.clock) for n in range(count)]

    store.create("t").append(several(3000, "e"))
    store.fork("t", at="e2990", id="near").append("event", "near")
    store.fork("t", at="e2999", id="far").append(several(500, "f"))
    reads = Reads(store.engine)
    counted = Store(reads)
    assert len(counted.compare("t", "near").left) == 9
    assert reads.entries <= 128
    reads.entries = 0
    assert len(counted.compare("t", "far").right) == 500
    assert reads.entries <= 2 * 500 + 64, "only the longer one is read as far as it is long"


@pytest.mark.parametrize("seed", range(20))
def test_compare_gives_what_whole_paths_would_give(seed: int) -> None:
    random = Random(seed)
    store = clew.open("memory:")
    names = ["t0"]
    store.create("t0")
    for n in range(1, 60):
        name = random.choice(names)
        thread = store.get(name)
        path = thread.path()
        if random.random() < 0.2 and path:
            names.append(f"t{n}")
            store.fork(name, at=random.choice(path).id, id=f"t{n}")
        elif random.random() < 0.1 and path:
            thread.move(random.choice(path).id)
        else:
            # Times that lead astray, and ids that are used in several threads.
            many = random.choice((1, 5, 150))
            times = [datetime.fromtimestamp(random.randrange(10**9), UTC) for _ in range(many)]
            batch = [clew.draft("event", k, id=f"e{n}.{k}", time=t) for k, t in enumerate(times)]
            thread.append(batch)
    for _ in range(40):
        a, b = random.choice(names), random.choice(names)
        left, right = store.get(a).path(), store.get(b).path()
        shared = sum(1 for one, other in zip(left, right, strict=False) if one == other)
        found = store.compare(a, b)
        assert found.common == (left[shared - 1] if shared else None)
        assert (found.left, found.right) == (left[shared:], right[shared:])


def test_moves_are_compared_and_set(store: Store) -> None:
    thread = store.create()
    a = thread.append("user_message", "a").id
    assert isinstance(thread.move(None, expect=a), Move)
    with pytest.raises(Conflict):
        thread.move(a, expect=a)
    with pytest.raises(NotFound):
        thread.move("nobody")


@pytest.mark.parametrize("order", ["created", "updated"])
def test_a_list_goes_on_behind_any_thread(store: Store, order: Any) -> None:
    """Also among threads of one time, where only their ids tell them apart."""
    now = store.now()
    for n in range(7):
        store.create(f"t{n}", time=now)
    for n in (5, 2):  # those that were written to lately, though they were all made at one time
        store.get(f"t{n}").append("event", n)
    every = list(store.threads(order=order))
    for n, info in enumerate(every):
        rest = store.list(order=order, cursor=info).items
        assert [found.id for found in rest] == [found.id for found in every[n + 1 :]]


def test_a_draft_knows_the_hash_of_its_body_before_it_is_stored(store: Store) -> None:
    draft = clew.draft("event", {"n": 1})
    [entry] = store.create().append([draft])
    assert draft.content_hash == entry.body_hash == clew.stable_hash(b'{"n":1}')
    assert clew.stable_hash("Grüße") == clew.stable_hash("Grüße".encode())


# --- facts ---


def test_facts_do_not_touch_updated_at(store: Store) -> None:
    thread = store.create()
    thread.append("user_message", "a")
    before = thread.info.updated_at
    thread.set_title("A title", source="provider", status="pending")
    thread.set(archived=True, tags=["t"], status="idle")
    thread.viewed()
    info = thread.info
    assert info.updated_at == before
    assert (info.title.text, info.title.status, info.title.source) == (
        "A title",
        "pending",
        "provider",
    )
    assert info.title.time > before
    assert (info.archived, info.tags, info.status) == (True, ("t",), "idle")
    assert info.last_viewed_at > before


def test_a_failed_title_says_why(store: Store) -> None:
    thread = store.create()
    thread.set_title("", status="failed", error="model timed out")
    assert (thread.info.title.status, thread.info.title.error) == ("failed", "model timed out")


@pytest.mark.parametrize(
    "facts",
    [
        {"title": 5},
        {"title": {"text": "x", "status": "odd"}},
        {"tags": "x"},
        {"tags": [1]},
        {"archived": 1},
        {"status": ""},
        {"workspace": 5},
        {"x": float("nan")},
    ],
)
def test_facts_of_a_wrong_shape_are_refused(store: Store, facts: dict) -> None:
    thread = store.create()
    with pytest.raises(InvalidInput):
        thread.set(**facts)
    with pytest.raises(InvalidInput):
        store.create(facts=facts)
    assert (thread.info.seq, store.stats().threads) == (0, 1)


def test_labels_name_entries(store: Store) -> None:
    thread = store.create()
    entry = thread.append("user_message", "a")
    thread.label(entry.id, "before the refactoring")
    assert thread.labels == {entry.id: "before the refactoring"}
    thread.label(entry.id, None)
    assert thread.labels == {}
    with pytest.raises(NotFound):
        thread.label("nobody", "x")


# --- the feed ---


def test_follow_yields_what_is_written_while_it_waits(store: Store) -> None:
    thread = store.create()
    thread.append("user_message", "before")
    got: list[object] = []
    ready = threading.Event()

    def follow() -> None:
        feed = thread.follow(after=0)
        for record in feed:
            got.append(record)
            ready.set()
            if len(got) == 4:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    assert ready.wait(30)
    thread.append("user_message", "after")
    thread.set(title="x")
    thread.move(None)
    follower.join(30)
    assert got == list(thread.read())


def test_follow_from_now_ends_when_it_is_idle(store: Store) -> None:
    thread = store.create()
    thread.append("user_message", "before")
    assert list(thread.follow(idle_seconds=0.01)) == []


def test_read_pages_through_a_long_feed(store: Store) -> None:
    thread = store.create()
    thread.append([clew.draft("event", n) for n in range(2500)])
    assert [r.body for r in thread.read(after=10) if isinstance(r, Entry)] == list(range(10, 2500))


def test_times_given_are_kept(store: Store) -> None:
    then = datetime(2020, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
    thread = store.create(time=then)
    entry = thread.append("user_message", 1, time=then + timedelta(microseconds=1))
    assert (thread.info.created_at, entry.time) == (then, then + timedelta(microseconds=1))


def test_blobs_are_put_got_and_had(store: Store) -> None:
    hash = store.blobs.put(b"picture")
    assert (store.blobs.get(hash), store.blobs.has(hash), store.blobs.has("b3:0")) == (
        b"picture",
        True,
        False,
    )
    entry = store.create().append("event", {"image": hash}, blobs=[hash])
    assert (entry.blobs, store.sweep(grace_seconds=0).blobs) == ((hash,), 0)
    with pytest.raises(InvalidInput):
        store.create().append("event", 1, blobs=["not a hash"])


# --- several things in one step ---


def test_entries_moves_and_facts_are_written_as_one_step(store: Store) -> None:
    thread = store.create()
    first = thread.append("custom", {"n": 1})
    now_us = store.clock()
    batch = [
        drafts.move(None, now_us),
        drafts.draft("custom", {"n": 2}),
        *drafts.facts({"status": "busy"}, now_us),
    ]
    moved, entry, fact = thread.write(batch, expect=first.id)
    assert (type(moved), type(entry), type(fact)) == (Move, Entry, Fact)
    assert (entry.parent, thread.leaf, thread.facts["status"]) == (None, entry.id, "busy")
    assert [record.seq for record in (moved, entry, fact)] == [2, 3, 4]
    assert thread.write(batch) == [moved, entry, fact], "a retry writes nothing twice"
    with pytest.raises(Conflict):
        thread.write([drafts.move(None, now_us), *drafts.facts({"status": "x"}, 1)], expect=None)
    assert thread.facts["status"] == "busy", "all or nothing"


def test_only_drafts_can_be_written(store: Store) -> None:
    with pytest.raises(InvalidInput) as caught:
        store.create().write([{"role": "user"}])  # type: ignore[list-item]
    assert caught.value.field == "write"
