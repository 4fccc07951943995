"""Every row of docs/explain/coming-from.md about session documents is true, on every engine."""

from __future__ import annotations

import os
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import pytest
from _rows import PARTS, Claims

import clew
from clew import AlreadyExists, NotFound
from clew.core import drafts
from clew.facets import sessions
from clew.facets.sessions import Event, Session
from clew.store import Store

DOCUMENTS = Claims("sessions")
row = DOCUMENTS.row


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.mark.parametrize("name", PARTS["sessions"])
def test_row(name: str, store: Store) -> None:
    DOCUMENTS.check(store, name)


def test_every_claim_has_its_row_and_no_row_comes_twice() -> None:
    DOCUMENTS.check_complete()


# --- helpers ---

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def texts(messages: list[Any]) -> list[Any]:
    return [message["content"] for message in messages]


def begun(store: Store, *messages: dict[str, Any]) -> Session:
    session = store.sessions.new("anthropic", "api", "large-2", workspace="/src/shop")
    for message in messages or (say("The login is broken."),):
        store.sessions.append_message(session, message)
    return session


@row("Store.save")
def _save_session(store: Store, name: str) -> None:
    session = begun(store, *(say(str(n)) for n in range(20)))
    store.sessions.append_checkpoint(session, [say("summed up")], 3)
    resumed = store.sessions.load(session.id)
    resumed.messages.append(say("more"))
    assert store.sessions.save(resumed)
    assert len(store.sessions.load(session.id, full=True).messages) == 21
    assert texts(store.sessions.load(session.id).messages) == ["summed up", "more"]
    silent = store.sessions.new()
    assert not store.sessions.save(silent)
    assert len(store.sessions.list().items) == 1
    emptied = store.sessions.load(session.id)
    emptied.messages = []
    store.sessions.save(emptied)
    assert len(store.sessions.load(session.id, full=True).messages) == 21


@row("Store.load", "Store.append_checkpoint", "JSONLStore.append_checkpoint_to_disk")
def _load_session(store: Store, name: str) -> None:
    session = begun(store)
    store.sessions.append_message(session, say("Hm.", "assistant"), usage={"input_tokens": 5})
    store.sessions.append_event(session, Event("e1"))
    session.cost = {"usd": 1}
    store.sessions.save(session)
    given = session.id if name.endswith("_to_disk") else session
    store.sessions.append_checkpoint(given, [say("dropped")], 9)
    store.sessions.append_checkpoint(given, [say("summed up")], 9)
    store.sessions.append_message(session.id, say("after"))
    found = store.sessions.load(session.id)
    assert texts(found.messages) == ["summed up", "after"], "the last one wins"
    assert (found.cost, found.events) == ({"usd": 1}, [Event("e1")])
    assert found.usage["large-2"]["input_tokens"] == 5
    assert len(store.sessions.load(session.id, full=True).messages) == 3
    with pytest.raises(NotFound):
        store.sessions.load("nobody")


@row("Store.list")
def _list_sessions(store: Store, name: str) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    pictured = begun(store, {"role": "user", "content": [{"type": "image", "source": image}]})
    first, second = begun(store, say("first")), begun(store, say("second"))
    store.sessions.append_checkpoint(second, [say("only a summary", "system")], 3)
    store.sessions.append_message(first.id, say("again"))
    before = store.stats()
    found = store.sessions.list().items
    assert [info.id for info in found] == [first.id, second.id, pictured.id]
    assert store.stats() == before, "a list deletes nothing"
    assert not hasattr(found[0], "messages")
    store.engine.append(f"session:{first.id}", drafts.facts({"vendor": 5}, 0))
    damaged = {info.id for info in store.sessions.all() if info.damaged is not None}
    assert damaged == {first.id}


@row("Store.delete")
def _delete_session(store: Store, name: str) -> None:
    session = begun(store)
    store.create("victim")
    for _ in range(2):
        store.sessions.delete(session.id)
    store.sessions.delete("../victim")
    assert (store.sessions.list().items, store.find("victim") is None) == ([], False)
    store.sessions.restore(session.id)
    assert len(store.sessions.load(session.id).messages) == 1
    store.sessions.purge(session.id)
    with pytest.raises(NotFound):
        store.sessions.restore(session.id)


