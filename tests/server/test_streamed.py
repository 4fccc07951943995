"""Replies while they come: the page has the newest of them, once, and says that it is not whole."""

from __future__ import annotations

import re
from typing import Any

import pytest
from event_streams import a_block, a_start, a_text, a_use
from httpx import Client
from hypothesis import given
from hypothesis import strategies as st
from server.viewer_client import client_of
from server.viewer_store import BEGAN, Clock, fill_long, user

import clew
from clew.core.model import to_us
from clew.server.outline import RUN_ENTRIES, STEP_ENTRIES, Outlines, outlined
from clew.store import Store
from clew.thread import Thread


def told(client: Client, thread: Thread) -> str:
    return client.get("/thread", params={"id": thread.id}).text


def cards_of(html: str) -> list[str]:
    return re.findall(r"<article.*?</article>", html, re.DOTALL)


def test_a_reply_is_shown_as_it_grows_and_whole_at_the_end(store: Store) -> None:
    client = client_of(store)
    thread = store.create("t")
    asked = thread.append_message(user("Tell me a story."))
    start, *deltas, end = [a_start(), *a_text(0, "Once upon a time there was a ball of thread.")]
    with thread.streaming("anthropic", save_seconds=0) as reply:
        reply.feed(start)
        for event in deltas[:4]:
            reply.feed(event)
        first = cards_of(told(client, thread))
        assert len(first) == 2
        assert "Once upon" in first[1]
        assert "streaming</span>" in first[1]
        assert f'data-stream="{reply.id}"' in first[1]
        for event in deltas[4:]:
            reply.feed(event)
        tail = client.get("/thread/tail", params={"id": "t", "after": asked.id}).text
        assert len(cards_of(tail)) == 1
        assert "a ball of thread" in tail
        reply.feed(end)
        reply.feed({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {}})
        reply.feed({"type": "message_stop"})
    last = cards_of(told(client, thread))
    assert len(last) == 2
    assert "streaming</span>" not in last[1]
    assert f'data-entry="{reply.id}"' in last[1], "the page finds its draft by this"


def test_a_reply_that_broke_off_says_why_and_names_the_call_that_was_cut(store: Store) -> None:
    client = client_of(store)
    thread = store.create("t")
    thread.append_message(user("Read it."))
    begin, *rest = a_use(1, "c1")
    with (
        pytest.raises(ConnectionError),
        thread.streaming("anthropic", save_seconds=0) as reply,
    ):
        for event in [a_start(), *a_text(0, "I read <it>."), begin, rest[0], rest[1]]:
            reply.feed(event)
        assert "is being called" in told(client, thread)
        raise ConnectionError("the line was cut")
    html = cards_of(told(client, thread))[-1]
    assert "not whole: ConnectionError: the line was cut" in html
    assert "read</b>" in html
    assert "cut off" in html


def test_what_a_killed_agent_left_is_not_called_streaming_for_ever(store: Store) -> None:
    thread = store.create("t", time=BEGAN)
    clock = Clock()
    store.clock = lambda: to_us(clock(0.1))
    reply = thread.streaming("anthropic", save_seconds=0).__enter__()
    for event in [a_start(), *a_text(0, "Once upon a time")]:
        reply.feed(event)
    clock(600)
    html = told(client_of(store), thread)
    assert "it stopped while it came" in html
    assert "streaming</span>" not in html


def test_drafts_are_no_branches_in_the_tree_nor_ends_to_compare(store: Store) -> None:
    client = client_of(store)
    thread = store.create("t")
    thread.append_message(user("Tell me."))
    with thread.streaming("anthropic", save_seconds=0) as reply:
        for event in [a_start(), *a_text(0, "A long story about a ball of thread")]:
            reply.feed(event)
    assert len(thread.leaves()) > 3
    html = client.get("/tree?id=t").text
    assert html.count('<li class="stop') == len(thread.path())
    assert "of streamed replies left out" in html
    assert "and this one" not in client.get("/compare?id=t").text, "there is one branch"


def test_a_draft_that_somebody_went_on_from_stays_in_the_tree(store: Store) -> None:
    thread = store.create("t")
    thread.append_message(user("Tell me."))
    with thread.streaming("anthropic", save_seconds=0) as reply:
        for event in [a_start(), *a_text(0, "A story")]:
            reply.feed(event)
        thread.append_message(user("Stop!"))
    html = client_of(store).get("/tree?id=t").text
    for entry in thread.path():
        assert entry.id in html


# --- the outline of a path whose end is replaced ---


def same(a: Any, b: Any) -> None:
    assert (a.hash, a.ids, a.kinds, a.times, a.heights, a.runs) == (
        *(b.hash, b.ids, b.kinds, b.times, b.heights),
        b.runs,
    )


@given(
    st.integers(0, 2 * RUN_ENTRIES + 5),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, RUN_ENTRIES + 3)), max_size=5),
)
def test_an_outline_that_grew_is_that_of_the_path(begin: int, steps: list[tuple[int, int]]) -> None:
    """However the end was replaced: a few entries back, and some others from there."""
    with clew.open("memory:") as store:
        thread = store.create("t")
        outlines = Outlines()
        if begin:
            thread.append([clew.draft("custom", {"n": n}) for n in range(begin)])
        for back, more in steps:
            same(outlines.get(thread), outlined(thread.path()))
            path = thread.path()
            if path:
                thread.move(path[-1 - min(back, len(path) - 1)].id)
            thread.append([clew.draft("custom", {"m": n}) for n in range(more)])
        same(outlines.get(thread), outlined(thread.path()))


def test_a_reply_that_grows_does_not_walk_a_long_thread_anew(store: Store) -> None:
    thread = fill_long(store, 1000)
    outlines = Outlines()
    outlines.get(thread)
    read: list[int | None] = []
    path = thread.path

    class Watched:
        id = thread.id
        get = staticmethod(thread.get)

        @staticmethod
        def path(*args: Any, **options: Any) -> Any:
            read.append(options.get("limit"))
            return path(*args, **options)

    with thread.streaming("anthropic", save_seconds=0) as reply:
        for event in [a_start(), *a_block(0, {"type": "text", "text": "A story"})]:
            reply.feed(event)
            outlines.get(Watched())  # type: ignore[arg-type]
    assert read
    assert all(limit is not None and limit <= STEP_ENTRIES for limit in read)
    same(outlines.get(thread), outlined(thread.path()))
