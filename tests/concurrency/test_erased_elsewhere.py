"""What one handle or process erases, the others that remember it do not show or store again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from concurrency import erasure_reader
from concurrency.erasure_reader import shown

import clew

WORD = "zanzibarkey"
Ask = Callable[[str], dict[str, Any]]


@pytest.fixture(params=["sqlite", "files", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> str:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_dsn"))
    return f"{request.param}:{tmp_path / 'store'}"


def fill(store: clew.Store) -> None:
    """A thread, a fork of it that goes on, and a fork of that which only shares."""
    thread = store.create("t", title="about it")
    thread.append_message({"role": "user", "content": f"the {WORD}"}, id="a")
    thread.append_message({"role": "assistant", "content": "yes"}, id="b")
    fork = store.fork("t", id="f")
    fork.append_message({"role": "user", "content": f"{WORD} again"}, id="c")
    store.fork("f", id="g")


@contextmanager
def process(address: str) -> Iterator[Ask]:
    reader = subprocess.Popen(
        [sys.executable, erasure_reader.__file__, address, WORD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdin is not None
    assert reader.stdout is not None

    def ask(thread: str) -> dict[str, Any]:
        reader.stdin.write(thread + "\n")
        reader.stdin.flush()
        found: dict[str, Any] = json.loads(reader.stdout.readline())
        return found

    try:
        yield ask
    finally:
        reader.stdin.close()
        reader.wait()
        reader.stdout.close()


@contextmanager
def handle(address: str) -> Iterator[Ask]:
    with clew.open(address) as store:
        yield lambda thread: shown(store, thread, WORD)


NOTHING = {"context": False, "path": [], "feed": [], "search": 0}


@pytest.mark.parametrize("other", [handle, process])
def test_another_one_shows_it_no_more(address: str, other: Any) -> None:
    with clew.open(address) as store, other(address) as ask:
        fill(store)
        before = [ask(thread) for thread in "tfg"]
        assert [found["path"] for found in before] == [["a"], ["a", "c"], ["a", "c"]]
        assert all(found["context"] for found in before)
        assert before[0]["search"] == 2
        store.erase("g", ["a", "c"])
        assert [ask(thread) for thread in "tfg"] == [
            NOTHING | {"erased": erased} for erased in (["a"], ["a", "c"], ["a", "c"])
        ]


@pytest.mark.parametrize("other", [handle, process])
def test_nor_what_a_purged_thread_has_left_to_its_forks(address: str, other: Any) -> None:
    """A thread that was purged has no log that could tell of it."""
    with clew.open(address) as store, other(address) as ask:
        fill(store)
        store.purge("t")
        assert ask("g")["context"]
        store.purge("f")
        assert ask("g")["context"]
        assert ask("g")["context"]
        store.erase("g", ["a", "c"])
        assert ask("g") == NOTHING | {"erased": ["a", "c"]}
        assert store.verify() == []


def test_nor_where_another_thread_has_its_id_by_now(address: str) -> None:
    with clew.open(address) as store, handle(address) as ask:
        fill(store)
        assert ask("f")["context"]
        store.purge("t")
        store.create("t").append("event", 1, id="a")
        store.erase("f", ["a", "c"])
        assert ask("f") == NOTHING | {"erased": ["a", "c"]}
        assert ask("f") == NOTHING | {"erased": ["a", "c"]}


def test_a_context_goes_on_where_nothing_was_erased(address: str) -> None:
    """A fork whose origin goes on is not read anew for it."""
    with clew.open(address) as store:
        fill(store)
        fork = store.get("f")
        fork.context("plain")
        read: list[int] = []
        path = store.engine.path

        def counted(*given: Any, **also: Any) -> Any:
            found = path(*given, **also)
            read.append(len(found))
            return found

        store.engine.path = counted  # type: ignore[method-assign]
        store.get("t").append("event", 1)
        fork.set(title="later")
        fork.append_message({"role": "assistant", "content": "more"})
        assert "more" in str(fork.context("plain").messages)
        assert sum(read) == 2, "the entry that it had come to, and the new one"
