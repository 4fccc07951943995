"""What was erased is not restored into the state of an agent, and not stored again by it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

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


STEPS = 3


def run_graph(store: clew.Store) -> tuple[Any, Any, list[Any]]:
    """A saver with three checkpoints and their writes; the last config, and the messages."""
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.base import empty_checkpoint

    from clew.adapters.langgraph import ClewSaver

    saver = ClewSaver(store)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    messages: list[Any] = []
    for step in range(STEPS):
        messages = [*messages, HumanMessage(f"{WORD} {step}", id=f"m{step}")]
        checkpoint = empty_checkpoint()
        checkpoint["id"] = f"1ef4f797-8335-6428-8001-8a1503f9b87{step}"
        checkpoint["channel_values"] = {
            "messages": messages,
            "notes": {"n": WORD},
            "papers": ["p" * 600],
            "facts": {"f": "q" * 600},
            "long": "z" * 500,
        }
        others = {"notes": 1, "papers": 1, "facts": 1, "long": 1}
        checkpoint["channel_versions"] = {"messages": step + 1, **others}
        new = {"messages": step + 1} | (others if step == 0 else {})
        config = saver.put(config, checkpoint, {"source": "loop", "step": step}, new)
        saver.put_writes(config, [("notes", f"written {step}")], f"task {step}")
    return saver, config, messages


@pytest.mark.parametrize("is_fresh", [False, True])
def test_whatever_is_erased_of_a_graph_is_told_or_left_out(is_fresh: bool) -> None:
    """Every entry of it, one after the other: never an error that is not Clew's."""
    from clew.adapters.langgraph import ClewSaver

    with clew.open("memory:") as store:
        run_graph(store)
        count = len(store.get("t").path())
    told = 0
    for place in range(count):
        with clew.open("memory:") as store:
            saver, last, messages = run_graph(store)
            erased = store.get("t").path()[place]
            store.erase("t", [erased.id])
            saver = ClewSaver(store) if is_fresh else saver
            newest: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
            for config in (newest, last):
                with suppress(clew.NotFound):
                    told += 1
                    found = saver.get_tuple(config)
                    told -= 1
                    assert found is not None
                    said = [one.content for one in found.checkpoint["channel_values"]["messages"]]
                    expected = [one.content for one in messages[: len(said)]]
                    if erased.kind == "user_message":
                        expected[int(erased.body["content"].split()[-1])] = "[erased]"
                    assert said == expected
            listed = [one.checkpoint["id"] for one in saver.list(newest)]
            assert listed == sorted(listed, reverse=True)
            is_checkpoint = erased.format == "langgraph.checkpoint"
            assert (len(listed) < STEPS) == is_checkpoint
            assert store.verify() == []
    assert told == 3  # the last one by its id; and both ways if what others need was with the first


def test_the_last_checkpoint_gives_way_to_the_one_before() -> None:
    with clew.open("memory:") as store:
        saver, last, _ = run_graph(store)
        newest: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        store.erase("t", [last["configurable"]["checkpoint_id"]])
        found = saver.get_tuple(newest)
        assert found is not None
        assert found.checkpoint["id"].endswith("1")
        with pytest.raises(clew.NotFound, match="was erased for good") as caught:
            saver.get_tuple(last)
        assert caught.value.erased_at is not None


def test_a_graph_that_still_has_a_message_does_not_store_it_again() -> None:
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.base import empty_checkpoint

    with clew.open("memory:") as store:
        saver, last, messages = run_graph(store)
        entries = [one for one in store.get("t").path() if one.kind == "user_message"]
        store.erase("t", [entries[0].id, entries[1].id])
        saver.get_tuple(last)
        checkpoint = empty_checkpoint()
        checkpoint["id"] = "1ef4f797-8335-6428-8001-8a1503f9b879"
        checkpoint["channel_values"] = {"messages": [*messages, AIMessage("well", id="m9")]}
        checkpoint["channel_versions"] = {"messages": 9}
        config = saver.put(last, checkpoint, {"source": "loop", "step": 9}, {"messages": 9})
        shown = [one for one in store.get("t").path() if one.kind.endswith("_message")]
        assert [f"{WORD} {n}" in str(one.body) for n, one in enumerate(shown)] == (
            [False, False, True, False]
        )
        assert not [one for one in store.get("t").path() if one.kind == "context_edit"]
        found = saver.get_tuple(config)
        assert found is not None
        said = [one.content for one in found.checkpoint["channel_values"]["messages"]]
        assert said == ["[erased]", "[erased]", f"{WORD} 2", "well"]


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
