"""What one statement on the server answers is what several would, and damage does not keep it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from crews import Open
from msgspec import UNSET
from msgspec.structs import replace
from servers.cluster import Cluster
from servers.processes import wait_until

import clew
from clew.core import drafts
from clew.core.errors import AlreadyExists, Conflict, Corrupt, InvalidInput, NotFound
from clew.core.model import FactDraft, Origin, ThreadDraft
from clew.engines.postgres import blobs

Sql = Callable[..., list[tuple[Any, ...]]]


def large(n: object) -> dict[str, str]:
    return {"text": f"{n} " * 5000}


@pytest.fixture
def sql(postgres_cluster: Cluster, database: str) -> Sql:
    return lambda query, *values: postgres_cluster.sql(query, *values, database=database)


@pytest.fixture
def family(beside: clew.Store) -> clew.Store:
    """t: a b c, and x beside c; f: a b d; g, a fork of f at b: a b e."""
    thread = beside.create("t")
    thread.append([clew.draft("event", id, id=id) for id in "abc"])
    thread.append("event", "x", id="x", parent="b")
    beside.fork("t", at="b", id="f").append("event", "d", id="d")
    beside.fork("f", at="b", id="g").append("event", "e", id="e")
    return beside


# --- paths ----------------------------------------------------------------------------------

PATHS: list[tuple[str, Any, str | None, int | None, str]] = [
    ("t", "c", None, None, "abc"),
    ("t", "b", None, None, "ab"),
    ("t", "c", None, 2, "bc"),
    ("t", "c", "a", None, "bc"),
    ("t", "c", "a", 1, "c"),
    ("t", "c", "c", None, ""),
    ("t", UNSET, "a", None, "bx"),
    ("t", UNSET, "x", None, ""),
    ("t", None, None, None, ""),
    ("g", UNSET, None, None, "abe"),
    ("g", UNSET, "a", None, "be"),
    ("g", UNSET, "b", None, "e"),
    ("g", "e", "a", None, "be"),
    ("g", "a", None, None, "a"),
    ("g", "b", "a", None, "b"),
    ("g", "b", None, 1, "b"),
]


@pytest.mark.parametrize(("thread", "leaf", "after", "limit", "ids"), PATHS)
def test_a_path_between_any_two_entries(
    family: clew.Store, thread: str, leaf: Any, after: str | None, limit: int | None, ids: str
) -> None:
    found = family.engine.path(thread, leaf, after=after, limit=limit)
    assert "".join(entry.id for entry in found) == ids
    assert [entry.body for entry in found] == list(ids)


MISSING: list[tuple[str, Any, str | None, tuple[str, str]]] = [
    ("none", "c", None, ("thread", "none")),
    ("none", UNSET, "a", ("thread", "none")),
    ("none", None, "a", ("thread", "none")),
    ("t", "d", None, ("entry", "d")),
    ("t", "d", "none", ("entry", "d")),
    ("t", "d", "a", ("entry", "d")),
    ("t", "c", "none", ("entry", "none")),
    ("t", "c", "x", ("entry", "x")),
    ("t", "a", "c", ("entry", "c")),
    ("t", None, "a", ("entry", "a")),
    ("t", UNSET, "c", ("entry", "c")),
    ("g", "c", None, ("entry", "c")),
    ("g", "d", None, ("entry", "d")),
    ("g", UNSET, "d", ("entry", "d")),
    ("empty", UNSET, "a", ("entry", "a")),
    ("empty", "a", None, ("entry", "a")),
]


@pytest.mark.parametrize(("thread", "leaf", "after", "what"), MISSING)
def test_what_is_missing_is_named(
    family: clew.Store, thread: str, leaf: Any, after: str | None, what: tuple[str, str]
) -> None:
    family.create("empty")
    with pytest.raises(NotFound) as caught:
        family.engine.path(thread, leaf, after=after)
    assert (caught.value.what, caught.value.id) == what


def test_a_missing_entry_is_no_error_in_the_servers_log(
    family: clew.Store, postgres_cluster: Cluster
) -> None:
    """Looking whether an entry is there is ordinary: a copy does it all the time."""
    said = len(postgres_cluster.said())
    for thread, leaf in (("t", "none"), ("g", "none"), ("none", "a")):
        with pytest.raises(NotFound):
            family.engine.path(thread, leaf)
    with pytest.raises(NotFound):
        family.engine.create(ThreadDraft(id="h", created_us=1, origin=Origin("none", None, None)))
    assert "ERROR" not in postgres_cluster.said()[said:]


def test_a_segment_that_hangs_on_itself_ends_every_search(family: clew.Store, sql: Sql) -> None:
    (number,) = sql("SELECT no FROM clew.threads WHERE id = 't'")[0]
    circle = "UPDATE clew.segments SET parent_thread = thread, parent_seq = first WHERE thread = %s"
    sql(circle, number)
    for search in (
        lambda: family.engine.path("t", "c"),
        lambda: family.engine.path("t", "c", after="a"),
        lambda: family.engine.path("g", "none"),
        lambda: family.fork("g", at="a", id="h"),
    ):
        with pytest.raises(Corrupt):
            search()
    assert family.find("h") is None


# --- threads that are made ------------------------------------------------------------------

DRAFTS: dict[str, dict[str, Any]] = {
    "bare": {},
    "of a parent": {"parent": "t"},
    "with facts": {"facts": drafts.facts({"title": "x", "note": large(1), "tags": ["a", "a"]}, 9)},
    "with facts that lists filter by": {
        "facts": drafts.facts({"archived": True, "status": "s", "workspace": "w"}, 9)
    },
    "with facts of nothing": {"facts": drafts.facts({"title": None, "status": None}, 9)},
    "with a fact twice": {
        "facts": (*drafts.facts({"title": "x"}, 9), *drafts.facts({"title": None}, 9))
    },
    "deleted": {"facts": drafts.facts({"deleted_us": 5}, 9)},
}


@pytest.mark.parametrize("origin", [None, "before the root", "t", "g"])
@pytest.mark.parametrize("name", DRAFTS)
def test_what_is_said_of_a_new_thread_is_what_is_stored(
    family: clew.Store, name: str, origin: str | None
) -> None:
    begins = None
    if origin == "before the root":
        begins = Origin("t", None, None)
    elif origin is not None:
        begins = Origin(origin, "a", family.get("t").get("a").hash)
    draft = ThreadDraft(id="new", created_us=7, origin=begins, **DRAFTS[name])
    made = family.engine.create(draft)
    assert made == family.engine.thread("new")
    assert family.verify() == []
    if name == "deleted":
        return
    assert family.engine.create(draft) == made
    family.engine.append("new", [clew.draft("event", "and on")])
    assert family.verify() == []


def test_a_fork_of_another_entry_than_it_means_is_not_made(family: clew.Store) -> None:
    right = Origin("g", "b", family.get("t").get("b").hash)
    for origin, error in (
        (replace(right, hash=family.get("t").get("a").hash), Conflict),
        (replace(right, hash=None), Conflict),
        (replace(right, entry="c"), NotFound),
        (replace(right, thread="none"), NotFound),
    ):
        draft = ThreadDraft(id="new", created_us=7, origin=origin, facts=drafts.facts({"a": 1}, 9))
        with pytest.raises(error):
            family.engine.create(draft)
        with pytest.raises(NotFound):
            family.engine.thread("new")
        with pytest.raises(AlreadyExists):
            family.engine.create(replace(draft, id="f"))
    assert family.verify() == []


def test_first_facts_that_are_too_much_for_one_statement_are_taken(
    beside: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "LOAD_BYTES", 1)
    facts = {"one": large(1), "two": large(2)}
    assert beside.create("t", facts=facts).info.facts == facts
    assert beside.verify() == []


def test_a_fork_with_a_large_fact_and_a_purge_of_its_source_do_not_lock_each_other_out(
    opened: Open, postgres_cluster: Cluster, database: str, family: clew.Store, sql: Sql
) -> None:
    """Whoever wants both takes the row of the source first, then those of the blobs."""
    family.create("other").append("event", large(1))  # the blob is there, and can be locked
    maker = opened(postgres_cluster.dsn(database, application_name="maker"))
    waits = (
        "SELECT 1 FROM pg_stat_activity"
        " WHERE application_name = 'maker' AND wait_event_type = 'Lock'"
    )
    made: list[clew.Thread] = []
    work = threading.Thread(
        target=lambda: made.append(maker.fork("t", id="h", facts={"note": large(1)}))
    )
    holder = opened(postgres_cluster.dsn(database)).engine._connections.apart()  # type: ignore[attr-defined]
    with holder.transaction():
        holder.execute("SELECT 1 FROM clew.threads WHERE id = 't' FOR UPDATE")
        work.start()
        wait_until(lambda: bool(sql(waits)), "the fork waits for the source")
        assert holder.every("SELECT 1 FROM clew.blobs FOR UPDATE NOWAIT")
    holder.close()
    work.join(60)
    assert [thread.id for thread in made] == ["h"]


# --- purges ---------------------------------------------------------------------------------


def test_what_is_left_of_a_thread_that_hangs_on_itself_ends_the_search_of_a_purge(
    family: clew.Store, sql: Sql
) -> None:
    """Damage: the remains of t lead to t. A purge looks at them once."""
    family.fork("t", at="a", id="h")
    family.purge("t")
    sql("UPDATE clew.threads SET origin_thread = no, origin_seq = 1 WHERE id = 't'")
    for name in "gfh":
        assert family.purge(name).kept == 0
    for table in ("threads", "records", "segments"):
        assert sql(f"SELECT count(*) FROM clew.{table}") == [(0,)]


def test_a_thread_that_is_there_goes_before_facts_that_are_wrong(family: clew.Store) -> None:
    """As on every engine: the id is taken, whatever else is the matter with the draft."""
    wrong = FactDraft(id="f", key="tags", data=b"5", time_us=1)
    with pytest.raises(AlreadyExists):
        family.engine.create(ThreadDraft(id="t", created_us=1, facts=(wrong,)))
    with pytest.raises(InvalidInput):
        family.engine.create(ThreadDraft(id="new", created_us=1, facts=(wrong,)))
