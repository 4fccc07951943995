"""What was erased is not restored into the state of an agent, and not stored again by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import clew
from clew.facets.runs.checkpoint import Checkpoint

WORD = "zanzibarkey"


def test_a_checkpoint_that_a_saver_knows_by_heart_is_read_anew(tmp_path: Path) -> None:
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint

    from clew.adapters.langgraph import ClewSaver

    place = str(tmp_path / "store.db")
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    with clew.open(place) as store, clew.open(place) as other:
        saver = ClewSaver(store)
        messages = [HumanMessage(f"the {WORD}", id="m1"), AIMessage("yes", id="m2")]
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": messages}
        checkpoint["channel_versions"] = {"messages": 1}
        saver.put(config, checkpoint, {"source": "loop", "step": 1}, {"messages": 1})
        assert WORD in str(saver.get_tuple(config))
        (entry,) = [e for e in other.get("t").path() if WORD.encode() in e.data]
        other.erase("t", [entry.id])
        found = saver.get_tuple(config)
        assert found is not None
        assert WORD not in str(found)
        said = [one.content for one in found.checkpoint["channel_values"]["messages"]]
        assert said == ["[erased]", "yes"]


def test_a_history_that_is_given_again_is_not_stored_again(tmp_path: Path) -> None:
    with clew.open(str(tmp_path / "store.db")) as store:
        history = [
            {"role": "user", "content": f"the {WORD}"},
            {"role": "assistant", "content": "yes"},
        ]
        chat = store.conversations
        chat.set_history("c", history)
        thread = chat.thread("c")
        thread.erase(thread.path()[0].id)
        chat.set_history("c", [*history, {"role": "user", "content": "more"}])
        assert len(thread.path()) == 3
        assert not [one for one in thread.read() if WORD.encode() in getattr(one, "data", b"")]
        shown = chat.get_history("c")
        chat.set_history("c", [*shown, {"role": "assistant", "content": "well"}])
        assert len(thread.path()) == 4


def test_a_run_that_is_saved_again_does_not_store_it_again(tmp_path: Path) -> None:
    place = str(tmp_path / "store.db")
    messages: list[Any] = [{"role": "user", "content": f"the {WORD}"}]
    with clew.open(place) as store, clew.open(place) as other:
        store.runs.save(Checkpoint(run_id="r", messages=messages))
        thread = other.runs.thread("r")
        thread.erase(thread.path()[0].id)
        for one in (store, other):
            messages.append({"role": "user", "content": "more"})
            one.runs.save(Checkpoint(run_id="r", messages=messages))
        assert not [one for one in thread.read() if WORD.encode() in getattr(one, "data", b"")]
        found = other.runs.load("r").messages
        assert [one["content"] for one in found] == ["[erased]", "more", "more"]