@row("Store.export_markdown", "export_session_markdown")
def _markdown(store: Store, name: str) -> None:
    session = begun(store, say("Fix ```it"), CALL, RESULT)
    store.sessions.append_checkpoint(session, [say("summed up")], 3)
    text = store.sessions.export_markdown(session.id)
    assert text == sessions.export_session_markdown(session)
    for part in ("# Fix", "**Session:**", "anthropic / api / large-2", "## User", "`read`"):
        assert part in text
    assert "**Tool Result** (error=false):" in text


@row("Store.cleanup_older_than")
def _cleanup(store: Store, name: str) -> None:
    old = begun(store, say("old"))
    between = store.now()
    new = begun(store, say("new"))
    assert store.sessions.cleanup_older_than(between) == 1
    assert [info.id for info in store.sessions.list().items] == [new.id]
    store.sessions.restore(old.id)
    assert store.sessions.cleanup_older_than(between - timedelta(days=1)) == 0


@row("JSONLStore.append_message", "JSONLStore.append_message_to_disk")
def _append_message(store: Store, name: str) -> None:
    session = begun(store)
    assert store.sessions.load(session.id).vendor == "anthropic"
    by_id = name.endswith("_to_disk")
    updated = store.sessions.latest("/src/shop").updated_at
    store.sessions.append_message(session.id if by_id else session, say("more"))
    assert len(session.messages) == (1 if by_id else 2)
    silent = store.sessions.new("anthropic", workspace="/src/other")
    store.sessions.append_message(silent, say("You are brief.", "system"))
    assert store.sessions.load(silent.id).vendor == "anthropic"
    assert texts(store.sessions.load(session.id).messages)[1:] == ["more"]
    assert store.sessions.latest("/src/shop").updated_at > updated


@row(
    "JSONLStore.append_tunnel_event_to_disk",
    "Session.tunnel_events",
    "Session.tunnel_events_complete",
    "TunnelEvent.event_id",
    "TunnelEvent.stream_id",
    "TunnelEvent.type",
    "TunnelEvent.data",
)
def _events(store: Store, name: str) -> None:
    session = begun(store)
    event = Event("e1", "stream", "progress", {"percent": [50, None]})
    store.sessions.append_event(session, event)
    store.sessions.append_event(session.id, Event("e2"))
    session.events_complete = True
    store.sessions.save(session)
    found = store.sessions.load(session.id)
    assert (found.events, found.events_complete) == ([event, Event("e2")], True)
    assert (event.event_id, event.stream_id, event.type) == ("e1", "stream", "progress")
    assert found.events[0].data == {"percent": [50, None]}
    raw = Event("e1", "stream", "progress", b'{ "percent": [50, null] }')
    assert (raw, raw.raw) == (event, b'{"percent":[50,null]}')


@row("JSONLStore.ensure_meta")
def _ensure_meta(store: Store, name: str) -> None:
    session = store.sessions.new("anthropic", workspace="/src/shop")
    assert not store.sessions.ensure_meta(session)
    session.messages.append(say("Hello"))
    assert store.sessions.ensure_meta(session)
    found = store.sessions.load(session.id)
    assert (found.vendor, found.messages) == ("anthropic", [])
    store.sessions.append_message(session.id, say("Hello"))
    assert texts(store.sessions.load(session.id).messages) == ["Hello"]


@row("JSONLStore.new", "JSONLStore.dir", "new_default_store", "default_dir")
def _places(store: Store, name: str) -> None:
    is_default = name in ("new_default_store", "default_dir")
    address = () if is_default else ("sessions.db",)
    with clew.open(*address) as opened:
        id = begun(opened).id
        place = str(opened.properties.place)
    home = os.environ["XDG_DATA_HOME"], os.environ["HOME"]
    assert place.startswith(home) if is_default else place.endswith("sessions.db")
    with clew.open(*address) as again:
        assert len(again.sessions.load(id).messages) == 1


