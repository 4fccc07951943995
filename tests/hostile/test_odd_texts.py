"""Texts that no database can carry, in values that are free: they cost nobody else anything."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

import clew
from clew.core import drafts

ODD = ("\ud800", "a\0b", "\udfff and more")


def talk(thread: clew.Thread, model: str = "m") -> None:
    thread.append_message({"role": "user", "content": "hello there"}, format="anthropic")
    reply: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
    usage = {"input_tokens": 3, "output_tokens": 2}
    thread.append_message({**reply, "model": model, "usage": usage}, format="anthropic")


@pytest.mark.parametrize("text", ODD)
@pytest.mark.parametrize("key", ["model", "agent", "adapter"])
def test_a_fact_that_no_index_can_hold_keeps_nobody_from_searching_and_counting(
    key: str, text: str, store: clew.Store
) -> None:
    for id in ("odd", "other"):
        talk(store.create(id))
    store.get("odd").set_facts({key: text})
    talk(store.get("odd"))
    assert {hit.thread for hit in store.search("hello").items} == {"odd", "other"}
    assert store.usage().total.replies == 3
    assert {row.key for row in store.usage(by="thread").rows} == {"odd", "other"}
    store.usage(by="agent")
    assert store.get("odd").facts[key] == text


@pytest.mark.parametrize("text", ODD)
def test_a_model_that_no_index_can_hold_keeps_nobody_from_searching_and_counting(
    text: str, store: clew.Store
) -> None:
    talk(store.create("odd"), model=text)
    store.get("odd").append("model_change", {"model": text})
    talk(store.get("odd"))
    talk(store.create("other"))
    assert {hit.thread for hit in store.search("hello").items} == {"odd", "other"}
    assert store.usage(by="model").total.replies == 3


@pytest.mark.parametrize("key", ["rewinding", "rewound"])
def test_an_intent_that_is_such_a_text_is_damage(key: str, store: clew.Store) -> None:
    thread = store.create("odd")
    talk(thread)
    store.engine.append("odd", drafts.facts({key: "\ud800"}, store.clock()))
    for call in (thread.undo_rewind, thread.snapshots.recover):
        with suppress(clew.Corrupt, clew.InvalidInput):
            call()
    store.get("odd").context()
