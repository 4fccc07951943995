"""Contexts that go on, on every engine, while others write to the same thread.

The other store stands for another process: it has an engine of its own where the place can be
opened twice. What it writes has to be in the next context of the first.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from context.test_recall import asked, marked
from places import DurablePlace, MemoryPlace

import clew
from clew.store import Store
from clew.thread import Thread

FORMAT = "anthropic"


def write(thread: Thread, chance: Random, number: int) -> None:
    kind = chance.choice(["ask", "ask", "call", "call", "marked", "move", "compact", "edit", "set"])
    ids = [entry.id for entry in thread.path()]
    call = {"type": "tool_use", "id": f"c{number}", "name": "run", "input": {"n": number}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "done"}
    if kind == "ask" or not ids:
        thread.append_message({"role": "user", "content": f"q{number}"}, format=FORMAT)
        thread.append_message({"role": "assistant", "content": f"a{number}"}, format=FORMAT)
    elif kind == "call":
        thread.append_message({"role": "assistant", "content": [call]}, format=FORMAT)
        if chance.random() < 0.7:
            thread.append_message({"role": "user", "content": [result]}, format=FORMAT)
    elif kind == "marked":
        thread.append_message(marked(f"m{number}"), format=FORMAT)
    elif kind == "move":
        thread.move(chance.choice(ids))
    elif kind == "compact":
        thread.compact(summary=f"s{number}", keep_turns=1)
    elif kind == "edit":
        thread.append("context_edit", {"edit": "remove", "target": chance.choice(ids)})
    else:
        thread.set(title=f"t{number}")


@pytest.mark.parametrize("seed", range(3))
def test_what_others_write_is_in_the_next_context(
    place: MemoryPlace | DurablePlace, store: Store, seed: int
) -> None:
    chance = Random(seed)
    mine = store.create()
    other = Store(store.engine if isinstance(place, MemoryPlace) else place.open())
    theirs = other.get(mine.id)
    given: list[dict[str, Any]] = [{"format": FORMAT}, {"format": "openai-chat"}, {"format": None}]
    for number in range(25):
        write(chance.choice([mine, theirs, store.get(mine.id)]), chance, number)
        for wanted in given[: chance.randrange(4)]:
            asked(mine, **wanted)
    found = asked(mine, format=FORMAT)
    assert found == theirs.context(FORMAT) == clew.context.project(mine.path(), FORMAT)