@row("new_session", "Session.id", "Session.created_at")
def _new_session(store: Store, name: str) -> None:
    session = store.sessions.new("anthropic", "api", "large-2")
    assert (session.vendor, session.endpoint, session.model) == ("anthropic", "api", "large-2")
    assert (session.title, session.workspace) == ("", os.path.realpath("."))
    date, time, number = session.id.split("-")
    assert (len(date), len(time), len(number)) == (8, 6, 16)
    mine = store.sessions.new(id="../mine")
    store.sessions.append_message(mine, say("Hello"))
    found = store.sessions.load("../mine")
    assert (found.id, found.created_at) == ("../mine", mine.created_at)
    store.create("session:taken", facts={"facet": "mine"})
    with pytest.raises(AlreadyExists):
        store.sessions.append_message(store.sessions.new(id="taken"), say("Hello"))


@row("has_user_interaction")
def _interaction(store: Store, name: str) -> None:
    image = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    tool = {"type": "tool_result", "tool_use_id": "t", "content": "fine"}
    for content, counts in (
        ("Hello", True),
        ("  \n", False),
        ([{"type": "image", "source": image}], True),
        ([tool], False),
    ):
        session = store.sessions.new()
        session.messages = [{"role": "user", "content": content}]
        assert session.has_user_interaction() is counts
        assert store.sessions.has_user_interaction(session) is counts


@row("current_workspace_path", "normalize_workspace_path")
def _workspace_paths(store: Store, name: str) -> None:
    here = os.path.realpath(".")
    assert sessions.current_workspace_path() == here
    os.symlink(here, "link")
    for path in (".", "  . ", "link", "link/../" + os.path.basename(here)):
        assert sessions.normalize_workspace_path(path).startswith(here)
    assert sessions.normalize_workspace_path(" ") == ""


@row("Session.updated_at")
def _session_updated(store: Store, name: str) -> None:
    session = begun(store)
    before = session.updated_at
    store.sessions.append_message(session.id, say("more"))
    assert store.sessions.load(session.id).updated_at > before
    assert store.sessions.list().items[0].updated_at > before
    elsewhere = Session("elsewhere", before, before, messages=[say("old")])
    store.sessions.save(elsewhere, updated_at=elsewhere.updated_at)
    assert store.sessions.load("elsewhere").updated_at == before


@row("Session.title")
def _session_title(store: Store, name: str) -> None:
    family = "\N{WOMAN}\u200d\N{WOMAN}\u200d\N{GIRL}"
    session = begun(store, say("\n" + family * 30))
    title = store.sessions.load(session.id).title
    assert title == session.title
    assert title.removesuffix("…").replace(family, "") == "", "no character is cut"
    assert store.sessions.list().items[0].title_source == "host"
    store.sessions.set_title(session.id, "Mine", source="user")
    info = store.sessions.list().items[0]
    assert (info.title, info.title_source) == ("Mine", "user")


@row("Session.workspace")
def _session_workspace(store: Store, name: str) -> None:
    os.makedirs("old/.git")
    Path("old/.git/config").write_text('[remote "origin"]\n\turl = git@host:me/shop.git\n')
    session = store.sessions.new(workspace="old")
    store.sessions.append_message(session, say("Hello"))
    assert store.sessions.latest("old").id == session.id
    os.rename("old", "new")
    assert store.sessions.latest("new").id == session.id
    assert store.sessions.latest(".") is None


@row("Session.vendor", "Session.endpoint", "Session.model", "Session.cost")
def _session_fields(store: Store, name: str) -> None:
    session = begun(store)
    field = name.removeprefix("Session.")
    value = {"usd": 0.5, "calls": [1]} if field == "cost" else "another"
    setattr(session, field, value)
    store.sessions.save(session)
    assert getattr(store.sessions.load(session.id), field) == value
    assert getattr(store.sessions.list().items[0], field) == value
    usage = {"input_tokens": 7, "output_tokens": 1}
    for _ in range(2):
        store.sessions.append_message(session.id, say("Hm.", "assistant"), usage=usage, model="m")
    summed = store.sessions.load(session.id).usage
    assert summed["m"] == {"calls": 2, "input_tokens": 14, "output_tokens": 2}


@row("Session.messages")
def _session_messages(store: Store, name: str) -> None:
    session = begun(store, say("go"), CALL, RESULT)
    assert store.sessions.load(session.id).messages == [say("go"), CALL, RESULT]
    entries = store.sessions.thread(session.id).path()
    assert len({entry.id for entry in entries}) == 3
    assert all(entry.time.tzinfo is UTC for entry in entries)
