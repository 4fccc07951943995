"""One damaged fact hides nothing: its thread is listed as damaged, and all others as ever."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from msgspec.structs import replace
from places import PLACES, FilesPlace, MemoryPlace, PostgresPlace

import clew
from clew import AlreadyExists, Corrupt, NotFound
from clew.cli import main
from clew.core.lines import summed
from clew.core.model import ThreadInfo, fact_keys
from clew.core.names import file_stem
from clew.facets.runs import Checkpoint
from clew.facets.sessions import Event
from clew.snapshots import catalogue
from clew.store import Store

UNPARSABLE = b'{"text": "oo'
LARGE = "x" * 300_000

Break = Callable[[str, str, bytes | None], None]


def break_fact(place: Any, thread: str, key: str, data: bytes | None) -> None:
    """Change the stored value of a fact behind Clew's back; None takes it away.

    The store is closed meanwhile, but for one in memory.
    """
    if isinstance(place, MemoryPlace):
        facts = place._opened[0]._threads[thread].facts  # type: ignore[attr-defined]
        facts[key] = replace(facts[key], data=b"" if data is None else data)
    elif isinstance(place, PostgresPlace):
        with psycopg.connect(place.path, autocommit=True) as connection:
            changed = connection.execute(
                "UPDATE clew.records r SET body = %s, blob = NULL FROM clew.threads t"
                " WHERE t.no = r.thread AND t.id = %s AND r.type = 2 AND r.kind = %s",
                (data, thread, key),
            )
            assert changed.rowcount
    elif isinstance(place, FilesPlace):
        _break_line(Path(place.path), thread, key, data)
    else:
        db = apsw.Connection(str(place.path))
        db.execute(
            "UPDATE records SET body = ?, blob = NULL WHERE type = 2 AND kind = ? AND no >> 32 ="
            " (SELECT no FROM threads WHERE id = ?)",
            (data, key, thread),
        )
        assert db.changes()
        db.close()


def _break_line(root: Path, thread: str, key: str, data: bytes | None) -> None:
    """A value that is JSON gets a checksum, as if another program had written it so."""
    path = root / f"threads/{file_stem(thread)}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = max(n for n, line in enumerate(lines) if b'"key":"%s",' % key.encode() in line)
    if data is None:
        found = re.search(rb'"value_blob":"b3:(..)(\w+)"', lines[at])
        assert found is not None
        for blob in root.glob(f"blobs/{found[1].decode()}/{found[2].decode()}*"):
            blob.unlink()
    else:
        new = b'"value":%s,"hash"' % data
        line = re.sub(rb'"value":.*,"hash"', lambda _: new, lines[at])
        assert line != lines[at]
        whole = data != UNPARSABLE
        lines[at] = summed(thread.encode(), line.partition(b',"sum"')[0]) if whole else line
        path.write_bytes(b"".join(lines))
    shutil.rmtree(root / "index")  # it remembers what the file said


class Broken:
    """A store that is closed, broken, and opened again."""

    def __init__(self, place: Any) -> None:
        self._place = place
        self.store = Store(place.open())

    def break_fact(self, thread: str, key: str, data: bytes | None) -> Store:
        if not isinstance(self._place, MemoryPlace):
            self.store.close()
        break_fact(self._place, thread, key, data)
        if not isinstance(self._place, MemoryPlace):
            self.store = Store(self._place.open())
        return self.store


@pytest.fixture
def broken(place: Any) -> Broken:
    return Broken(place)


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def fill(store: Store) -> None:
    """Three of each facet, and three threads."""
    for n in "abc":
        store.runs.save(Checkpoint(run_id=n, messages=[say(n)], iteration=1, metadata={"n": n}))
        session = store.sessions.new("vendor", "", "model", id=n, workspace="/w")
        store.sessions.append_message(session, say(n), usage={"input_tokens": 1})
        conversation = store.conversations.get(n)
        conversation.add("user", n)
        conversation.set_summary(f"about {n}")
        store.create(n, title=f"title {n}", tags=["t"])


DAMAGE = {
    "no JSON": UNPARSABLE,
    "a number": b"7",
    "a list": b"[1]",
    "an object": b'{"text":5,"message_count":-1}',
}
# Any JSON value is a cost, and of another program's facts nothing is known.
FACTS = {
    "run": ["checkpoint", "system_prompt", "metadata", "facet", "key"],
    "session": ["title", "tags", "workspace", "vendor", "model", "usage", "facet", "key"],
    "conversation": ["summary", "facet", "key"],
}
CASES = [(facet, key, damage) for facet, keys in FACTS.items() for key in keys for damage in DAMAGE]


def listed(store: Store, facet: str) -> dict[str, str | None]:
    """Id → damage, as each facet lists it."""
    lists: dict[str, Callable[[], list[tuple[str, str | None]]]] = {
        "run": lambda: [(i.run_id, i.damaged) for i in store.runs.list().items],
        "session": lambda: [(i.id, i.damaged) for i in store.sessions.list().items],
        "conversation": lambda: [(i.key, i.damaged) for i in store.conversations.list().items],
    }
    return dict(lists[facet]())


@pytest.mark.parametrize("facet", FACTS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_one_damaged_fact_hides_no_item_of_its_facet(
    broken: Broken, facet: str, damage: str
) -> None:
    fill(broken.store)
    for key in FACTS[facet]:
        if key in ("facet", "key") and damage != "no JSON":
            continue  # a thread with another facet is not this one's
        store = broken.break_fact(f"{facet}:b", key, DAMAGE[damage])
        found = listed(store, facet)
        assert found.keys() == {"a", "b", "c"}, key
        assert (found["a"], found["c"]) == (None, None)
        assert found["b"] is not None or key == "key"
        for other in FACTS.keys() - {facet}:
            assert listed(store, other) == dict.fromkeys("abc")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("key", ["title", "tags", "mine"])
def test_a_damaged_thread_is_listed_as_damaged(broken: Broken, key: str, damage: str) -> None:
    fill(broken.store)
    broken.store.get("b").set(mine={"any": "thing"})
    store = broken.break_fact("b", key, DAMAGE[damage])
    threads = {info.id: info for info in store.threads() if len(info.id) == 1}
    assert threads.keys() == {"a", "b", "c"}
    assert threads["a"].damaged is None
    free = key == "mine" and damage != "no JSON"
    assert (threads["b"].damaged is None) is free
    for info in threads.values():
        assert info.title is None or info.title.text == f"title {info.id}"
        assert info.tags in ((), ("t",))
    assert len(store.list(limit=2).items) == 2


def test_a_value_that_has_gone_missing_hides_nothing(broken: Broken) -> None:
    fill(broken.store)
    broken.store.get("b").set(mine=LARGE)
    broken.store.runs.save(Checkpoint(run_id="b", messages=[say("b")], metadata={"large": LARGE}))
    broken.break_fact("b", "mine", None)
    store = broken.break_fact("run:b", "metadata", None)
    infos = {info.id: info for info in store.threads()}
    assert "mine" in str(infos["b"].damaged)
    assert infos["b"].title is not None
    found = {info.run_id: info.damaged for info in store.runs.list().items}
    assert found.keys() == {"a", "b", "c"}
    assert "metadata" in str(found["b"])


def test_a_thread_whose_fact_has_gone_missing_is_read_and_can_be_made_whole(
    broken: Broken,
) -> None:
    thread = broken.store.create("b", title="title")
    thread.append("event", 1, id="first")
    thread.fork(at="first", id="fork")
    thread.set(mine=LARGE)
    thread = broken.break_fact("b", "mine", None).get("b")
    assert "mine" in str(thread.info.damaged)
    assert thread.facts["title"]["text"] == "title"
    assert thread.append("event", 2).parent == "first"
    assert [entry.body for entry in thread.path()] == [1, 2]
    assert [entry.body for entry in thread.store.get("fork").path()] == [1]
    thread.set(mine="again")
    assert (thread.info.damaged, thread.facts["mine"]) == (None, "again")


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_told_and_the_one_before_is_there(
    broken: Broken, damage: str
) -> None:
    fill(broken.store)
    store = broken.break_fact("run:b", "checkpoint", DAMAGE[damage])
    with pytest.raises(Corrupt) as caught:
        store.runs.load("b")
    assert "checkpoint" in str(caught.value) or "checksum" in str(caught.value)
    with pytest.raises(Corrupt), store.runs.resume_or_start("b"):
        pass
    assert store.runs.load("a").iteration == 1
    with pytest.raises(NotFound):
        store.runs.load("d")


@pytest.mark.parametrize("key", ["title", "usage", "vendor"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_session_is_told_when_it_is_loaded(broken: Broken, key: str, damage: str) -> None:
    fill(broken.store)
    store = broken.break_fact("session:b", key, DAMAGE[damage])
    for call in (
        lambda: store.sessions.load("b"),
        lambda: store.sessions.append_message("b", say("more")),
        lambda: store.sessions.append_event("b", Event("e")),
    ):
        with pytest.raises(Corrupt):
            call()
    assert store.sessions.latest("/w") is not None
    assert store.sessions.cleanup_older_than(store.now()) == 2, "not the damaged one"


def test_a_document_that_was_loaded_before_the_damage_is_told_of_it(broken: Broken) -> None:
    fill(broken.store)
    document = broken.store.sessions.load("b")
    store = broken.break_fact("session:b", "usage", b"[1]")
    with pytest.raises(Corrupt):
        store.sessions.append_message(document, say("more"), usage={"input_tokens": 1})
    assert len(document.messages) == 1


def test_a_damaged_thread_of_nobody_is_not_taken_for_a_run(broken: Broken) -> None:
    broken.store.create("run:mine", title="mine")
    store = broken.break_fact("run:mine", "title", b"7")
    assert store.runs.list().items == []
    with pytest.raises(AlreadyExists):
        store.runs.save(Checkpoint(run_id="mine"))


def test_cleanup_leaves_what_is_damaged(broken: Broken) -> None:
    """When it was last used, or whether it was archived, is not sure."""
    fill(broken.store)
    store = broken.break_fact("b", "title", UNPARSABLE)
    report = store.cleanup(older_than=store.now(), dry_run=True)
    assert "b" not in report.purged
    assert {skip.thread for skip in report.skipped if skip.reason == "damaged"} == {"b"}
    assert {"a", "c"} <= set(report.purged)


def test_a_lost_fact_is_not_taken_for_one_that_was_never_set() -> None:
    """Or a sweep would remove what a snapshot keeps, and a rewind would not be finished."""
    info = ThreadInfo("t", 0, 0, 1, None, None, None, {"a.1": b"1"}, {"b.1": "it is missing"})
    assert (fact_keys(info, "a."), info.facts) == (["a.1"], {"a.1": 1})
    with pytest.raises(Corrupt):
        fact_keys(info, "b.")
    with pytest.raises(Corrupt):
        catalogue.own(replace(info, lost_facts={"snapshot.s": "it is missing"}))


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_the_command_lists_a_damaged_thread(
    scheme: str, damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = PLACES[scheme](tmp_path)
    broken = Broken(place)
    fill(broken.store)
    broken.break_fact("b", "title", DAMAGE[damage]).close()
    for more in ([], ["--json"]):
        assert main(["list", f"{scheme}:{place.path}", *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 12
        (told,) = [line for line in lines if "damaged" in line and 'damaged":null' not in line]
        assert "title" in told or "checksum" in told


def test_a_file_without_its_first_line_is_listed_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "threads"
    with clew.open(f"files:{folder}") as store:
        fill(store)
    path = folder / f"threads/{file_stem('run:b')}.jsonl"
    path.write_bytes(b"#" + path.read_bytes())
    shutil.rmtree(folder / "index")
    with clew.open(f"files:{folder}") as store:
        for _ in range(2):
            found = {info.run_id: info.damaged for info in store.runs.list().items}
            assert found.keys() == {"a", "b", "c"}
            assert "checksum" in str(found["b"])
            with pytest.raises(Corrupt):
                store.runs.load("b")
    path.write_bytes(path.read_bytes()[1:])
    with clew.open(f"files:{folder}") as store:
        assert listed(store, "run") == dict.fromkeys("abc")
        assert store.verify() == []
