"""Forks of runs and sessions are runs and sessions, and one id leads to one thread everywhere."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import clew
from clew import AlreadyExists, InvalidInput, NotFound
from clew.facets import _base
from clew.facets.runs import Checkpoint, Runs
from clew.facets.sessions import Event, Session, Sessions
from clew.store import Store

ON_SERVERS = True

THEN = datetime(2020, 1, 1, tzinfo=UTC)


def say(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(*texts: str) -> list[Any]:
    return [say(text) for text in texts]


def texts(document: Session | Checkpoint) -> list[str]:
    return [message["content"] for message in document.messages]


@pytest.fixture
def runs(store: Store) -> Runs:
    for n in range(1, 4):
        messages = says(*"abc"[:n])
        given = {"iteration": n, "input_tokens": 10 * n, "metadata": {"n": n}}
        store.runs.save(Checkpoint(run_id="r", messages=messages, system_prompt="p", **given))
    return store.runs


@pytest.fixture
def sessions(store: Store) -> Sessions:
    made = store.sessions.new("vendor", "endpoint", "model", id="s", workspace="/w")
    for text in "abc":
        store.sessions.append_message(made, say(text), usage={"input_tokens": 1})
    store.sessions.append_event(made, Event("e1"))
    made.cost = {"usd": 1}
    store.sessions.save(made)
    return store.sessions


# --- forks of runs ---


def test_a_fork_of_a_run_is_a_run_that_goes_its_own_way(runs: Runs) -> None:
    fork = runs.fork("r")
    assert (fork.run_id, texts(fork), fork.iteration) == ("r#fork-1", ["a", "b", "c"], 3)
    assert (fork.input_tokens, fork.metadata, fork.system_prompt) == (30, {"n": 3}, "p")
    runs.save(fork.replace(messages=says("a", "x"), iteration=9))
    assert (texts(runs.load("r")), runs.load("r").iteration) == (["a", "b", "c"], 3)
    assert (texts(runs.load(fork.run_id)), runs.load(fork.run_id).iteration) == (["a", "x"], 9)
    assert {info.run_id for info in runs.list().items} == {"r", "r#fork-1"}
    assert [info.iteration for info in runs.history(fork.run_id)] == [9, 3]
    with runs.resume_or_start(fork.run_id) as run:
        assert run.iteration == 9
        run.done()
    assert not runs.has(fork.run_id)
    assert runs.has("r")


def test_a_fork_of_an_earlier_checkpoint_has_its_state(runs: Runs) -> None:
    second = runs.history("r")[1]
    fork = runs.fork("r", id="again", revision=second.revision)
    assert (fork.run_id, texts(fork), fork.iteration) == ("again", ["a", "b"], 2)
    assert (fork.input_tokens, fork.metadata) == (20, {"n": 2})
    (info,) = (info for info in runs.list().items if info.run_id == "again")
    assert (info.iteration, info.message_count) == (2, 2)
    with pytest.raises(NotFound):
        runs.fork("r", revision=1)
    with pytest.raises(InvalidInput):
        runs.fork("r", revision=second.revision, at="x")


def test_a_plain_fork_of_a_run_is_one(runs: Runs, store: Store) -> None:
    thread = runs.thread("r")
    first = thread.path()[0].id
    for made in (thread.fork(), store.fork("run:r", id="run:b"), store.fork("run:r", id="mine")):
        found = runs.load(made.id)
        assert (texts(found), found.iteration) == (["a", "b", "c"], 3)
        assert runs.thread(found.run_id).id == made.id
    early = store.fork("run:r", at=first)
    assert (texts(runs.load(early.id)), runs.load(early.id).iteration) == (["a"], 1)
    empty = store.fork("run:r", before=first)
    assert (texts(runs.load(empty.id)), runs.load(empty.id).iteration) == ([], 0)
    assert runs.load("b").run_id == "b"
    assert len(runs.list().items) == 5, "one with an id of another kind is not listed"


@pytest.mark.parametrize("key", ["x" * 600, "#", "\ud800", "nul\0", "run:r"])
def test_a_fork_may_have_any_key(runs: Runs, key: str) -> None:
    fork = runs.fork("r", id=key)
    assert (fork.run_id, runs.load(key)) == (key, fork)
    assert key in {info.run_id for info in runs.list().items}
    assert runs.load("r").run_id == "r"
    with pytest.raises(AlreadyExists):
        runs.fork("r", id=key)


def test_a_run_that_was_never_saved_is_no_run_after_a_fork(store: Store) -> None:
    with store.runs.resume_or_start("r"):
        fork = store.fork("run:r")
    assert not store.runs.has(fork.id)
    with pytest.raises(NotFound):
        store.runs.fork("r")


# --- forks of sessions ---


def test_a_fork_of_a_session_is_a_session_that_goes_its_own_way(sessions: Sessions) -> None:
    fork = sessions.fork("s")
    assert (fork.id, texts(fork), fork.title) == ("s#fork-1", ["a", "b", "c"], "a")
    assert (fork.vendor, fork.model, fork.workspace) == ("vendor", "model", "/w")
    assert (fork.events, fork.cost) == ([Event("e1")], {"usd": 1})
    assert fork.usage == {"model": {"calls": 3, "input_tokens": 3}}
    sessions.append_message(fork, say("x"), usage={"input_tokens": 1})
    assert texts(sessions.load("s")) == ["a", "b", "c"]
    assert texts(sessions.load(fork.id)) == ["a", "b", "c", "x"]
    assert sessions.load(fork.id).usage["model"]["calls"] == 4
    assert [info.id for info in sessions.list("/w").items] == ["s#fork-1", "s"]


def test_a_fork_of_a_part_of_a_session_has_the_usage_of_that_part(sessions: Sessions) -> None:
    path = sessions.thread("s").path()
    second = [entry for entry in path if entry.kind == "user_message"][1]
    fork = sessions.fork("s", id="part", before=second.id, title="Another way")
    assert (fork.id, texts(fork), fork.title) == ("part", ["a"], "Another way")
    assert fork.usage["model"]["calls"] == 1
    assert fork.events == []
    with pytest.raises(NotFound):
        sessions.fork("nobody")


def test_a_plain_fork_of_a_session_is_one(sessions: Sessions, store: Store) -> None:
    for made in (sessions.thread("s").fork(), store.fork("session:s", id="mine")):
        found = sessions.load(made.id)
        assert (texts(found), found.vendor) == (["a", "b", "c"], "vendor")
        sessions.append_message(found, say("more"))
        sessions.append_message(found.id, say("by id"))
        assert texts(sessions.load(made.id))[-2:] == ["more", "by id"]
        sessions.set_title(found.id, "named")
        assert sessions.load(made.id).title == "named"
        sessions.delete(found.id)
        sessions.restore(made.id)
    assert texts(sessions.load("s")) == ["a", "b", "c"]


# --- one id, one thread ---


def test_an_id_leads_to_one_thread_in_the_facet_and_in_the_store(
    runs: Runs, sessions: Sessions, store: Store
) -> None:
    assert runs.thread("r").id == runs.thread("run:r").id == store.get("run:r").id
    assert sessions.thread("s").id == sessions.thread("session:s").id == "session:s"
    assert runs.load("run:r") == runs.load("r")
    assert sessions.load("session:s") == sessions.load("s")
    (info,) = runs.list().items
    assert store.get(info.thread).id == "run:r"
    (listed,) = sessions.list().items
    assert sessions.load(listed.thread).id == listed.id == "s"
    runs.save(runs.load("r").replace(run_id="run:r", iteration=7))
    assert (runs.load("r").iteration, len(runs.list().items)) == (7, 1)
    # An id that is the key of another run is that run's.
    runs.save(Checkpoint(run_id="x"))
    runs.store.fork("run:x", id="run:run:r")
    assert runs.load("run:r").iteration == 0
    assert runs.load("r").iteration == 7


def test_a_thread_of_another_facet_is_never_in_the_way_of_a_read(
    runs: Runs, sessions: Sessions, store: Store
) -> None:
    store.create("run:plain")
    store.create("session:plain").append("user_message", say("mine"))
    for id in ("plain", "session:s", "run:plain"):
        assert (runs.find(id), runs.has(id), runs.history(id)) == (None, False, [])
        with pytest.raises(NotFound):
            runs.thread(id)
    for id in ("plain", "run:r", "session:plain"):
        for read in (sessions.load, sessions.thread, sessions.purge, sessions.restore):
            with pytest.raises(NotFound):
                read(id)
    with pytest.raises(AlreadyExists):
        runs.save(Checkpoint(run_id="plain"))


# --- lists and times ---


def test_runs_are_listed_by_the_time_that_their_callers_gave(runs: Runs, store: Store) -> None:
    for n, id in enumerate("abcde"):
        given = THEN + timedelta(days=(n * 3) % 5)
        runs.save(Checkpoint(run_id=id, created_at=given))
    runs.save(runs.load("c").replace(created_at=THEN + timedelta(days=9)))
    assert runs.load("c").created_at == THEN + timedelta(days=9), "as given, at every save"
    runs.save(Checkpoint(run_id="c", iteration=1))
    assert runs.load("c").created_at == THEN + timedelta(days=9), "kept where none is given"
    expected = sorted(runs.all(), key=lambda info: info.created_at, reverse=True)
    found: list[str] = []
    cursor = None
    while True:
        page = runs.list(order="created", limit=2, cursor=cursor)
        found += [info.run_id for info in page.items]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [info.run_id for info in expected] == ["r", "c", "d", "b", "e", "a"]
    assert {info.run_id for info in runs.list().items} == {info.run_id for info in runs.all()}
    assert runs.list().items[0].run_id == "c"
    with pytest.raises(InvalidInput):
        runs.list(order="size")  # type: ignore[arg-type]


def test_what_is_written_meanwhile_is_given_once(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.facets.sessions.sessions._PAGE", 2)
    monkeypatch.setattr("clew.facets.runs.runs.PAGE_MAX", 2)
    runs = sessions.store.runs
    for n in "abcde":
        runs.save(Checkpoint(run_id=n))
        sessions.append_message(sessions.new(id=n, workspace="/v"), say(n))
    seen = [next(found := runs.all()).run_id]
    runs.save(Checkpoint(run_id="a", iteration=1))
    assert sorted(seen + [info.run_id for info in found]) == list("abcde")
    seen = [next(given := sessions.all("/v")).id]
    sessions.append_message("a", say("more"))
    assert sorted(seen + [info.id for info in given]) == list("abcde")


def test_all_sessions_are_more_than_a_page(sessions: Sessions, monkeypatch: Any) -> None:
    monkeypatch.setattr("clew.facets.sessions.sessions._PAGE", 2)
    for n in range(5):
        sessions.append_message(sessions.new(id=f"{n}", workspace="/v"), say("x"))
    assert [info.id for info in sessions.all()] == ["4", "3", "2", "1", "0", "s"]
    assert [info.id for info in sessions.all("/w")] == ["s"]
    assert inspect.isgenerator(sessions.calls("s"))


def test_a_checkpoint_is_changed_and_saved(runs: Runs) -> None:
    found = runs.load("r")
    runs.save(found.replace(iteration=4, metadata={"by": "hand"}))
    assert (runs.load("r").iteration, runs.load("r").metadata) == (4, {"by": "hand"})
    assert found.iteration == 3
    with pytest.raises(InvalidInput):
        found.replace(iterations=4)


def test_what_comes_from_elsewhere_keeps_its_times(store: Store) -> None:
    later, latest = THEN + timedelta(hours=1), THEN + timedelta(hours=2)
    made = store.create("t", time=THEN, updated_at=later)
    assert (made.info.created_at, made.info.updated_at, made.leaf) == (THEN, later, None)
    store.create("t", time=THEN, updated_at=later)
    assert made.info.seq == 1, "a retry writes nothing twice"
    made.append("event", 1, id="e", time=THEN)
    made.move("e", time=latest)
    assert (made.info.updated_at, made.leaf) == (latest, "e")
    store.runs.save(Checkpoint(run_id="r", messages=says("a"), created_at=THEN), updated_at=later)
    assert store.runs.load("r").updated_at == later
    session = Session("s", THEN, latest, messages=says("a"))
    assert store.sessions.save(session, updated_at=session.updated_at)
    assert (store.sessions.load("s").created_at, session.updated_at) == (THEN, latest)
    with clew.open("memory:") as other:
        store.copy_to(other)
        for id, time in (("t", latest), ("run:r", later), ("session:s", latest)):
            assert other.get(id).info.updated_at == store.get(id).info.updated_at == time
        assert other.runs.load("r") == store.runs.load("r")
    assert store.verify() == []
    with pytest.raises(InvalidInput):
        store.create("naive", updated_at=datetime(2020, 1, 1))
    assert store.find("naive") is None


# --- appending to a document that is not stored ---


@pytest.mark.parametrize("what", ["message", "event", "checkpoint"])
def test_an_append_stores_the_session_with_it(store: Store, what: str) -> None:
    sessions = store.sessions
    made = sessions.new("vendor", model="model", id="s", workspace="/w")
    append = {
        "message": lambda: sessions.append_message(made, {"role": "system", "content": "Brief."}),
        "event": lambda: sessions.append_event(made, Event("e1")),
        "checkpoint": lambda: sessions.append_checkpoint(made, says("summed up"), 3),
    }[what]
    entry = append()
    found = sessions.load("s")
    assert (found.vendor, found.model, found.workspace) == ("vendor", "model", "/w")
    assert (len(found.messages), len(found.events)) == (int(what != "event"), int(what == "event"))
    assert sessions.thread("s").leaf == entry.id
    assert [info.id for info in sessions.list().items] == ["s"]


def test_a_session_is_there_with_its_first_message_or_not_at_all(store: Store) -> None:
    """The thread is made first; a crash before the write leaves no session."""
    sessions = store.sessions
    _base.ensure(store, _base.facet_key("session", "s", "id"))
    assert sessions.list().items == []
    for read in (sessions.load, sessions.thread, sessions.restore, sessions.purge):
        with pytest.raises(NotFound):
            read("s")
    sessions.append_message(sessions.new(id="s"), say("a"))
    assert texts(sessions.load("s")) == ["a"]


def test_metadata_alone_is_a_session_to_write_to_by_id(store: Store) -> None:
    made = store.sessions.new(id="s", workspace="")
    made.messages.append(say("a"))
    assert store.sessions.ensure_meta(made)
    store.sessions.append_message("s", say("a"))
    assert texts(store.sessions.load("s")) == ["a"]


def test_a_purged_session_is_gone(sessions: Sessions) -> None:
    fork = sessions.fork("s")
    sessions.delete("s")
    assert sessions.purge("s").kept > 0, "for the fork"
    with pytest.raises(NotFound) as caught:
        sessions.restore("s")
    assert caught.value.deleted_at is None
    assert texts(sessions.load(fork.id)) == ["a", "b", "c"]
    with pytest.raises(NotFound):
        sessions.purge("s")


# --- events ---


@pytest.mark.parametrize(
    ("raw", "value"),
    [(b'{"percent": 50}', {"percent": 50}), (b"null", None), (b'"\\ud800"', "\ud800")],
)
def test_the_data_of_an_event_may_be_raw_json(sessions: Sessions, raw: bytes, value: Any) -> None:
    event = Event("e2", "ui", "progress", raw)
    assert (event.data, event) == (value, Event("e2", "ui", "progress", value))
    document = sessions.load("s")
    sessions.append_event(document, event)
    found = sessions.load("s").events[-1]
    assert (found, clew.core.codec.decode(found.raw)) == (event, value)
    sessions.save(document)
    assert len(sessions.load("s").events) == 2, "not written twice"


@pytest.mark.parametrize("raw", [b"{", b"", b'{"a": 1, "a": 2}', b"1e999"])
def test_raw_data_that_is_no_json_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        Event("e", data=raw)
    assert caught.value.field == "data"
