"""Server-sent events: nothing is missed, nothing hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from server.viewer_client import TOKEN, serving

from clew.core.errors import Unavailable
from clew.store import Store


def connected(address: str, query: str, last: str | None = None) -> Any:
    port = address.rpartition(":")[2]
    headers = {"last-event-id": last} if last is not None else {}
    return httpx.stream(
        "GET",
        f"{address}/events?{query}",
        headers=headers,
        cookies={f"clew-{port}": TOKEN},
        timeout=120,
    )


def events(stream: httpx.Response) -> Iterator[tuple[str, dict[str, Any]]]:
    id = ""
    for line in stream.iter_lines():
        if line.startswith("id: "):
            id = line[4:]
        elif line.startswith("data: "):
            yield id, json.loads(line[6:])


def test_a_page_is_told_of_every_position_and_resumes_without_a_gap(store: Store) -> None:
    thread = store.create("live")
    thread.append("custom", {"n": 1})
    with serving(store) as address:
        with connected(address, "id=live") as stream:
            heard = events(stream)
            id, first = next(heard)
            assert first["seq"] == thread.info.seq == int(id)
            thread.append("custom", {"n": 2})
            id, second = next(heard)
            assert second == {"seq": thread.info.seq, "leaf": thread.leaf}
        # While nobody listens, the thread goes on; who comes back hears of it at once.
        thread.append("custom", {"n": 3})
        with connected(address, "id=live", last=id) as stream:
            assert next(events(stream))[1]["seq"] == thread.info.seq
        # A page that says where it is, and has seen all, is told of the next one only.
        with connected(address, f"id=live&after={thread.info.seq}") as stream:
            heard = events(stream)
            thread.append("custom", {"n": 4})
            assert next(heard)[1]["seq"] == thread.info.seq


def test_the_list_names_what_changed_since_a_position(store: Store) -> None:
    store.create("one")
    with serving(store) as address:
        with connected(address, "") as stream:
            heard = events(stream)
            id, first = next(heard)
            assert first == {"threads": 1}
            store.create("two")
            id, second = next(heard)
            assert second == {"threads": 2, "changed": ["two"]}
        store.get("one").set(title="x")
        with connected(address, "", last=id) as stream:
            assert next(events(stream))[1]["changed"] == ["one"]
        for elsewhere in ("another-run.7", f"{id.partition('.')[0]}.{'9' * 5000}"):
            with connected(address, "", last=elsewhere) as stream:
                assert next(events(stream))[1] == {"threads": 2}


def test_a_thread_that_is_purged_or_never_was_is_told_as_gone(store: Store) -> None:
    with serving(store) as address, connected(address, "id=never") as stream:
        assert "was not found" in next(events(stream))[1]["gone"]


def test_a_store_that_does_not_answer_for_a_moment_is_asked_again(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads, failures = type(filled.engine).heads, iter([True, True, False])

    def flaky(engine: Any) -> Any:
        if next(failures, False):
            raise Unavailable("gone for a moment")
        return heads(engine)

    monkeypatch.setattr(type(filled.engine), "heads", flaky)
    with serving(filled) as address, connected(address, "") as stream:
        assert next(events(stream))[1]["threads"] > 5


def test_the_server_ends_while_pages_listen(store: Store) -> None:
    store.create("live")
    ended = threading.Event()

    with serving(store) as address:
        begun = threading.Event()

        def listen() -> None:
            with connected(address, "id=live") as stream:
                for _ in events(stream):
                    begun.set()
            ended.set()

        listener = threading.Thread(target=listen)
        listener.start()
        assert begun.wait(120)
    listener.join(timeout=120)
    assert ended.is_set()
