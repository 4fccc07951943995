"""Every row of docs/explain/coming-from.md about the rewinding manager is true."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from _rows import PARTS, Claims

import clew
from clew import AlreadyExists, Conflict, InvalidInput, NotFound, Thread
from clew.store import Store

MANAGER = Claims("rewinding")
row = MANAGER.row


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.mark.parametrize("name", PARTS["rewinding"])
def test_row(name: str, store: Store) -> None:
    MANAGER.check(store, name)


def test_every_claim_has_its_row_and_no_row_comes_twice() -> None:
    MANAGER.check_complete()


# --- helpers ---

BINARY = b"\xff\x00\xfe\x80"


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def begun(store: Store) -> tuple[Thread, Path]:
    """Two turns: u1 found `data` and `run`, the work on it changed one and made `extra`."""
    root = Path("project")
    root.mkdir()
    (root / "data").write_bytes(BINARY)
    (root / "run").write_bytes(b"#!/bin/sh\n")
    (root / "run").chmod(0o755)
    thread = store.create("abc")
    thread.append_message(say("first"), id="u1")
    thread.snapshots.take(root, at="u1")
    thread.append_message(say("done", "assistant"), id="a1")
    (root / "data").write_bytes(b"changed")
    (root / "extra").write_bytes(b"extra")
    thread.append_message(say("second"), id="u2")
    thread.snapshots.take(root, at="u2")
    return thread, root


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def messages(thread: Thread) -> list[str]:
    return [entry.id for entry in thread.path() if entry.kind.endswith("_message")]


# --- the manager ---


@row("Manager.new", "Manager.enable_persistence")
def _stores(store: Store, name: str) -> None:
    with clew.open("memory:") as opened:
        opened.create("abc").append_message(say("hello"))
    with clew.open("threads.db") as opened:
        opened.create("abc").append_message(say("hello"), id="u1")
    with clew.open("threads.db") as again:
        assert messages(again.get("abc")) == ["u1"]
    assert os.stat("threads.db").st_mode & 0o077 == 0
    Path("threads.db").write_bytes(b"damaged " * 1000)
    with pytest.raises(clew.ClewError):
        clew.open("threads.db")
    assert Path("threads.db").read_bytes() == b"damaged " * 1000


@row("Manager.get", "Manager.get_or_create")
def _get(store: Store, name: str) -> None:
    assert store.find("abc") is None
    with pytest.raises(NotFound):
        store.get("abc")
    for _ in range(2):
        thread = store.get_or_create("abc")
        assert thread == store.get("abc")
    entry = thread.append_message(say("hello"))
    entry.body["content"] = "changed"
    assert thread.get(entry.id).body["content"] == "hello"
    with pytest.raises(InvalidInput):
        store.create("")


@row("Manager.list", "list_sessions")
def _list(store: Store, name: str) -> None:
    for id in ("a", "b", "c"):
        store.create(id).append_message(say(id))
    store.get("a").append_message(say("again"))
    assert [info.id for info in store.list(order="updated").items] == ["a", "c", "b"]
    assert len(list(store.threads())) == 3


@row("Manager.set_state")
def _set_state(store: Store, name: str) -> None:
    thread = store.get_or_create("abc")
    talk = store.conversations.of(thread)
    talk.set_history([say("old")])
    talk.set_history([say("1"), say("ok", "assistant")], ids=["u1", None])
    talk.set_history([say("1"), say("ok", "assistant"), say("2")], ids=["u1", None, "u2"])
    assert store.stats().entries == 4, "only what is new"
    assert [message["content"] for message in talk.history()] == ["1", "ok", "2"]
    assert thread.count_user_messages() == 2
    assert "old" in [entry.body["content"] for entry in thread.entries()]
    thread.rewind("u2", files=False)
    assert thread.count_user_messages() == 1


@row("Manager.snapshot", "Manager.rewind", "Session.user_turns", "Session.checkpoints")
def _rewind(store: Store, name: str) -> None:
    thread, root = begun(store)
    assert thread.count_user_messages() == 2
    thread.rewind("u2", files=False)
    assert (messages(thread), thread.count_user_messages()) == (["u1", "a1"], 1)
    thread.append_message(say("another"), id="u3")
    kinds = {entry.id for entry in thread.entries() if entry.kind == "user_message"}
    assert kinds == {"u1", "u2", "u3"}
    assert names(root) == ["data", "extra", "run"]
    thread.undo_rewind()
    assert messages(thread) == ["u1", "a1", "u2"]
    with pytest.raises(NotFound):
        thread.rewind("nobody", files=False)


@row("Manager.snapshot_files", "Session.file_checkpoints", "StatSession.file_checkpoint_count")
def _snapshot_files(store: Store, name: str) -> None:
    thread, root = begun(store)
    (root / "sub" / ".git").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "link").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    taken = thread.snapshots.take(root, at="u2")
    nodes = dict(thread.snapshots.trees.walk(taken.tree))
    assert {path: node.kind for path, node in nodes.items()} == {
        "data": "file",
        "empty": "folder",
        "extra": "file",
        "link": "link",
        "run": "executable",
        "sub": "folder",
    }
    assert [(item.path, item.reason) for item in taken.left_out] == [("pipe", "special")]
    assert thread.snapshots.take(root, at="u2").new_bytes == 0
    assert [one.at for one in thread.snapshots.list()] == ["u2", "u2", "u2", "u1"]
    assert thread.snapshots.stats().snapshots == 4
    assert len(thread.snapshots.limit(keep_last=2)) == 2
    thread.snapshots.drop(taken.id)
    assert len(thread.snapshots.list()) == 1


@row("Manager.rewind_files")
def _rewind_files(store: Store, name: str) -> None:
    thread, root = begun(store)
    (root / "mine").write_bytes(b"never in a snapshot")
    inode = (root / "run").stat().st_ino
    planned = thread.rewind("u1", conversation=False, dry_run=True)
    assert planned.files is not None
    acts = [(step.act, step.path) for step in planned.files.plan.steps]
    assert acts == [("overwrite", "data"), ("delete", "extra")]
    thread.rewind("u1", conversation=False)
    assert ((root / "data").read_bytes(), names(root)) == (BINARY, ["data", "mine", "run"])
    assert ((root / "run").stat().st_mode & 0o777, (root / "run").stat().st_ino) == (0o755, inode)
    assert messages(thread) == ["u1", "a1", "u2"]
    thread.undo_rewind()
    assert (root / "data").read_bytes() == b"changed"
    outside = Path("outside")
    outside.write_bytes(b"not yours")
    (root / "data").unlink()
    (root / "data").symlink_to("../outside")
    with pytest.raises(Conflict) as stopped:
        thread.rewind("u1", conversation=False)
    assert stopped.value.files == ("data",)  # type: ignore[attr-defined]
    thread.rewind("u1", conversation=False, force=True)
    assert ((root / "data").read_bytes(), outside.read_bytes()) == (BINARY, b"not yours")
    Path("elsewhere").mkdir()
    thread.snapshots.restore(thread.snapshots.list()[-1], "elsewhere")
    assert names(Path("elsewhere")) == ["data", "run"]


@row("Manager.clone")
def _clone(store: Store, name: str) -> None:
    thread, _ = begun(store)
    copy = store.clone("abc", id="copy")
    assert messages(copy) == ["u1", "a1", "u2"]
    ids = [snapshot.id for snapshot in thread.snapshots.list()]
    assert [snapshot.id for snapshot in copy.snapshots.list()] == ids
    assert list(copy.entries()) != []
    with pytest.raises(AlreadyExists):
        store.clone("abc", id="copy")
    with pytest.raises(NotFound):
        store.clone("nobody", id="other")
    store.conversations.set_history("k", [say("1")])
    assert store.conversations.fork("k", "k2").history() == [say("1")]


@row("Manager.new_fork_id")
def _fork_ids(store: Store, name: str) -> None:
    store.create("abc")
    assert store.fork_id("abc") == "abc#fork-1"
    assert store.fork("abc", id=store.fork_id("abc")).id == "abc#fork-2"
    store.purge("abc#fork-2")
    store.create("abc#fork-3")
    assert store.fork_id("abc") == "abc#fork-4"


@row("clone", "get_session_messages", "Session.messages", "Session.id")
def _messages(store: Store, name: str) -> None:
    thread = store.create("any / thing")
    said = {"role": "user", "content": [{"type": "text", "text": "hi", "n": 2**63 - 1}]}
    thread.append_message(said)
    got = thread.path()[0].body
    assert got == said
    got["content"][0]["text"] = "changed"
    assert thread.path()[0].body == said
    assert thread.context("anthropic").messages[0]["content"][0]["text"] == "hi"
    assert thread.id == "any / thing"


@row("NoCheckpoint")
def _no_checkpoint(store: Store, name: str) -> None:
    thread = store.create("abc")
    thread.append_message(say("first"), id="u1")
    with pytest.raises(NotFound, match="snapshot for user message"):
        thread.rewind("u1")
    assert messages(thread) == ["u1"], "neither has gone back"


@row("Session.created_at", "Session.updated_at")
def _times(store: Store, name: str) -> None:
    thread = store.create("abc")
    before = thread.info
    thread.append_message(say("first"))
    assert thread.info.created_at == before.created_at
    assert thread.info.updated_at > before.updated_at


@row("StatSession.message_count", "StatSession.checkpoint_count")
def _counts(store: Store, name: str) -> None:
    thread = store.create("abc")
    for text in ("1", "2"):
        thread.append_message(say(text))
        thread.append_message(say("ok", "assistant"))
    assert len(thread.path()) == 4
    assert sum(entry.kind == "user_message" for entry in thread.entries()) == 2
