"""Every row of docs/explain/coming-from.md about runs and conversations is true."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from _rows import PARTS, Claims

import clew
from clew import Closed, Conflict, InvalidInput, LeaseHeld, NotFound
from clew.core import drafts
from clew.facets.conversations import Conversations
from clew.facets.runs import Checkpoint
from clew.store import Store

RUNS, TALKS = Claims("runs"), Claims("conversations")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", PARTS["runs"])
def test_runs_row(name: str, store: Store) -> None:
    RUNS.check(store, name)


@pytest.mark.parametrize("name", PARTS["conversations"])
def test_conversations_row(name: str, store: Store) -> None:
    TALKS.check(store, name)


@pytest.mark.parametrize("claims", [RUNS, TALKS])
def test_every_claim_has_its_row_and_no_row_comes_twice(claims: Claims) -> None:
    claims.check_complete()


# --- helpers ---

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "found"}
TIME = datetime(2026, 1, 1, tzinfo=UTC)


def say(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def texts(messages: list[Any]) -> list[Any]:
    return [message["content"] for message in messages]


def at_once(*calls: Callable[[], Any]) -> None:
    workers = [threading.Thread(target=call) for call in calls]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


# --- runs ---


@RUNS.row("Store.new")
def _new_runs(store: Store, name: str) -> None:
    with clew.open("runs.db") as opened:
        opened.runs.save(Checkpoint(run_id="r", messages=[say("go")]))
    with clew.open("runs.db") as again:
        assert again.runs.load("r").messages == [say("go")]


@RUNS.row("Store.save")
def _save_run(store: Store, name: str) -> None:
    said = [say(str(n)) for n in range(50)]
    store.runs.save(Checkpoint(run_id="r", iteration=1, messages=said))
    before = store.stats().entries
    store.runs.save(Checkpoint(run_id="r", iteration=2, messages=[*said, say("new")]))
    assert store.stats().entries == before + 1, "only what is new"
    assert [info.iteration for info in store.runs.history("r")] == [2, 1]

    def save(n: int) -> None:
        store.runs.save(Checkpoint(run_id="s", iteration=n, messages=[say(f"of {n}")] * n))

    at_once(*(lambda n=n: save(n) for n in range(1, 9)))
    last = store.runs.load("s")
    assert last.messages == [say(f"of {last.iteration}")] * last.iteration
    assert len(store.runs.history("s")) == 8


@RUNS.row("Store.load")
def _load_run(store: Store, name: str) -> None:
    saved = store.runs.save(Checkpoint(run_id="r", iteration=3, messages=[say("go"), CALL]))
    assert store.runs.load("r") == saved
    with pytest.raises(NotFound):
        store.runs.load("s")
    assert store.runs.find("s") is None


@RUNS.row("Store.has_checkpoint")
def _has_run(store: Store, name: str) -> None:
    store.runs.save(Checkpoint(run_id="r"))
    assert (store.runs.has("r"), store.runs.has("s")) == (True, False)


@RUNS.row("Store.list")
def _list_runs(store: Store, name: str) -> None:
    assert store.runs.list().items == []
    for id in ("a", "b", "c"):
        store.runs.save(Checkpoint(run_id=id, messages=[say("go")]))
    store.runs.save(Checkpoint(run_id="a", iteration=2))
    page = store.runs.list(limit=2)
    rest = store.runs.list(limit=2, cursor=page.cursor)
    assert [info.run_id for info in (*page.items, *rest.items)] == ["a", "c", "b"]
    assert not hasattr(page.items[1], "messages")
    assert page.items[1].message_count == 1
    store.runs.save(Checkpoint(run_id="b", created_at=TIME))
    by_creation = store.runs.list(order="created").items
    assert by_creation[0].run_id == "b"
    store.engine.append("run:c", drafts.facts({"checkpoint": [1]}, 0))
    found = {info.run_id: info.damaged for info in store.runs.all()}
    assert (found.pop("c") is None, found) == (False, {"a": None, "b": None})


@RUNS.row("Store.delete")
def _delete_run(store: Store, name: str) -> None:
    store.runs.save(Checkpoint(run_id="r", iteration=7))
    for _ in range(2):
        store.runs.delete("r")
        assert not store.runs.has("r")
    store.runs.delete("never there")
    assert [info.iteration for info in store.runs.history("r")] == [7]


@RUNS.row("resume")
def _resume(store: Store, name: str) -> None:
    with pytest.raises(ValueError, match="bad"), store.runs.resume_or_start("r") as run:
        run.save([say("go")], iteration=1, input_tokens=10, output_tokens=2)
        raise ValueError("bad")
    with store.runs.resume_or_start("r") as run:
        assert (run.resumed, run.iteration, run.messages) == (True, 1, [say("go")])
        assert (run.input_tokens, run.output_tokens) == (10, 2)
        with pytest.raises(LeaseHeld):
            store.runs.resume_or_start("r").__enter__()
        run.done()
    assert not store.runs.has("r")


@RUNS.row("Checkpoint.run_id")
def _run_id(store: Store, name: str) -> None:
    ids = ["../evil", "a/b", "a_b", ".json", "x" * 600]
    for id in ids:
        store.runs.save(Checkpoint(run_id=id))
    assert {info.run_id for info in store.runs.list().items} == set(ids)
    with pytest.raises(InvalidInput):
        store.runs.save(Checkpoint(run_id=""))
    assert all(name.startswith("threads") for name in os.listdir(".")), "none is a path"


@RUNS.row(
    "Checkpoint.task_name",
    "Checkpoint.iteration",
    "Checkpoint.messages",
    "Checkpoint.system_prompt",
    "Checkpoint.input_tokens",
    "Checkpoint.output_tokens",
)
def _run_fields(store: Store, name: str) -> None:
    field = name.removeprefix("Checkpoint.")
    given = {
        "task_name": "report",
        "iteration": 4,
        "messages": [say("go"), CALL, RESULT],
        "system_prompt": "Be brief.",
        "input_tokens": 2**40,
        "output_tokens": 5,
    }
    store.runs.save(Checkpoint(run_id="r", **given))
    assert getattr(store.runs.load("r"), field) == given[field]
    store.runs.save(Checkpoint(run_id="bare"))
    empty = {"task_name": "", "messages": [], "system_prompt": ""}
    assert getattr(store.runs.load("bare"), field) == empty.get(field, 0)


@RUNS.row("Checkpoint.created_at")
def _run_times(store: Store, name: str) -> None:
    first = store.runs.save(Checkpoint(run_id="r"))
    again = store.runs.save(Checkpoint(run_id="r", iteration=1))
    assert again.created_at == first.created_at < again.updated_at
    assert store.runs.save(Checkpoint(run_id="s", created_at=TIME)).created_at == TIME
    later = store.runs.save(Checkpoint(run_id="s", created_at=TIME + timedelta(1)))
    assert store.runs.load("s") == later
    assert later.created_at == TIME + timedelta(1)


# --- conversations ---


@TALKS.row("SessionStore", "SessionManager", "JSONLStore")
def _talk_stores(store: Store, name: str) -> None:
    """An agent loop runs on any of them."""

    def loop(talks: Conversations) -> list[Any]:
        talks.set_summary("new", "made by this")
        talks.add_message("k", "user", "Hello")
        talks.add_full_message("k", CALL)
        talks.set_history("other", [say("x" * 11_000_000)])
        assert len(talks.get_history("other")[0]["content"]) == 11_000_000
        assert talks.get_summary("new") == "made by this"
        return talks.get_history("k")

    assert loop(store.conversations) == [say("Hello"), CALL]
    for address in ("memory:", "chats.db"):
        with clew.open(address) as opened:
            assert loop(opened.conversations) == [say("Hello"), CALL]
    with clew.open("chats.db") as again:
        assert again.conversations.get_history("k") == [say("Hello"), CALL]


@TALKS.row("SessionStore.add_message", "SessionStore.add_full_message", "SessionStore.get_history")
def _add(store: Store, name: str) -> None:
    talks = store.conversations
    assert talks.get_history("k") == []
    talks.add_message("k", "user", "Hello")
    talks.add_full_message("k", CALL)
    assert talks.get_history("k") == [say("Hello"), CALL]
    talks.get("k").add("tool", "x")
    talks.get("k").add_message(say("Bye"))
    assert len(talks.get("k").history()) == 4
    with pytest.raises(InvalidInput):
        talks.add_full_message("k", {"content": "nobody said this"})


@TALKS.row("SessionStore.get_summary", "SessionStore.set_summary", "Session.summary")
def _summary(store: Store, name: str) -> None:
    talks = store.conversations
    assert talks.get_summary("k") == ""
    for text in ("first", "second"):
        talks.set_summary("k", text)
    assert talks.get_summary("k") == talks.get("k").summary == "second"
    assert [info.summary for info in talks.list().items] == ["second"]


@TALKS.row("SessionStore.set_history")
def _set_history(store: Store, name: str) -> None:
    talk = store.conversations.get("k")
    talk.add("user", "old")
    store.conversations.set_history("k", [say("new"), say("newer")])
    assert texts(talk.history()) == ["new", "newer"]
    assert "old" in [entry.body["content"] for entry in talk.thread.entries()]
    with pytest.raises(InvalidInput):
        store.conversations.set_history("k", [say("half"), {"content": "bad"}])
    assert texts(talk.history()) == ["new", "newer"]
    before, leaf = store.stats().entries, talk.leaf
    store.conversations.set_history("k", [say("new"), say("newer"), say("newest")])
    assert store.stats().entries == before + 1
    with pytest.raises(Conflict):
        store.conversations.set_history("k", [say("new")], expect=leaf)


@TALKS.row("SessionStore.truncate_history")
def _truncate(store: Store, name: str) -> None:
    talks = store.conversations
    for n in range(10):
        talks.add_message("k", "user", str(n))
    talks.truncate_history("k", 99)
    talks.truncate_history("k", 4)
    assert texts(talks.get_history("k")) == ["6", "7", "8", "9"]
    with pytest.raises(InvalidInput):
        talks.truncate_history("k", -1)
    talks.truncate_history("k", 0)
    assert talks.get_history("k") == []
    talks.set_history("k", [say("go"), CALL, RESULT])
    talks.truncate_history("k", 1)
    assert talks.get_history("k") == [CALL, RESULT]
    talks.truncate_history("k", 1, exact=True)
    assert talks.get_history("k") == [RESULT]
    talks.add_message("k", "user", "Go on.")
    assert talks.get("k").thread.context("openai-chat").messages == [say("Go on.")]


@TALKS.row("SessionStore.save")
def _nothing_to_do(store: Store, name: str) -> None:
    talks = store.conversations
    talks.add_message("k", "user", "a")
    before = store.stats()
    talks.save("k")
    talks.save("unknown")
    assert store.stats() == before


@TALKS.row("SessionStore.close")
def _close(store: Store, name: str) -> None:
    talks = clew.open("chats.db").conversations
    talks.add_message("k", "user", "a")
    talks.close()
    with pytest.raises(Closed):
        talks.get_history("k")
    with clew.open("chats.db") as again:
        assert texts(again.conversations.get_history("k")) == ["a"]


@TALKS.row("JSONLStore.compact")
def _compact(store: Store, name: str) -> None:
    talks = store.conversations
    talks.set_history("k", [say("a"), say("b"), say("c")])
    talks.truncate_history("k", 1)
    talks.save("k")
    assert len(talks.get("k").thread.context("plain", compacted=False).messages) == 3
    assert talks.compact_storage("k").entries == 2
    assert len(talks.get("k").thread.context("plain", compacted=False).messages) == 1
    assert texts(talks.get_history("k")) == ["c"]
    assert store.verify() == []


@TALKS.row("SessionManager.get_or_create", "Session.messages")
def _get_or_create(store: Store, name: str) -> None:
    got: list[str] = []
    at_once(*(lambda: got.append(store.conversations.get_or_create("k").thread.id),) * 4)
    assert got == ["conversation:k"] * 4
    talk = store.conversations.get_or_create("k")
    assert (talk.history(), store.stats().threads) == ([], 1)
    talk.add("user", "Hello")
    talk.history()[0]["content"] = "changed"
    talk.history().append(say("more"))
    assert talk.history() == [say("Hello")]


@TALKS.row("migrate_from_json")
def _migrate(store: Store, name: str) -> None:
    files = {"telegram:1": ([say("a"), CALL, RESULT], "they met"), "telegram_1": ([say("b")], "")}
    for _ in range(2):
        for key, (messages, summary) in files.items():
            store.conversations.set_history(key, messages)
            store.conversations.set_summary(key, summary)
    for key, (messages, summary) in files.items():
        talk = store.conversations.get(key)
        assert (talk.history(), talk.summary) == (messages, summary)


@TALKS.row("fire_and_forget")
def _quiet(store: Store, name: str) -> None:
    logging.getLogger("clew.conversation").setLevel(logging.CRITICAL)
    quiet = Conversations(store, on_error="log")
    quiet.add_message("k", "user", 7)
    quiet.add_message("", "user", "to nobody")
    assert quiet.failed == 2
    assert [type(failure.error) for failure in quiet.failures] == [InvalidInput, InvalidInput]
    assert quiet.get_history("") == []
    with pytest.raises(InvalidInput):
        store.conversations.add_message("k", "user", 7)


@TALKS.row("sanitize_filename", "Session.key", "list_sessions")
def _keys(store: Store, name: str) -> None:
    keys = ["a:b", "a/b", "a\\b", "a_b", "A:B", "a:b ", "..", "\u00e9", "e\u0301", "x" * 600]
    for key in keys:
        store.conversations.add_message(key, "user", f"for {key}")
    for key in keys:
        assert texts(store.conversations.get_history(key)) == [f"for {key}"]
        assert store.conversations.get(key).key == key
    assert {info.key for info in store.conversations.list().items} == set(keys)
    assert [info.key for info in store.conversations.all()] == keys[::-1]
    with pytest.raises(InvalidInput):
        store.conversations.get("")


@TALKS.row("Session.created", "Session.updated")
def _talk_times(store: Store, name: str) -> None:
    talk = store.conversations.get("k")
    talk.add("user", "a")
    first = store.conversations.list().items[0]
    talk.add("user", "b")
    second = store.conversations.list().items[0]
    assert first.created_at == second.created_at <= first.updated_at < second.updated_at


@TALKS.row(*(row for row in PARTS["conversations"] if row.startswith("Message.")))
def _message(store: Store, name: str) -> None:
    full = {
        "role": "assistant",
        "content": "cut emoji \ud83d",
        "media": ["voice-7"],
        "reasoning_content": "…",
        "system_parts": [{"type": "text", "text": "x"}],
        "tool_calls": CALL["tool_calls"],
        "tool_call_id": "c0",
        "a field of tomorrow": {"n": 2**53 + 1},
    }
    talk = store.conversations.get("k")
    talk.add_message(full)
    assert name.removeprefix("Message.") in full
    assert talk.history() == [full]
